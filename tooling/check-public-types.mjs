// Finds `any` in what packages export: the types of all values and functions of every entry, what these are made of, and so
// on through all types that this repository declares. Names that begin with `_`, and private members, are nobody's business.
//
//   node tooling/check-public-types.mjs [ROOT]

import { existsSync, readdirSync, readFileSync } from "node:fs"
import { join, resolve, sep } from "node:path"
import { pathToFileURL } from "node:url"
import ts from "typescript"

/**
 * @param {string} root the repository
 * @returns {{ problems: string[], names: number }} where an `any` is, and how many exported names were read
 */
export function checkPublicTypes(root) {
  const configFile = join(root, "tsconfig.json")
  const config = ts.getParsedCommandLineOfConfigFile(
    configFile,
    {},
    { ...ts.sys, onUnRecoverableConfigFileDiagnostic() {} },
  )
  const entries = entryFiles(root)
  const program = ts.createProgram(
    entries.map(({ file }) => file),
    { ...config.options, noEmit: true },
  )
  const checker = program.getTypeChecker()
  const problems = new Set()
  const seen = new Set()
  const packages = join(root, "packages") + sep
  let names = 0
  // Types to read, so that long chains of types need no long chain of calls.
  const waiting = []

  const isOurs = (symbol) =>
    symbol?.declarations?.some((d) => {
      const { fileName } = d.getSourceFile()
      return fileName.startsWith(packages) && !fileName.includes(`${sep}node_modules${sep}`)
    }) ?? false
  const later = (type, path) => {
    if (type && !seen.has(type)) waiting.push([type, path])
  }
  const signature = (s, path) => {
    for (const parameter of s.typeParameters ?? []) later(parameter, `${path}<${parameter.symbol.name}>`)
    for (const parameter of s.parameters)
      later(checker.getTypeOfSymbol(parameter), `${path}(${parameter.name})`)
    later(s.getReturnType(), `${path}()`)
  }

  function read(type, path) {
    if (type.flags & ts.TypeFlags.Any) {
      problems.add(path)
      return
    }
    if (seen.has(type)) return
    seen.add(type)
    for (const argument of type.aliasTypeArguments ?? []) later(argument, path)
    if (type.isUnionOrIntersection()) {
      for (const part of type.types) later(part, path)
      return
    }
    if (type.isTypeParameter()) {
      later(type.getConstraint(), `${path} extends`)
      later(type.getDefault(), `${path} =`)
      return
    }
    if (type.flags & ts.TypeFlags.Conditional) {
      later(checker.getBaseConstraintOfType(type), path)
      return
    }
    if (!(type.flags & ts.TypeFlags.Object)) return
    if (type.objectFlags & ts.ObjectFlags.Reference) {
      // Iterable<T> of the library has defaults that are any: what nobody wrote.
      const parameters = isOurs(type.symbol) ? [] : (type.target.typeParameters ?? [])
      checker.getTypeArguments(type).forEach((argument, i) => {
        if (!parameters[i]?.getDefault()) later(argument, path)
      })
    }
    // The libraries' types are theirs; a function or an object written in place has a symbol of ours, or none.
    if (type.symbol && !isOurs(type.symbol)) return
    for (const s of [...type.getCallSignatures(), ...type.getConstructSignatures()]) signature(s, path)
    for (const info of checker.getIndexInfosOfType(type))
      later(info.type, `${path}[${checker.typeToString(info.keyType)}]`)
    for (const property of type.getProperties()) {
      if (property.name.startsWith("_") || isPrivate(property) || !isOurs(property)) continue
      later(checker.getTypeOfSymbol(property), `${path}.${property.name}`)
    }
    for (const base of type.isClassOrInterface() ? checker.getBaseTypes(type) : []) later(base, path)
  }

  for (const { name, file } of entries) {
    const source = program.getSourceFile(file)
    for (const exported of checker.getExportsOfModule(checker.getSymbolAtLocation(source))) {
      const symbol = exported.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(exported) : exported
      names++
      const path = `${name}: ${exported.name}`
      if (symbol.flags & ts.SymbolFlags.Value) later(checker.getTypeOfSymbol(symbol), path)
      if (symbol.flags & ts.SymbolFlags.Type) later(checker.getDeclaredTypeOfSymbol(symbol), path)
      while (waiting.length > 0) read(...waiting.pop())
    }
  }
  return { problems: [...problems].sort(), names }
}

function isPrivate(symbol) {
  return (symbol.declarations ?? []).some(
    (d) => ts.isPrivateIdentifier(d.name ?? d) || ts.getCombinedModifierFlags(d) & ts.ModifierFlags.Private,
  )
}

/** The sources behind every package's `exports`. */
function entryFiles(root) {
  const found = []
  for (const folder of readdirSync(join(root, "packages"))) {
    const manifestFile = join(root, "packages", folder, "package.json")
    if (!existsSync(manifestFile)) continue
    const manifest = JSON.parse(readFileSync(manifestFile, "utf8"))
    for (const [subpath, target] of Object.entries(manifest.exports ?? {})) {
      const stem = /^\.\/dist\/(.+)\.js$/.exec(
        typeof target === "string" ? target : (target.default ?? ""),
      )?.[1]
      if (!stem) continue
      const file = [`${stem}.ts`, `${stem}/index.ts`]
        .map((path) => join(root, "packages", folder, "src", path))
        .find(existsSync)
      if (file) found.push({ name: manifest.name + subpath.slice(1), file })
    }
  }
  return found
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) {
  const { problems, names } = checkPublicTypes(resolve(process.argv[2] ?? "."))
  for (const problem of problems) console.log(`${problem} is any`)
  console.log(`public types: ${names} names, ${problems.length} problems`)
  process.exitCode = problems.length > 0 ? 1 : 0
}
