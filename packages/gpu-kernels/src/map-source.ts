/**
 * Sources of kernels that compute each element of their outputs from the elements at its location: elementwise programs and copies.
 * Each thread computes several elements and reads them all before it computes, in vectors of 16 bytes where operands lie so.
 */
import { METAL_HEADER } from "./metal-types"
import { functionsFor } from "./scalar-source"

/**
 * The layout of an input beside the outputs, which are row-major: `i` bytes of the dispatch, `s` one element, `c` row-major like the
 * outputs, `r` rows of neighbours, `b` rows of one element each, `g` any strides. Capitals are the same for all rows of a thread.
 */
export type Letter = "i" | "s" | "c" | "r" | "b" | "g" | "R" | "B" | "G"

/** The work on one element. */
export interface ElementBody {
  /** The types of inputs and outputs in memory. */
  readonly inputs: readonly string[]
  readonly outputs: readonly string[]
  /** Statements that read `a0`, `a1`, … and set `o0`, `o1`, … */
  readonly text: string
}

/** The walk of a kernel over its elements. */
export interface MapForm {
  /** A letter for each input. */
  readonly letters: string
  /** Axes of the outputs: 0 where no input needs its own strides. */
  readonly ndim: number
  /** Elements that a vector holds. */
  readonly width: number
  /** Vectors of a thread. */
  readonly vectors: number
  /** True if vectors may be read and written as such. */
  readonly aligned: boolean
  /** Rows of a thread, along the last axis but one: 1 where no input is the same for several. */
  readonly rows: number
}

/** Kernel `map`: inputs, outputs, then `n` where there are no axes and the layout where there are. */
export function mapSource(body: ElementBody, form: MapForm): string {
  const { inputs, outputs } = body
  const { letters, ndim, aligned, width } = form
  const parameters = [
    ...inputs.map((type, k) =>
      letters[k] === "i"
        ? `constant ${type}& x${k} [[buffer(${k})]]`
        : `device const ${type}* x${k} [[buffer(${k})]]`,
    ),
    ...outputs.map((type, k) => `device ${type}* y${k} [[buffer(${inputs.length + k})]]`),
    ndim > 0
      ? `constant int* layout [[buffer(${inputs.length + outputs.length})]]`
      : `constant uint& n [[buffer(${inputs.length + outputs.length})]]`,
  ]
  const signature = [
    ...inputs.map((type, k) => `${type} a${k}`),
    ...outputs.map((type, k) => `thread ${type}& o${k}`),
  ]
  const pack = aligned
    ? `template <typename T> struct alignas(sizeof(T) * ${width}) lz_pack { T v[${width}]; };\n`
    : ""
  const main = ndim > 0 ? stridedBody(body, form) : flatBody(body, form)
  return `${METAL_HEADER}${functionsFor(body.text)}${pack}inline void lz_element(${signature.join(", ")}) {
${indented(body.text)}}
kernel void map(${parameters.join(", ")}, uint lane [[thread_position_in_threadgroup]],
    uint group [[threadgroup_position_in_grid]], uint threads [[threads_per_threadgroup]]) {
${indented(main)}}
`
}

const indented = (text: string): string =>
  text
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => `  ${line}\n`)
    .join("")

/** The call for one element; `of` and `to` say where an operand's element is. */
const element = (body: ElementBody, of: (k: number) => string, to: (k: number) => string): string =>
  `lz_element(${[...body.inputs.map((_, k) => of(k)), ...body.outputs.map((_, k) => to(k))].join(", ")});`

/** Elements in one row: whole blocks by vectors, the rest one by one. */
function flatBody(body: ElementBody, { letters, width, vectors, aligned }: MapForm): string {
  const count = width * vectors
  const many = [...letters].map((c) => c === "c")
  const constant = (k: number): string => (letters[k] === "i" ? `x${k}` : `s${k}`)
  const lines = [`uint start = group * threads * ${count};`]
  body.inputs.forEach((type, k) => {
    if (letters[k] === "s") lines.push(`${type} s${k} = x${k}[0];`)
  })
  lines.push(`if (start + threads * ${count} <= n) {`)
  if (aligned) {
    body.inputs.forEach((type, k) => {
      if (!many[k]) return
      lines.push(`  lz_pack<${type}> a${k}[${vectors}];`)
      lines.push(
        `  for (uint u = 0; u < ${vectors}; u++) a${k}[u] = *(device const lz_pack<${type}>*)(x${k} + start + (u * threads + lane) * ${width});`,
      )
    })
    body.outputs.forEach((type, k) => lines.push(`  lz_pack<${type}> o${k}[${vectors}];`))
    lines.push(
      `  for (uint u = 0; u < ${vectors}; u++)`,
      `    for (uint e = 0; e < ${width}; e++) ${element(
        body,
        (k) => (many[k] ? `a${k}[u].v[e]` : constant(k)),
        (k) => `o${k}[u].v[e]`,
      )}`,
    )
    body.outputs.forEach((type, k) => {
      lines.push(
        `  for (uint u = 0; u < ${vectors}; u++) *(device lz_pack<${type}>*)(y${k} + start + (u * threads + lane) * ${width}) = o${k}[u];`,
      )
    })
  } else {
    body.inputs.forEach((type, k) => {
      if (!many[k]) return
      lines.push(`  ${type} a${k}[${count}];`)
      lines.push(`  for (uint e = 0; e < ${count}; e++) a${k}[e] = x${k}[start + e * threads + lane];`)
    })
    body.outputs.forEach((type, k) => lines.push(`  ${type} o${k}[${count}];`))
    lines.push(
      `  for (uint e = 0; e < ${count}; e++) ${element(
        body,
        (k) => (many[k] ? `a${k}[e]` : constant(k)),
        (k) => `o${k}[e]`,
      )}`,
    )
    body.outputs.forEach((_, k) => {
      lines.push(`  for (uint e = 0; e < ${count}; e++) y${k}[start + e * threads + lane] = o${k}[e];`)
    })
  }
  lines.push(
    "} else {",
    `  for (uint e = 0; e < ${count}; e++) {`,
    "    uint i = start + e * threads + lane;",
  )
  lines.push("    if (i < n) {")
  body.outputs.forEach((type, k) => lines.push(`      ${type} o${k};`))
  lines.push(
    `      ${element(
      body,
      (k) => (many[k] ? `x${k}[i]` : constant(k)),
      (k) => `o${k}`,
    )}`,
  )
  body.outputs.forEach((_, k) => lines.push(`      y${k}[i] = o${k};`))
  lines.push("    }", "  }", "}")
  return lines.join("\n")
}

/** Rows whose elements a thread reads before it computes with them. */
const AHEAD = 8

/**
 * Elements along the last axis: a thread's lie side by side where rows are vectors, and one step of all threads of the row apart otherwise.
 * The layout: threads in all, the axes' sizes, and for each of `r`, `b` and `g` its offset and its strides.
 */
function stridedBody(body: ElementBody, form: MapForm): string {
  const { letters, ndim, width, aligned, rows } = form
  const walking = [...letters].map((c, k) => ("rbg".includes(c.toLowerCase()) ? k : -1)).filter((k) => k >= 0)
  const base = aligned ? `uint base = row * inner + column * ${width};` : "uint base = row * inner + column;"
  const lines = [
    "uint i = group * threads + lane;",
    "if (i >= uint(layout[0])) return;",
    `uint inner = uint(layout[${ndim}]);`,
    aligned ? `uint each = inner / ${width};` : `uint each = (inner + ${width - 1}) / ${width};`,
  ]
  if (rows === 1) lines.push("uint row = i / each;", "uint column = i % each;", base)
  else
    lines.push(
      `uint down = uint(layout[${ndim - 1}]), blocks = (down + ${rows - 1}) / ${rows}, block = i / each;`,
      "uint column = i % each, outer = block / blocks;",
      `uint first = block % blocks * ${rows}, last = min(first + ${rows}, down);`,
    )
  const at = (n: number): number => 1 + ndim + n * (ndim + 1)
  walking.forEach((k, n) => {
    lines.push(`int p${k} = layout[${at(n)}];`)
  })
  // A thread goes down its own rows below.
  const outer = rows === 1 ? ndim - 1 : ndim - 2
  if (outer > 0) {
    lines.push(`uint rest = ${rows === 1 ? "row" : "outer"};`)
    for (let axis = outer - 1; axis >= 0; axis--) {
      lines.push(
        axis === 0 ? "{ int c = int(rest);" : `{ int c = int(rest % uint(layout[${1 + axis}]));`,
        ...(axis === 0 ? [] : [`  rest /= uint(layout[${1 + axis}]);`]),
      )
      walking.forEach((k, n) => {
        lines.push(`  p${k} += c * layout[${at(n) + 1 + axis}];`)
      })
      lines.push("}")
    }
  }
  if (!aligned) {
    lines.push(`uint q[${width}];`)
    lines.push(
      `for (uint e = 0; e < ${width}; e++) q[e] = column + e * each < inner ? column + e * each : column;`,
    )
  }
  const readings = body.inputs.map((type, k) => readingOf(type, k, form, at(walking.indexOf(k)) + ndim))
  const results = (values: readonly string[]): string[] => [
    ...body.outputs.map((type, k) => (aligned ? `lz_pack<${type}> o${k};` : `${type} o${k}[${width}];`)),
    `for (uint e = 0; e < ${width}; e++) ${element(
      body,
      (k) => values[k],
      (k) => (aligned ? `o${k}.v[e]` : `o${k}[e]`),
    )}`,
    ...body.outputs.map((type, k) =>
      aligned
        ? `*(device lz_pack<${type}>*)(y${k} + base) = o${k};`
        : `for (uint e = 0; e < ${width}; e++) if (column + e * each < inner) y${k}[base + e * each] = o${k}[e];`,
    ),
  ]
  if (rows === 1) {
    lines.push(...readings.flatMap((reading, k) => reading?.whole(`p${k}`) ?? []))
    lines.push(...results(readings.map((reading, k) => reading?.value("") ?? `x${k}`)))
    return lines.join("\n")
  }
  // Once for all rows, or a few rows ahead of the results.
  const isHeld = (k: number): boolean => "iRBGs".includes(letters[k])
  const moving = readings.flatMap((reading, k) => (reading && !isHeld(k) ? [{ reading, k }] : []))
  const ahead = Math.min(rows, aligned ? AHEAD : Math.max(1, (4 * AHEAD) / width))
  const each = (statements: readonly string[]): string[] => [
    `for (uint u = 0; u < ${ahead}; u++)`,
    "  if (at + u < last) {",
    `    uint row = outer * down + at + u; ${base}`,
    ...statements.map((line) => `    ${line}`),
    "  }",
  ]
  lines.push(
    ...readings.flatMap((reading, k) => (reading && isHeld(k) ? reading.whole(`p${k}`) : [])),
    `for (uint at = first; at < last; at += ${ahead}) {`,
    ...[
      ...moving.map(({ reading }) => reading.declared(ahead)),
      ...each(
        moving.flatMap(({ reading, k }) => {
          const n = walking.indexOf(k)
          // Those beside the outputs have no location of their own.
          return n < 0
            ? [reading.filled("")]
            : [`int d${k} = p${k} + int(at + u) * layout[${at(n) + ndim - 1}];`, reading.filled(`d${k}`)]
        }),
      ),
      ...each(results(readings.map((reading, k) => reading?.value(isHeld(k) ? "" : "[u]") ?? `x${k}`))),
    ].map((line) => `  ${line}`),
    "}",
  )
  return lines.join("\n")
}

/** An input as a thread reads it: `row`, `base` and a location `p` say from where. */
interface Reading {
  /** Statements that declare and fill a variable. */
  whole(p: string): string[]
  /** A variable for several rows, and its row `u`. */
  declared(rows: number): string
  filled(p: string): string
  /** An element, of the variable or of its row. */
  value(row: string): string
}

/** Null for bytes of the dispatch. `step` is where its last stride is in the layout. */
function readingOf(
  type: string,
  k: number,
  { letters, width, aligned }: MapForm,
  step: number,
): Reading | null {
  const letter = letters[k].toLowerCase()
  if (letter === "i") return null
  const single = (kind: string, name: string, of: string, from: (p: string) => string): Reading => ({
    whole: (p) => [`${kind} ${name} = ${from(p)};`],
    declared: (rows) => `${kind} ${name}[${rows}];`,
    filled: (p) => `${name}[u] = ${from(p)};`,
    value: (row) => `${name}${row}${of}`,
  })
  if (letter === "s" || letter === "b")
    return single(type, `s${k}`, "", (p) => `x${k}[${letter === "s" ? "0" : p}]`)
  if (aligned && (letter === "c" || letter === "r"))
    return single(`lz_pack<${type}>`, `a${k}`, ".v[e]", (p) =>
      letter === "c"
        ? `*(device const lz_pack<${type}>*)(x${k} + base)`
        : `*(device const lz_pack<${type}>*)(x${k} + (${p} + int(column * ${width})))`,
    )
  const location = aligned ? `int(column * ${width} + e)` : "int(q[e])"
  const from = (p: string): string =>
    letter === "c"
      ? "row * inner + q[e]"
      : letter === "r"
        ? `${p} + ${location}`
        : `${p} + ${location} * layout[${step}]`
  const fill = (row: string, p: string): string =>
    `for (uint e = 0; e < ${width}; e++) a${k}${row}[e] = x${k}[${from(p)}];`
  return {
    whole: (p) => [`${type} a${k}[${width}];`, fill("", p)],
    declared: (rows) => `${type} a${k}[${rows}][${width}];`,
    filled: (p) => fill("[u]", p),
    value: (row) => `a${k}${row}[e]`,
  }
}
