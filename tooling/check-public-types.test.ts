import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { expect, it } from "vitest"
import { checkPublicTypes } from "./check-public-types.mjs"

it("finds any wherever users would meet it, and nowhere else", () => {
  const root = mkdtempSync(join(tmpdir(), "types-"))
  try {
    mkdirSync(join(root, "packages/a/src"), { recursive: true })
    const plant = (path: string, text: string) => writeFileSync(join(root, path), text)
    plant("tsconfig.json", JSON.stringify({ compilerOptions: { strict: true, target: "ES2022", types: [] } }))
    const exports = { ".": { default: "./dist/index.js" } }
    plant("packages/a/package.json", JSON.stringify({ name: "@x/a", exports }))
    plant(
      "packages/a/src/inner.ts",
      `export interface Deep { readonly list: Map<string, any>[]; next?: Deep }
       export class Box<T = any> { value!: T; _hidden: any; #mine: any; private own: any; static make(): Box<string> { return new Box() } }`,
    )
    plant(
      "packages/a/src/index.ts",
      `import type { Deep } from './inner'
       export { Box } from './inner'
       export const fine = (names: Iterable<string>, n: number | null): Promise<string[]> => Promise.resolve([...names])
       export const first = (x: any): void => {}
       export function second(): Deep { throw 0 }
       export type Third = { [key: string]: any }
       export type Fourth = { f: <T extends any[]>(...args: T) => T }
       const hidden = (x: any): any => x
       export const uses = (): string => hidden(1)`,
    )
    expect(checkPublicTypes(root)).toEqual({
      names: 7,
      problems: [
        "@x/a: Box.value =",
        "@x/a: Fourth.f() extends",
        "@x/a: Third[string]",
        "@x/a: first(x)",
        "@x/a: second().list",
      ],
    })
  } finally {
    rmSync(root, { recursive: true, force: true })
  }
})
