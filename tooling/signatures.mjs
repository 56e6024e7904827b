// Overloads of public functions, from the one declaration of each: the call of `operation`, whose signature names the parameters and whose
// body types them and gives defaults. A function that hands `(...args: unknown[])` to it gets overloads for arguments by position, and by
// name in a last object. `@named x y` in its comment are MLX's keyword-only parameters. Constructors of layers get theirs from their call
// of `named`, whose signature names the parameters and whose tuple types them. A comment `// By hand: …` before the implementation keeps
// overloads that say more than the declaration; their names are compared all the same.
import { readdirSync, readFileSync } from "node:fs"
import { join } from "node:path"
import ts from "typescript"

/** The folders whose functions are read. */
const FOLDERS = [
  "packages/core/src/ops",
  "packages/core/src/api",
  "packages/nn/src",
  "packages/ext-axpby/src",
  "packages/ext-pointcloud/src",
]

/** Reads every source: the texts that change, how much there is, and what is wrong. */
export function generateSignatures(root) {
  const changed = new Map()
  const problems = []
  const total = { functions: 0, overloads: 0, byHand: 0 }
  const files = FOLDERS.flatMap((folder) =>
    readdirSync(join(root, folder), { recursive: true })
      .filter((file) => file.endsWith(".ts") && !file.endsWith(".test.ts"))
      .map((file) => join(folder, file))
      .sort(),
  )
  for (const file of files) {
    const before = readFileSync(join(root, file), "utf8")
    if (!before.includes("...args: unknown[]")) continue
    const { text, problems: found, ...counts } = withOverloads(before, file)
    problems.push(...found)
    for (const key of Object.keys(total)) total[key] += counts[key]
    if (text !== before) changed.set(file, text)
  }
  return { changed, problems, ...total }
}

/**
 * @param {string} text a source
 * @returns {{ text: string, functions: number, overloads: number, byHand: number, problems: string[] }} the source with the overloads
 * that its declarations make
 */
export function withOverloads(text, file = "source.ts") {
  const source = ts.createSourceFile(file, text, ts.ScriptTarget.ES2022, true)
  const problems = []
  const edits = []
  const counts = { functions: 0, overloads: 0, byHand: 0 }
  for (const each of [...signedIn(source), ...constructorsIn(source)]) {
    const { name, overloads, head, declared, result, kept, tagged, start, end } = each
    const problem = (fact) => problems.push(`${file}: ${name} ${fact}`)
    if (!declared) {
      if (!kept) problem(`hands its arguments to no \`${each.layer ? "named" : "operation"}\` of this file`)
      continue
    }
    counts.functions++
    const before = problems.length
    const read = each.layer ? layerParametersOf : parametersOf
    const parameters = read(source, declared, namedOnly(tagged), kept ? () => {} : problem)
    if (problems.length > before) continue
    if (kept) {
      counts.byHand++
      // A constructor's names may be out of reach: its comment says why.
      if (each.layer && parameters.length === 0) continue
      for (const overload of overloads)
        for (const wrong of strangers(source, overload, parameters)) problem(`has no parameter ${wrong}`)
      continue
    }
    const made = overloadsOf(parameters, source, each.layer).map((given) => `${head}(${given})${result}`)
    counts.overloads += made.length
    if (tokensOf(overloads.map((o) => o.getText()).join(" ")) !== tokensOf(made.join(" ")))
      edits.push({ start, end, lines: made })
  }
  let out = text
  for (const { start, end, lines } of edits.sort((a, b) => b.start - a.start))
    out = `${out.slice(0, start)}${lines.join("\n")}\n${out.slice(end)}`
  return { text: out, ...counts, problems }
}

const isExported = (node) => node.modifiers?.some((m) => m.kind === ts.SyntaxKind.ExportKeyword)

/**
 * The functions and types with overloads from a declaration: exported functions of one parameter `...args: unknown[]` which they hand on,
 * and interfaces that are the type of several functions, made by one function of the file.
 */
function signedIn(source) {
  const byName = new Map()
  for (const node of source.statements)
    if (ts.isFunctionDeclaration(node) && node.name && isExported(node))
      byName.set(node.name.text, [...(byName.get(node.name.text) ?? []), node])
  const functions = [...byName]
    .map(([name, all]) => ({ name, overloads: all.slice(0, -1), implementation: all.at(-1) }))
    .filter(({ implementation }) => calleeOf(implementation) !== undefined)
    .map(({ name, overloads, implementation }) => ({
      name,
      overloads,
      head: `export function ${name}`,
      declared: declarationOf(source, implementation),
      result: `: ${implementation.type?.getText() ?? "void"}`,
      kept: isByHand(source, implementation),
      tagged: overloads[0] ?? implementation,
      start: (overloads[0] ?? implementation).getStart(),
      end: implementation.getStart(),
    }))
  const interfaces = source.statements
    .filter(
      (s) => ts.isInterfaceDeclaration(s) && isExported(s) && s.members.every(ts.isCallSignatureDeclaration),
    )
    .map((s) => ({ type: s, declared: declarationReturning(source, s.name.text) }))
    .filter(({ declared }) => declared && entriesOf(source, declared.call.arguments[1]))
    .map(({ type, declared }) => ({
      name: type.name.text,
      overloads: [...type.members],
      head: "",
      declared,
      result: `: ${type.members[0].type.getText()}`,
      kept: isByHand(source, type),
      tagged: type,
      start: type.members[0].getStart(),
      end: type.end - 1,
    }))
  return [...functions, ...interfaces]
}

/** The constructors of a file's exported classes that take `...args: unknown[]`, and their call of `named`. */
function constructorsIn(source) {
  return source.statements
    .filter((s) => ts.isClassDeclaration(s) && isExported(s))
    .flatMap((type) => {
      const all = type.members.filter(ts.isConstructorDeclaration)
      const implementation = all.at(-1)
      if (!implementation || all.length === 1 || implementation.parameters[0]?.name.getText() !== "args")
        return []
      return {
        layer: true,
        name: type.name.text,
        overloads: all.slice(0, -1),
        head: "constructor",
        declared: namedIn(source, implementation, type),
        result: "",
        kept: isByHand(source, implementation),
        tagged: type,
        start: all[0].getStart(),
        end: implementation.getStart(),
      }
    })
}

/** The one call of `named` in a constructor, in a function of the file that it calls, or in the constructor of its base class. */
function namedIn(source, implementation, type) {
  const own = callsIn(implementation, "named")
  if (own.length > 0) return own.length === 1 ? own[0] : undefined
  const called = source.statements.filter(
    (s) => ts.isFunctionDeclaration(s) && s.name && callsIn(implementation, s.name.text).length > 0,
  )
  const inFunctions = called.flatMap((f) => callsIn(f, "named"))
  if (inFunctions.length > 0) return inFunctions.length === 1 ? inFunctions[0] : undefined
  const base = type.heritageClauses?.find((h) => h.token === ts.SyntaxKind.ExtendsKeyword)?.types[0].getText()
  const baseType = source.statements.find((s) => ts.isClassDeclaration(s) && s.name?.text === base)
  if (!baseType) return undefined
  const inherited = baseType.members.filter(ts.isConstructorDeclaration).at(-1)
  return namedIn(source, inherited ?? ts.factory.createOmittedExpression(), baseType)
}

/** The parameters of a constructor, in order, as `parametersOf` gives them. */
function layerParametersOf(source, call, _named, problem) {
  const entries = entriesOf(source, call.arguments[1])
  const types = call.typeArguments?.[0] && elementsOf(source, call.typeArguments[0])
  if (!entries || types?.length !== entries.length) {
    problem("has a call of `named` whose signature and types do not fit each other")
    return []
  }
  return entries.map(([name, kind], i) => {
    const { type, optional } = types[i]
    if ((optionalByKind(kind) ?? optional) !== optional)
      problem(`has ${name} optional in its signature or in its types alone`)
    return { name, type, optional, named: false }
  })
}

/** The elements of a tuple type, or of an alias of one in this file: { type, optional }. */
function elementsOf(source, node) {
  if (ts.isTypeReferenceNode(node)) {
    const alias = source.statements.find(
      (s) => ts.isTypeAliasDeclaration(s) && s.name.text === node.typeName.getText(),
    )
    return alias && elementsOf(source, alias.type)
  }
  if (!ts.isTupleTypeNode(node)) return undefined
  return node.elements.flatMap((e) => {
    if (ts.isRestTypeNode(e)) return elementsOf(source, e.type) ?? [undefined]
    if (ts.isNamedTupleMember(e)) return { type: e.type.getText(), optional: e.questionToken !== undefined }
    return ts.isOptionalTypeNode(e)
      ? { type: e.type.getText().replace(/^\((.*)\)$/, "$1"), optional: true }
      : { type: e.getText(), optional: false }
  })
}

/** The one call of `operation` in the function of a file that returns a type of this name. */
function declarationReturning(source, name) {
  const maker = source.statements.find((s) => ts.isFunctionDeclaration(s) && s.type?.getText() === name)
  const [call, ...more] = maker ? operationsIn(maker) : []
  return call && more.length === 0 ? { call, types: new Map() } : undefined
}

const operationsIn = (node) => callsIn(node, "operation")

function callsIn(node, name) {
  const found = []
  const visit = (each) => {
    if (ts.isCallExpression(each) && each.expression.getText() === name) found.push(each)
    ts.forEachChild(each, visit)
  }
  visit(node)
  return found
}

/** `f` of `(...args: unknown[]) { return f(args) }`. */
function calleeOf({ body, parameters: [only, ...others] }) {
  if (!only?.dotDotDotToken || others.length > 0 || only.type?.getText() !== "unknown[]") return undefined
  const [statement, ...more] = body?.statements ?? []
  if (!statement || more.length > 0 || !ts.isReturnStatement(statement)) return undefined
  const call = statement.expression
  const handsOn = call && ts.isCallExpression(call) && call.arguments.length === 1
  return handsOn && call.arguments[0].getText() === only.name.getText()
    ? call.expression.getText()
    : undefined
}

const isByHand = (source, node) =>
  /\/\/ By hand: \S/.test(source.text.slice(node.getFullStart(), node.getStart()))

/** The functions that make public functions of a signature and a body. */
const MAKERS = new Set(["operation", "composition"])

/**
 * The call of `operation` that a function hands its arguments to: its own, or the one in the function of this file that makes several
 * such. `types` is what the type parameters of that function stand for.
 */
function declarationOf(source, implementation) {
  const name = calleeOf(implementation)
  const made = variable(source, name)
  if (!made || !ts.isCallExpression(made)) return undefined
  const maker = made.expression.getText()
  if (MAKERS.has(maker)) return { call: made, types: new Map() }
  const from =
    source.statements.find((s) => ts.isFunctionDeclaration(s) && s.name?.text === maker) ??
    variable(source, maker)
  const found = from ? operationsIn(from) : []
  const given = (made.typeArguments ?? []).map((t) => t.getText())
  const types = new Map((from?.typeParameters ?? []).map((t, i) => [t.name.text, given[i] ?? "unknown"]))
  return found.length === 1 ? { call: found[0], types } : undefined
}

const variable = (source, name) =>
  source.statements
    .filter(ts.isVariableStatement)
    .flatMap((s) => s.declarationList.declarations)
    .find((d) => d.name.getText() === name)?.initializer

/** The names after `@named`. */
function namedOnly(node) {
  const tag = ts.getJSDocTags(node).find(({ tagName }) => tagName.text === "named")
  return new Set((ts.getTextOfJSDocComment(tag?.comment) ?? "").split(/\s+/).filter(Boolean))
}

/** The parameters of a declaration, in order: { name, type, optional, named }. */
function parametersOf(source, { call, types }, named, problem) {
  const [, signature, body] = call.arguments
  const entries = entriesOf(source, signature)
  const code = functionOf(source, body)
  if (!entries) problem("has a signature that cannot be read")
  else if (!code || code.parameters.length > entries.length)
    problem("has a body whose parameters are not those of its signature")
  else {
    for (const each of named)
      if (!entries.some(([name]) => name === each)) problem(`has no parameter ${each} to be @named`)
    return entries.map(([name, kind], i) => {
      const own = code.parameters[i]
      const written = own?.type?.getText() ?? typeOfDefault(own?.initializer)
      const type = types.get(written) ?? written
      if (!type || type === "unknown") problem(`does not type ${name} in its body`)
      const optional = optionalByKind(kind) ?? (own?.questionToken || own?.initializer) !== undefined
      return { name, type: type ?? "unknown", optional, named: named.has(name) }
    })
  }
  return []
}

/** Names and kinds, of an object or a list of names, or of a constant that is one. */
function entriesOf(source, node) {
  if (ts.isAsExpression(node)) return entriesOf(source, node.expression)
  if (ts.isIdentifier(node)) return entriesOf(source, variable(source, node.text) ?? ts.factory.createNull())
  const entries = ts.isArrayLiteralExpression(node)
    ? node.elements.map((e) => [ts.isStringLiteral(e) ? e.text : undefined])
    : ts.isObjectLiteralExpression(node)
      ? node.properties.flatMap((p) =>
          ts.isSpreadAssignment(p)
            ? (entriesOf(source, p.expression) ?? [[undefined]])
            : [[ts.isPropertyAssignment(p) ? p.name.text : undefined, p.initializer]],
        )
      : []
  return entries.length > 0 && entries.every(([name]) => name !== undefined) ? entries : undefined
}

/** True for `"bool?"` and lists of strings, undefined where the kind is made elsewhere. */
function optionalByKind(kind) {
  if (kind && ts.isStringLiteral(kind)) return kind.text.endsWith("?")
  return kind && ts.isArrayLiteralExpression(kind) ? true : undefined
}

function functionOf(source, node) {
  if (ts.isArrowFunction(node)) return node
  if (!ts.isIdentifier(node)) return undefined
  return source.statements.find((s) => ts.isFunctionDeclaration(s) && s.name?.text === node.text)
}

function typeOfDefault(node) {
  if (!node) return undefined
  if (node.kind === ts.SyntaxKind.TrueKeyword || node.kind === ts.SyntaxKind.FalseKeyword) return "boolean"
  return ts.isNumericLiteral(node) || ts.isPrefixUnaryExpression(node) ? "number" : undefined
}

/**
 * By position; then by name after each parameter from the first that need not be given: `sum(a, 0, true)`, `sum(a, 0, { keepdims: true
 * })`, `sum(a, { axis: 0 })`. Of many such parameters only the first one counts: of more than three overloads TypeScript's errors show the
 * last one alone. Of a layer: by position, by name after the required ones or the first one, and all by name; a layer has no stream.
 */
function overloadsOf(parameters, source, layer = false) {
  const positional = parameters.filter((p) => !p.named)
  const named = parameters.filter((p) => p.named)
  const lastRequired = positional.findLastIndex((p) => !p.optional)
  const firstOptional = positional.findIndex((p) => p.optional)
  const given = (list) => list.map((p) => `${p.name}: ${p.type}`)
  const forms = [
    {
      leading: positional.map((p, i) => (i > lastRequired ? shows(p) : `${p.name}: ${p.type}`)),
      byName: named,
    },
  ]
  const counts = layer
    ? [Math.max(lastRequired + 1, 1), 0]
    : firstOptional < 0
      ? []
      : [firstOptional + 1, firstOptional]
  for (const count of counts)
    if (count < positional.length)
      forms.push({
        leading: given(positional.slice(0, count)),
        byName: [...positional.slice(count), ...named],
      })
  return forms.map(({ leading, byName }, i) => {
    if (layer)
      return [
        ...leading,
        ...(byName.length > 0 ? [`options: ${optionsType(source, byName, false)}`] : []),
      ].join(", ")
    const mark = (i === 0 && byName.every((p) => p.optional)) || leading.length === 0 ? "?" : ""
    return [...leading, `options${mark}: ${optionsType(source, byName)}`].join(", ")
  })
}

/** A parameter as a member, or as an argument that need not be given. */
const shows = ({ name, type, optional }) =>
  optional ? `${name}?: ${type.replace(/ \| undefined$/, "")}` : `${name}: ${type}`

/** The type of what is given by name, with the documented interfaces of the file that say a part of it. */
function optionsType(source, byName, withStream = true) {
  let left = byName
  let streams = !withStream
  const parts = []
  const asked = byName.map((p) => tokensOf(shows(p)))
  const differing = ({ members }) =>
    [...members, ...asked].filter((m) => members.includes(m) !== asked.includes(m)).length
  const interfaces = interfacesIn(source).sort((a, b) => differing(a) - differing(b))
  for (const { name, members, hasStream } of interfaces) {
    const own = left.filter((p) => members.includes(tokensOf(shows(p))))
    const missing = members.filter((m) => !own.some((p) => tokensOf(shows(p)) === m))
    if (own.length < 2 || missing.length > 1) continue
    parts.push(missing.length ? `Omit<${name}, "${missing[0].split(" ")[0]}">` : name)
    left = left.filter((p) => !own.includes(p))
    streams ||= hasStream
  }
  if (left.length) parts.unshift(`{ ${left.map(shows).join("; ")} }`)
  if (!streams) parts.push(streamOptionsIn(source))
  return parts.join(" & ")
}

/** Exported interfaces of options, whose members are documented one by one; those with most members first. */
function interfacesIn(source) {
  const all = source.statements.filter(
    (s) =>
      ts.isInterfaceDeclaration(s) &&
      isExported(s) &&
      !s.typeParameters &&
      s.members.every(ts.isPropertySignature),
  )
  const read = (s) => {
    const bases = (s.heritageClauses ?? []).flatMap((h) => h.types.map((t) => t.getText()))
    const known = all.filter((other) => bases.includes(other.name.text)).map(read)
    return {
      name: s.name.text,
      members: [...s.members.map((m) => tokensOf(m.getText())), ...known.flatMap((k) => k.members)],
      hasStream: bases.some((base) => /\bStreamOptions\b/.test(base)) || known.some((k) => k.hasStream),
    }
  }
  return all.map(read).sort((a, b) => b.members.length - a.members.length)
}

/** The type of a last object's `stream`, under the name that the file knows. */
const streamOptionsIn = (source) =>
  source.statements.some(
    (s) => ts.isImportDeclaration(s) && /\bStreamOptions\b/.test(s.importClause?.getText() ?? ""),
  )
    ? "StreamOptions"
    : "mx.StreamOptions"

/** The names in an overload written by hand that the declaration does not have, or has elsewhere. */
function strangers(source, overload, parameters) {
  const known = new Set([...parameters.map((p) => p.name), "stream"])
  const wrong = []
  const members = (node) => {
    if (ts.isIntersectionTypeNode(node)) node.types.forEach(members)
    const declared = ts.isTypeReferenceNode(node)
      ? source.statements.find((s) => ts.isInterfaceDeclaration(s) && s.name.text === node.typeName.getText())
      : node
    for (const m of declared?.members ?? []) if (!known.has(m.name?.getText())) wrong.push(m.name?.getText())
  }
  overload.parameters.forEach((p, i) => {
    const name = p.name.getText()
    if (name === "options") members(p.type)
    else if (!p.dotDotDotToken && parameters[i]?.name !== name) wrong.push(name)
  })
  return wrong
}

/** The tokens of a text: what is left when layout is taken away. */
function tokensOf(text) {
  const scanner = ts.createScanner(ts.ScriptTarget.ES2022, true, ts.LanguageVariant.Standard, text)
  const layout = [ts.SyntaxKind.SemicolonToken, ts.SyntaxKind.CommaToken]
  const tokens = []
  for (let kind = scanner.scan(); kind !== ts.SyntaxKind.EndOfFileToken; kind = scanner.scan())
    if (!layout.includes(kind)) tokens.push(scanner.getTokenText())
  return tokens.join(" ").replace(/([(<:]) \|/g, "$1")
}
