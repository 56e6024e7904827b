// `node tooling/metal-headers.mjs FOLDER [--write]`: holds the Metal runtime for Apple's GPUs, and the fake Metal of its tests, to Apple's
// headers for C++ (metal-cpp), of which FOLDER has a copy with `Metal/` and `Foundation/`. Compared are every message's class, selector and
// types, and every constant. --write makes the fake's table anew from the headers: it is never written by hand.

import { readdirSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { fileURLToPath } from "node:url"

const native = fileURLToPath(new URL("../packages/backend-metal/native/", import.meta.url))
const table = join(native, "fake/methods.inc")

/** Names of types, enumerations and structs, as Objective-C encodes them. */
const PLAIN = {
  void: "v",
  bool: "B",
  double: "d",
  CFTimeInterval: "d",
  "NS::UInteger": "Q",
  UInteger: "Q",
  uint64_t: "Q",
  "std::uint64_t": "Q",
  "unsigned long": "Q",
  "NS::Integer": "q",
  Integer: "q",
  SEL: ":",
  Sel: ":",
  "MTL::Size": "{MTLSize=QQQ}",
  Size: "{MTLSize=QQQ}",
  Id: "@",
}

const withoutComments = (text) => text.replace(/\/\*[\s\S]*?\*\//g, " ").replace(/\/\/.*$/gm, "")

/** The headers: methods by class and selector, constants by name, the class that each class extends. */
export function readHeaders(folder) {
  const texts = ["Foundation", "Metal"].flatMap((part) =>
    readdirSync(join(folder, part))
      .filter((name) => name.endsWith(".hpp"))
      .sort()
      .map((name) => ({ part, text: withoutComments(readFileSync(join(folder, part, name), "utf8")) })),
  )
  const selectors = new Map()
  const enumerations = new Map()
  const constants = new Map()
  for (const { text } of texts) {
    for (const [, accessor, selector] of text.matchAll(
      /_(?:MTL|NS)_PRIVATE_DEF_SEL\(\s*(\w+),\s*"([^"]+)"\s*\)/g,
    ))
      selectors.set(accessor, selector)
    for (const [, underlying, name, body] of text.matchAll(
      /_(?:MTL|NS)_(?:ENUM|OPTIONS)\(\s*([\w:]+),\s*(\w+)\s*\)\s*\{([^}]*)\}/g,
    )) {
      enumerations.set(name, PLAIN[underlying])
      let next = 0n
      for (const line of body.split(",")) {
        const [, member, value] = /^\s*(\w+)\s*(?:=\s*([^,]+))?$/.exec(line) ?? []
        if (!member) continue
        const read = value === undefined ? next : valueOf(value, constants)
        if (read === null) continue
        constants.set(member, read)
        next = read + 1n
      }
    }
  }
  const encodingOf = (type, namespace) => {
    const text = type
      .replace(/\b(const|class|struct)\b/g, "")
      .replace(/\s+/g, " ")
      .trim()
    const name = text.replace(/[\s*&[\]]/g, "")
    const stars = (text.match(/\*|\[/g) ?? []).length
    const bare = name.replace(/^(NS|MTL)::/, "")
    if (stars === 0) {
      if (PLAIN[name]) return PLAIN[name]
      if (enumerations.has(bare)) return enumerations.get(bare)
      // Blocks are objects; anything else is not compared.
      return /Block$|Handler$|Deallocator$/.test(bare) || name === "block" ? "@" : `?${namespace}::${text}`
    }
    if (name === "char") return "*"
    if (name === "void") return "^v"
    return stars === 1 ? "@" : "^@"
  }
  const methods = new Map()
  for (const { part, text } of texts) {
    const namespace = part === "Metal" ? "MTL" : "NS"
    // Every definition outside its class, with the message that it sends.
    const pattern =
      /_(?:MTL|NS)_INLINE\s+(?:template\s*<[^>]*>\s*)?([^;{}]+?)\s*\b(?:MTL|NS)::(\w+)(?:<[^>]*>)?::(\w+)\(([^{}]*?)\)\s*(?:const)?\s*\{([^{}]*)\}/g
    for (const [, result, of, , parameters, body] of text.matchAll(pattern)) {
      const sent = /sendMessage(?:Safe)?<[^;]*?_(?:MTL|NS)_PRIVATE_SEL\(\s*(\w+)\s*\)/.exec(body)
      const selector = sent && selectors.get(sent[1])
      if (!selector) continue
      const plain = parameters.replace(/[\w\s]+\(\^\w*\)\([^)]*\)/g, "block")
      const types = plain.trim() === "" ? [] : plain.split(",").map(typeOfParameter)
      const encoding = `${encodingOf(result, namespace)}@:${types.map((t) => encodingOf(t, namespace)).join("")}`
      const name = `${namespace}${of} ${selector}`
      methods.set(name, [...(methods.get(name) ?? []), encoding])
    }
  }
  // Those of every object, which the headers declare by templates.
  for (const [selector, encoding] of Object.entries({
    alloc: "@@:",
    init: "@@:",
    retain: "@@:",
    release: "v@:",
    autorelease: "@@:",
    retainCount: "Q@:",
    "respondsToSelector:": "B@::",
  })) {
    if (![...selectors.values()].includes(selector)) throw new Error(`the headers have no ${selector}`)
    methods.set(`NSObject ${selector}`, [encoding])
  }
  // MTLCreateSystemDefaultDevice and its like are functions.
  const functions = new Set(
    texts.flatMap(({ text }) => [...text.matchAll(/extern "C" [^;(]*?\b(\w+)\(/g)].map(([, name]) => name)),
  )
  return { methods, constants, functions }
}

/** A parameter without its name: `const MTL::Buffer* const buffers[]` is a pointer to pointers. */
function typeOfParameter(parameter) {
  const text = parameter.trim()
  const isArray = /\[\s*\]$/.test(text)
  const bare = text.replace(/\[\s*\]$/, "").trim()
  if (bare === "block") return bare
  const type = /[*&]$/.test(bare) ? bare : bare.replace(/\b\w+$/, "").trim()
  return (type || bare) + (isArray ? "[" : "")
}

function valueOf(text, constants) {
  const plain = text.trim()
  const shift = /^\(?\s*(\d+)\w*\s*<<\s*(\d+)\s*\)?$/.exec(plain)
  if (shift) return BigInt(shift[1]) << BigInt(shift[2])
  if (/^-?(\d+|0x[\da-fA-F]+)$/.test(plain)) return BigInt(plain)
  return constants.get(plain) ?? null
}

/** The runtime's declarations. */
export function readRuntime() {
  const text = withoutComments(readFileSync(join(native, "apple/messages.h"), "utf8"))
  const encodingOf = (type) => {
    const name = type.trim()
    if (name === "const char*") return "*"
    if (name === "Id*" || name === "const Id*") return "^@"
    if (name === "void*" || name === "const void*") return "^v"
    return PLAIN[name] ?? `?${name}`
  }
  const messages = [
    ...text.matchAll(/Message<([^()<>]*)\(([^()]*)\)>\s+\w+\s*\{\s*"(\w+)",\s*"([^"]+)"\s*\}/g),
  ].map(([, result, parameters, of, selector]) => ({
    name: `${of} ${selector}`,
    encoding: `${encodingOf(result)}@:${parameters.trim() === "" ? "" : parameters.split(",").map(encodingOf).join("")}`,
  }))
  const constants = [...text.matchAll(/inline constexpr \w+ (\w+) = ([^;]+);/g)].map(([, name, value]) => ({
    name,
    value: valueOf(value, new Map()),
  }))
  return { messages, constants }
}

/** The lines of the fake's table: class, selector, encoding. */
export const readTable = () =>
  [...readFileSync(table, "utf8").matchAll(/^METHOD\("(\w+)", "([^"]+)", "([^"]+)"\)$/gm)].map(
    ([, of, selector, encoding]) => ({ name: `${of} ${selector}`, encoding }),
  )

/** Entries that disagree with the headers. */
export function differences(headers, entries) {
  return entries.flatMap(({ name, encoding }) => {
    const known = headers.methods.get(name)
    if (!known) return [`${name}: the headers have no such method`]
    return known.includes(encoding)
      ? []
      : [`${name}: is ${encoding}, and the headers say ${known.join(" or ")}`]
  })
}

function main([folder, write]) {
  if (!folder) {
    console.error("usage: node tooling/metal-headers.mjs FOLDER [--write]")
    return 2
  }
  const headers = readHeaders(folder)
  const { messages, constants } = readRuntime()
  if (write === "--write") {
    const names = [...new Set([...messages, ...readTable()].map(({ name }) => name))]
    const lines = names.sort().map((name) => {
      const known = headers.methods.get(name)
      if (!known) throw new Error(`the headers have no ${name}`)
      const [of, selector] = name.split(" ")
      return `METHOD("${of}", "${selector}", "${known[0]}")`
    })
    const head =
      "// Made by `node tooling/metal-headers.mjs FOLDER --write` from Apple's headers for C++: class, selector, types."
    writeFileSync(table, `${head}\n${lines.join("\n")}\n`)
  }
  const fake = readTable()
  const wrong = [...differences(headers, messages), ...differences(headers, fake)]
  for (const { name, value } of constants)
    if (headers.constants.get(name) !== value)
      wrong.push(`${name}: is ${value}, and the headers say ${headers.constants.get(name)}`)
  const functions = ["MTLCreateSystemDefaultDevice", "MTLCopyAllDevices"]
  for (const name of functions)
    if (!headers.functions.has(name)) wrong.push(`the headers have no function ${name}`)
  for (const { name } of messages)
    if (!fake.some((each) => each.name === name)) wrong.push(`${name}: the fake has no such method`)
  console.log(
    `the headers: ${headers.methods.size} methods, ${headers.constants.size} constants\n` +
      `the runtime: ${messages.length} messages, ${constants.length} constants, ${functions.length} functions\n` +
      `the fake: ${fake.length} methods\n${wrong.length === 0 ? "all equal" : wrong.join("\n")}`,
  )
  return wrong.length === 0 ? 0 : 1
}

if (process.argv[1] === fileURLToPath(import.meta.url)) process.exitCode = main(process.argv.slice(2))
