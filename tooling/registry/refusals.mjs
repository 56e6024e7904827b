// Packages that do it wrong, and what importing them must say.

import { cpSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { addPackage, run } from "./folders.mjs"

const LIBRARY = `build/ext-axpby-${process.platform}-${process.arch}.so`

/** DIR stands for the folder; `code` is a package of one file; `copy` puts a package there twice. */
const WRONG = [
  {
    name: "@rival/axpby",
    // By the namespace, which stacks name before the function.
    code: `import * as mx from "@lazuli/core"
mx.definePrimitive({ name: "@lazuli/ext-axpby/axpby", api: 1, infer: ([x]) => x, decompose: ([x]) => x })`,
    program: 'import "@lazuli/ext-axpby"; import "@rival/axpby"',
    says: [
      "[@lazuli/ext-axpby/axpby] is already registered by @lazuli/ext-axpby (DIR/node_modules/@lazuli/ext-axpby/dist/index.js)",
      "and @rival/axpby (DIR/node_modules/@rival/axpby/index.js) registers it again",
    ],
  },
  {
    name: "@old/ops",
    code: `import { definePrimitive } from "@lazuli/core/plugin"
definePrimitive({ name: "@old/ops/twice", api: 99, infer: ([x]) => x, decompose: ([x]) => x.add(x) })`,
    program: 'import "@old/ops"',
    says: [
      "[@old/ops/twice] was written for plugin API 99, but the installed @lazuli/core has plugin API",
      "Install a version of @old/ops made for it",
    ],
  },
  {
    name: "Node.js without process.getBuiltinModule, as before 20.16",
    program: 'process.getBuiltinModule = undefined\nawait import("@lazuli/core")',
    says: ["@lazuli/core needs Node.js 20.19, 22.12 or newer; this is Node.js v"],
  },
  {
    name: "@lazuli/ext-axpby of two versions",
    copy: ["@lazuli/ext-axpby", "second/node_modules/@lazuli/ext-axpby"],
    program:
      'import "lazuli"; import "@lazuli/ext-axpby"; import "./second/node_modules/@lazuli/ext-axpby/dist/index.js"',
    says: [
      `DIR/second/node_modules/@lazuli/ext-axpby/${LIBRARY} has a kernel for @lazuli/ext-axpby/axpby, which`,
      `DIR/node_modules/@lazuli/ext-axpby/${LIBRARY} has already`,
      "`npm ls @lazuli/ext-axpby` shows them",
    ],
  },
  {
    name: "@second/core",
    copy: ["@lazuli/core", "node_modules/@second/core"],
    program: `import * as one from "@lazuli/core"
import * as other from "@second/core"
one.add(other.array([1]), 1)`,
    says: [
      "[add] a must be an array or a scalar, received an mx.Array of another copy of @lazuli/core",
      "at DIR/node_modules/@second/core; this one is",
      "at DIR/node_modules/@lazuli/core",
      "Run `npm dedupe` to keep one",
    ],
  },
]

/** One check for each, for a folder that has ext-axpby. */
export function refusals(scratch, folder) {
  return WRONG.map(({ name, code, copy, program, says }) => ({
    name: `${name} is refused`,
    run() {
      if (code) addPackage(folder, name, code)
      if (copy) cpSync(join(folder, "node_modules", copy[0]), join(folder, copy[1]), { recursive: true })
      writeFileSync(join(folder, "wrong.mjs"), program)
      let said
      try {
        run(scratch, folder, process.execPath, ["wrong.mjs"])
      } catch (error) {
        said = error.message.replaceAll(folder, "DIR")
      }
      if (!said || !says.every((part) => said.includes(part)))
        throw new Error(`expected ${says.join(" … ")}\n${said}`)
    },
  }))
}
