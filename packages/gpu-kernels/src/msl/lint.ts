/**
 * Rejects what Metal rejects and a C++ compiler would accept. Not a full check: address spaces of expressions, for one, are Apple's
 * compiler's business.
 */
import type { FunctionDefinition, Structure } from "./structure"
import type { Words } from "./tokens"

/** Something that Metal does not accept. */
export interface Problem {
  readonly line: number
  readonly message: string
}

/** Words that have no location in Metal, with the reason. */
const refused: Record<string, string> = {
  double: "Metal has no double: use float",
  goto: "Metal has no goto",
  thread_local: "Metal has no thread_local variables",
  register: "Metal has no register variables",
  dynamic_cast: "Metal has no dynamic_cast",
  typeid: "Metal has no type identification",
  new: "Metal has no new",
  delete: "Metal has no delete",
  try: "Metal has no exceptions",
  throw: "Metal has no exceptions",
  catch: "Metal has no exceptions",
  virtual: "Metal has no virtual functions",
  asm: "Metal has no inline assembly",
}

const SPACES = new Set([
  "device",
  "constant",
  "threadgroup",
  "thread",
  "threadgroup_imageblock",
  "ray_data",
  "object_data",
])

/** Attributes by which a kernel's parameter may get its value from the dispatch. */
export const dispatchAttributes: ReadonlySet<string> = new Set([
  "thread_position_in_grid",
  "thread_position_in_threadgroup",
  "thread_index_in_threadgroup",
  "threadgroup_position_in_grid",
  "threadgroups_per_grid",
  "threads_per_grid",
  "grid_size",
  "grid_origin",
  "threads_per_threadgroup",
  "dispatch_threads_per_threadgroup",
  "thread_index_in_simdgroup",
  "simdgroup_index_in_threadgroup",
  "simdgroups_per_threadgroup",
  "dispatch_simdgroups_per_threadgroup",
  "threads_per_simdgroup",
  "thread_execution_width",
  "thread_index_in_quadgroup",
  "quadgroup_index_in_threadgroup",
  "quadgroups_per_threadgroup",
  "dispatch_quadgroups_per_threadgroup",
])

/** The highest index of a buffer. */
export const MAX_BUFFER_INDEX = 30

/** Everything that is wrong, in the order of lines. */
export function lint(words: Words, structure: Structure): Problem[] {
  const problems: Problem[] = []
  const report = (line: number, message: string): void => {
    problems.push({ line, message })
  }
  for (let i = 0; i < words.length; i++) {
    const { kind, text, line } = words.at(i)
    // A deleted function is no use of the operator.
    if (kind === "word" && Object.hasOwn(refused, text) && !(text === "delete" && words.text(i - 1) === "="))
      report(line, refused[text])
  }
  for (const f of structure.functions) {
    lintParameters(words, f, report)
    lintBody(words, f, report)
    if (f.isKernel) lintKernel(words, f, report)
  }
  lintStatements(words, structure, report)
  lintRecursion(words, structure.functions, report)
  return problems.sort((a, b) => a.line - b.line)
}

type Report = (line: number, message: string) => void

function lintParameters(words: Words, f: FunctionDefinition, report: Report): void {
  for (const p of f.parameters) {
    let pointer = false
    let space = false
    for (let i = p.begin; i < p.end; i++) {
      const text = words.text(i)
      if (words.isAttribute(i)) i = words.closing(i)
      else if (text === "<") i = Math.min(words.closing(i), p.end)
      else if (text === "*" || text === "&" || text === "&&") pointer = true
      else if (SPACES.has(text)) space = true
    }
    if (pointer && !space)
      report(
        words.at(p.begin).line,
        `the pointer or reference "${p.name}" needs an address space (device, constant, threadgroup or thread)`,
      )
  }
}

function lintBody(words: Words, f: FunctionDefinition, report: Report): void {
  for (let i = f.open; i < f.end; i++) {
    const { text, line } = words.at(i)
    if (text === "static" && !/^(constant|constexpr|const)$/.test(words.text(i + 1)))
      report(line, "Metal has no static variables in functions")
    if (text === "threadgroup" && startsStatement(words, i)) {
      for (let k = i + 1; k < f.end && !/^[;*&()]$/.test(words.text(k)); k++)
        if (words.text(k) === "=" || words.text(k) === "{") {
          report(line, "a threadgroup variable cannot have an initializer")
          break
        }
    }
  }
}

const startsStatement = (words: Words, i: number): boolean => /^[;{}]$/.test(words.text(i - 1))

function lintKernel(words: Words, f: FunctionDefinition, report: Report): void {
  const returns = words.slice(f.begin, f.open)
  if (!/\bvoid\s+\w+\s*\(/.test(returns)) report(f.line, `the kernel "${f.name}" must return void`)
  const seen = new Map<string, string>()
  for (const p of f.parameters) {
    const { line } = words.at(p.begin)
    const text = words.slice(p.begin, p.end).replace(/\[\[.*\]\]/, "")
    const isReference = /[*&]/.test(text.replace(/<.*>/, ""))
    if (isReference && /\bthread\b/.test(text))
      report(line, `the kernel parameter "${p.name}" cannot be in the thread address space`)
    for (const { name, argument } of p.attributes) {
      if (name === "buffer" || name === "threadgroup") {
        const index = Number(argument)
        if (!Number.isInteger(index) || argument === "")
          report(line, `[[${name}(${argument})]] needs a number`)
        else if (index > MAX_BUFFER_INDEX) report(line, `${name} index ${index} is above ${MAX_BUFFER_INDEX}`)
        const other = seen.get(`${name}${index}`)
        if (other) report(line, `"${other}" and "${p.name}" have the same ${name} index ${index}`)
        seen.set(`${name}${index}`, p.name)
        if (!isReference) report(line, `"${p.name}" must be a pointer or a reference to be a ${name}`)
      } else if (name !== "function_constant" && name !== "maybe_unused" && !dispatchAttributes.has(name))
        report(line, `kernels have no parameters with the attribute [[${name}]]`)
    }
    if (p.attributes.length === 0 && !isReference)
      report(
        line,
        `the kernel parameter "${p.name}" needs an attribute, such as [[thread_position_in_grid]], or an address space`,
      )
  }
}

/** Program-scope variables live in the constant address space. */
function lintStatements(words: Words, { statements }: Structure, report: Report): void {
  for (const s of statements) {
    if (s.inType) continue
    const first = words.text(s.begin)
    if (
      /^(using|typedef|template|struct|class|union|enum|static_assert|friend|extern|namespace)$/.test(first)
    )
      continue
    let isVariable = true
    let isConstant = false
    for (let i = s.begin; i < s.end; i++) {
      const text = words.text(i)
      if (words.isAttribute(i)) i = words.closing(i)
      else if (text === "constant") isConstant = true
      else if (text === "=") break
      else if (text === "(") isVariable = false
    }
    if (isVariable && !isConstant && s.end > s.begin + 1)
      report(words.at(s.begin).line, "a variable outside functions must be in the constant address space")
  }
}

/** `name(…)` or `name<…>(…)`. */
function isCall(words: Words, i: number): boolean {
  if (words.text(i + 1) === "(") return true
  return words.text(i + 1) === "<" && words.text(words.closing(i + 1) + 1) === "("
}

/** Calls that lead back to their function. Overloads share a name, so only names with one definition are judged. */
function lintRecursion(words: Words, functions: readonly FunctionDefinition[], report: Report): void {
  const byName = new Map<string, FunctionDefinition | null>()
  for (const f of functions) byName.set(f.name, byName.has(f.name) ? null : f)
  const calls = new Map<FunctionDefinition, FunctionDefinition[]>()
  for (const f of functions) {
    const called: FunctionDefinition[] = []
    for (let i = f.open; i < f.end; i++) {
      const before = words.text(i - 1)
      const target = words.at(i).kind === "word" && isCall(words, i) ? byName.get(words.text(i)) : undefined
      if (target && before !== "." && before !== "->") called.push(target)
    }
    calls.set(f, called)
  }
  const state = new Map<FunctionDefinition, "open" | "done">()
  const visit = (f: FunctionDefinition): void => {
    state.set(f, "open")
    for (const target of calls.get(f) ?? []) {
      if (state.get(target) === "open")
        report(target.line, `"${target.name}" calls itself: Metal has no recursion`)
      else if (!state.has(target)) visit(target)
    }
    state.set(f, "done")
  }
  for (const f of functions) if (!state.has(f)) visit(f)
}
