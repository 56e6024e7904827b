/**
 * The command: `npm create lazuli-plugin NAME -- --kernels cpp,metal`, or questions where it is asked nothing.
 */
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs"
import { dirname, join } from "node:path"
import { createInterface } from "node:readline/promises"
import { fileURLToPath } from "node:url"
import { parseArgs } from "node:util"
import { KERNELS, type Kernel, pluginFiles } from "./files"

const USAGE = `usage: npm create lazuli-plugin NAME [FOLDER] -- [--kernels LIST]

  NAME      the package's npm name, such as @me/ops
  FOLDER    where to write it; the name without its scope by default
  LIST      the languages of its kernels: any of ts,${KERNELS}; cpp,metal by default
            ts alone is for a package without kernels, which runs on every backend`

/** src/ and dist/ are both one below the package. */
const packageFile = (path: string): string => fileURLToPath(new URL(`../${path}`, import.meta.url))

/** @throws Error for a language that there is not */
export function kernelsOf(list: string): Kernel[] {
  const words = list
    .split(/[\s,]+/)
    .map((word) => word.toLowerCase().replace("typescript", "ts").replace("c++", "cpp"))
    .filter((word) => word !== "")
  for (const word of words)
    if (word !== "ts" && !KERNELS.includes(word as Kernel))
      throw new Error(`"${word}" is not a language for kernels; expected any of ts, ${KERNELS.join(", ")}`)
  return KERNELS.filter((kernel) => words.includes(kernel))
}

/** @throws Error for what npm would not take */
function checkName(name: string): void {
  if (!/^(@[a-z0-9~-][a-z0-9._~-]*\/)?[a-z0-9~-][a-z0-9._~-]*$/.test(name) || name.length > 214)
    throw new Error(`"${name}" is not a valid npm package name; a valid one looks like @me/ops or my-ops`)
}

/** Writes a package into a folder, which must be empty or absent. @throws Error with the reason */
export function createPlugin(name: string, folder: string, kernels: readonly Kernel[]): void {
  checkName(name)
  if (existsSync(folder) && readdirSync(folder).length > 0)
    throw new Error(`${folder} already exists and is not empty`)
  const { version } = JSON.parse(readFileSync(packageFile("package.json"), "utf8")) as { version: string }
  const tools = JSON.parse(readFileSync(packageFile("template/tools.json"), "utf8")) as Record<string, string>
  const read = (path: string): string => readFileSync(packageFile(`template/${path}`), "utf8")
  for (const [path, text] of pluginFiles({ name, kernels, version, tools }, read)) {
    const target = join(folder, path)
    mkdirSync(dirname(target), { recursive: true })
    writeFileSync(target, text)
  }
}

/** Runs the command; gives its exit status. */
export async function main(words: readonly string[]): Promise<number> {
  try {
    const { values, positionals } = parseArgs({
      args: [...words],
      allowPositionals: true,
      options: { kernels: { type: "string" }, help: { type: "boolean" } },
    })
    let [name, folder, ...more] = positionals
    let list = values.kernels
    if (values.help || more.length > 0 || (!name && !process.stdin.isTTY)) {
      console.error(USAGE)
      return values.help ? 0 : 2
    }
    if (!name) {
      const ask = createInterface({ input: process.stdin, output: process.stdout })
      name = (await ask.question("Package name (such as @me/ops): ")).trim()
      list ??= await ask.question(`Kernels (any of ts, ${KERNELS.join(", ")}; cpp,metal by default): `)
      ask.close()
    }
    const kernels = kernelsOf(list?.trim() || "cpp,metal")
    folder ??= name.slice(name.lastIndexOf("/") + 1)
    createPlugin(name, folder, kernels)
    console.log(
      `${name} is in ${folder}. Next:\n\n  cd ${folder}\n  npm install\n  npm test\n\nREADME.md says the rest.`,
    )
    return 0
  } catch (error) {
    console.error((error as Error).message)
    return 1
  }
}
