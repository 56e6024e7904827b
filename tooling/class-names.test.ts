// A class that names itself in its own body is renamed by the bundler (`var Linear = class _Linear`), and with it what `constructor.name`,
// errors and `console.log` say. Such code belongs in a function beside the class.

import { readdirSync, readFileSync } from "node:fs"
import { join } from "node:path"
import ts from "typescript"
import { expect, test } from "vitest"

const root = new URL("..", import.meta.url).pathname

/** The exported classes of a source that name themselves, but in types, which are erased. */
function selfNamed(file: string, text: string): string[] {
  const source = ts.createSourceFile(file, text, ts.ScriptTarget.Latest, true)
  return source.statements.flatMap((statement) => {
    const { name } = ts.isClassDeclaration(statement) ? statement : {}
    const exported =
      ts.canHaveModifiers(statement) &&
      ts.getModifiers(statement)?.some((m) => m.kind === ts.SyntaxKind.ExportKeyword)
    if (!name || !exported) return []
    let found = false
    const visit = (node: ts.Node): void => {
      if (ts.isTypeNode(node)) return
      if (ts.isIdentifier(node) && node !== name && node.text === name.text && !isProperty(node)) found = true
      ts.forEachChild(node, visit)
    }
    ts.forEachChild(statement, visit)
    return found ? [name.text] : []
  })
}

/** True if an identifier is a property's name, not a value. */
const isProperty = (node: ts.Identifier): boolean =>
  (ts.isPropertyAccessExpression(node.parent) || ts.isPropertyAssignment(node.parent)) &&
  node.parent.name === node

test("exported classes of nn and optim keep their names when bundled", () => {
  const folder = join(root, "packages/nn/src")
  const files = readdirSync(folder, { recursive: true, encoding: "utf8" }).filter((file) =>
    /(?<!\.test)\.ts$/.test(file),
  )
  const found = files.flatMap((file) =>
    selfNamed(file, readFileSync(join(folder, file), "utf8")).map((name) => `${file}: ${name}`),
  )
  expect(found).toEqual([])
})

test("a class that names itself is found", () => {
  expect(selfNamed("a.ts", "export class A { static make(): A { return new A() } }")).toEqual(["A"])
  expect(selfNamed("a.ts", "export class A { make(): A { return this.A as A } }")).toEqual([])
})
