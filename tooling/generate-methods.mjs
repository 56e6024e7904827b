// Writes packages/core/src/fluent.ts (types) and methods.ts (installation) from the public functions of packages/core/src/ops:
// every exported function whose first parameter is an array becomes a method, but for those marked `@method false`. Run after adding an op:
// `npm run generate`.
import { readdirSync, readFileSync, writeFileSync } from "node:fs"
import { dirname, join } from "node:path"
import { fileURLToPath } from "node:url"
import ts from "typescript"

const core = join(dirname(fileURLToPath(import.meta.url)), "../packages/core/src")

/** Methods whose result has the dtype of the array. */
const SAME_DTYPE = new Set(
  `asStrided atleast1d atleast2d atleast3d broadcastTo contiguous cummax cummin depends diag diagonal expandDims flatten flip max min
  moveaxis negative partition permuteDims positive padSegments putAlongAxis repeat reshape roll round scatter segmentMax segmentMin sliceUpdate sort split square squeeze stopGradient
  swapaxes take takeAlongAxis tile topk transpose tril triu trunc unflatten unpadSegments unstack floor ceil sign conjugate slice`.split(
    /\s+/,
  ),
)
/** Methods that compute in floating point whatever the array is of. */
const FLOATING = new Set(
  `arccos arccosh arcsin arcsinh arctan arctanh cos cosh erf erfinv exp expm1 log log10 log1p log2 logsumexp mean reciprocal
  rsqrt sigmoid sin sinh sqrt segmentMean segmentSoftmax std tan tanh var median degrees radians`.split(
    /\s+/,
  ),
)
/** Methods that give numbers of numbers and bools. */
const NUMERIC = new Set(["sum", "prod", "segmentSum"])
/** Methods that give numbers of numbers. */
const OF_NUMBERS = new Set(["abs", "cumprod", "cumsum", "logcumsumexp", "softmax"])
/** Operators: beside a number they give numbers of numbers and bools. */
const OPERATORS = new Set(
  "add subtract multiply divide floorDivide remainder power maximum minimum".split(" "),
)
const BOOLEAN = new Set(
  `equal notEqual less lessEqual greater greaterEqual logicalAnd logicalOr logicalXor logicalNot isnan isinf isfinite isneginf isposinf
  isclose allclose arrayEqual all any`.split(/\s+/),
)
const NUMBER = new Set(["argmax", "argmin", "argsort", "argpartition", "searchsorted", "countNonzero"])

/** A method's signatures with what is known of the result's values. `N` and `B` are arrays of numbers and of booleans. */
function typed(name, signatures) {
  const result = (text, to) => text.replace(/: (A|this|N)((?:\[\])*)$/, `: ${to}$2`)
  const generic = (text, to) =>
    result(text.replace(/^\((?=\))/, "<T>(this: T").replace(/^\(/, "<T>(this: T, "), to)
  // graph.ts says what it is an array of.
  if (name === "astype") return ["(dtype: Dtype, options?: StreamOptions): A"]
  if (SAME_DTYPE.has(name)) return signatures.map((s) => result(s, "this"))
  if (BOOLEAN.has(name)) return signatures.map((s) => result(s, "B"))
  if (NUMBER.has(name)) return signatures.map((s) => result(s, "N"))
  if (FLOATING.has(name)) return signatures.map((s) => generic(s, "Floating<T, N, A>"))
  if (OF_NUMBERS.has(name)) return signatures.map((s) => generic(s, "OfNumbers<T, N, A>"))
  if (NUMERIC.has(name)) return signatures.map((s) => generic(s, "Numeric<T, N, A>"))
  if (OPERATORS.has(name))
    return ["<T>(this: T, b: number, options?: StreamOptions): Numeric<T, N, A>", ...signatures]
  return signatures
}

/** Short names of operators. */
const ALIASES = {
  sub: "subtract",
  mul: "multiply",
  div: "divide",
  mod: "remainder",
  pow: "power",
  neg: "negative",
  eq: "equal",
  ne: "notEqual",
  lt: "less",
  le: "lessEqual",
  gt: "greater",
  ge: "greaterEqual",
  conj: "conjugate",
}
/** Exported names that the public API spells differently. */
const RENAMES = { variance: "var" }

/** `@internal` are names that engines import from the families and users never see; `@method false` are functions alone, as in MLX. */
const isNoMethod = (node, text) =>
  /@internal\b|@method false\b/.test(text.slice(node.getFullStart(), node.getStart()))

const methods = new Map()
const typeNames = new Set()
const record = (name, module, exported, signatures) => {
  const known = methods.get(name)
  if (known) known.signatures.push(...signatures)
  else methods.set(name, { module, exported, signatures: [...signatures] })
}

function collectTypes(node) {
  if (ts.isTypeReferenceNode(node) && ts.isIdentifier(node.typeName)) typeNames.add(node.typeName.text)
  ts.forEachChild(node, collectTypes)
}

/** A function's parameters and result as a method's, without the array that it is a method of; undefined where it has none. */
function signatureOf({ parameters: [first, ...rest], type }) {
  const firstType = first?.type?.getText()
  if ((firstType !== "Array" && firstType !== "Operand") || first.questionToken) return undefined
  for (const p of rest) if (p.type) collectTypes(p.type)
  collectTypes(type)
  const generic = (s) =>
    s
      .replace(/\bArrayOf<number>/g, "N")
      .replace(/\bArrayOf<boolean>/g, "B")
      .replace(/\bArray\b/g, "A")
      .replace(/\bOperand\b/g, "A | Scalar")
  return `(${rest.map((p) => generic(p.getText())).join(", ")}): ${generic(type.getText())}`
}

const sources = readdirSync(join(core, "ops"))
  .filter((f) => f.endsWith(".ts") && !f.endsWith(".test.ts"))
  .sort()
  .map((file) => {
    const text = readFileSync(join(core, "ops", file), "utf8")
    return { file, text, source: ts.createSourceFile(file, text, ts.ScriptTarget.ES2022, true) }
  })
/** Types of functions that several constants share, such as `Reduction`. */
const functionTypes = new Map()
for (const { source } of sources)
  for (const node of source.statements) {
    if (ts.isTypeAliasDeclaration(node) && ts.isFunctionTypeNode(node.type))
      functionTypes.set(node.name.text, [node.type])
    if (ts.isInterfaceDeclaration(node) && node.members.every(ts.isCallSignatureDeclaration))
      functionTypes.set(node.name.text, node.members)
  }
for (const { file, text, source } of sources) {
  const module = file.slice(0, -3)
  const alone = new Set(
    source.statements.filter((node) => isNoMethod(node, text)).map((node) => node.name?.text ?? node),
  )
  for (const node of source.statements) {
    if (!node.modifiers?.some((m) => m.kind === ts.SyntaxKind.ExportKeyword)) continue
    if (alone.has(node) || alone.has(node.name?.text)) continue
    if (ts.isVariableStatement(node)) {
      for (const d of node.declarationList.declarations) {
        const type = d.type && ts.isTypeReferenceNode(d.type) ? d.type.typeName.getText() : undefined
        const signatures = (functionTypes.get(type) ?? []).map(signatureOf)
        if (signatures.length > 0 && signatures.every(Boolean))
          record(RENAMES[d.name.text] ?? d.name.text, module, d.name.text, signatures)
      }
    }
    if (ts.isFunctionDeclaration(node) && node.name && !node.body) {
      const signature = signatureOf(node)
      if (signature) record(node.name.text, module, node.name.text, [signature])
    }
  }
}
for (const [alias, name] of Object.entries(ALIASES)) {
  const of = methods.get(name)
  if (of) methods.set(alias, { ...of, alias: name })
}

const sorted = [...methods].sort(([a], [b]) => (a < b ? -1 : 1))
for (const name of ["Array", "ArrayOf", "Operand", "A", "D", "ValueIn"]) typeNames.delete(name)
// Types come from modules below graph.ts only, or the file would close an import circle.
const HOMES = {
  Axes: "./graph/option-types",
  Scalar: "./graph/option-types",
  StreamOptions: "./graph/option-types",
  Dtype: "./graph/dtype",
  Shape: "./graph/shape",
}
for (const name of ["Axes", "Floating", "Numeric", "OfNumbers", "Scalar", "StreamOptions"])
  typeNames.add(name)
const imports = {}
for (const name of typeNames) {
  const home = HOMES[name] ?? "./graph/option-types"
  ;(imports[home] ??= []).push(name)
}
const header = "// Generated by tooling/generate-methods.mjs from ops/*.ts. Do not edit.\n"
const fluent = `${header}${Object.keys(imports)
  .sort()
  .map((home) => `import type { ${imports[home].sort().join(", ")} } from '${home}'`)
  .join("\n")}

/** The methods of an array; \`A\` is the array class, which graph.ts fills in, \`N\` an array of numbers, \`B\` one of booleans. */
export interface FluentMethods<A, N, B> {
${sorted
  .map(
    ([name, m]) =>
      `  /** See \`mx.${m.alias ? m.alias : name}\`. */\n${typed(m.alias ?? name, m.signatures)
        .map((s) => `  ${name}${s}`)
        .join("\n")}`,
  )
  .join("\n")}
}
`
const byModule = {}
for (const [name, m] of sorted) (byModule[m.module] ??= []).push([name, m.exported])
const methodsFile = `${header}${Object.keys(byModule)
  .sort()
  .map((m) => `import * as ${m.replace(/-(.)/g, (_, c) => c.toUpperCase())}Ops from './ops/${m}'`)
  .join("\n")}
import { Array } from './graph/graph'

type Fn = (...args: never[]) => unknown
const install = (name: string, f: unknown): void => {
  Object.defineProperty(Array.prototype, name, {
    value(this: Array, ...args: never[]) {
      return (f as Fn)(this as never, ...args)
    },
    writable: true,
    configurable: true,
  })
}

${Object.keys(byModule)
  .sort()
  .flatMap((m) =>
    byModule[m].map(
      ([name, exported]) =>
        `install('${name}', ${m.replace(/-(.)/g, (_, c) => c.toUpperCase())}Ops.${exported})`,
    ),
  )
  .join("\n")}
`
writeFileSync(join(core, "fluent.ts"), fluent)
writeFileSync(join(core, "methods.ts"), methodsFile)
console.log(`${methods.size} methods from ${sources.length} families`)
