/**
 * The files of a new package: those of the template, which is ext-axpby, under another name and without the kernels that nobody asked for;
 * and the few that a package of its own needs besides.
 */
import { loadCode } from "@lazuli/kernel-build/load-code"

/** The languages in which a package can have kernels; without any its primitive runs by its semantics. */
export const KERNELS = ["cpp", "metal", "cuda"] as const
export type Kernel = (typeof KERNELS)[number]

/** The choice of a new package. */
export interface PluginChoice {
  /** Its npm name. */
  readonly name: string
  readonly kernels: readonly Kernel[]
  /** The version of the @lazuli packages. */
  readonly version: string
  /** Development tools, by exact versions. */
  readonly tools: Readonly<Record<string, string>>
}

const SAMPLE = "@lazuli/ext-axpby"
/** By kernel: its file in src/, those in native/. */
const PARTS: Readonly<Record<Kernel, { code: string; native: readonly string[] }>> = {
  cpp: { code: "native-kernels", native: ["axpby.cc", "params.h"] },
  metal: { code: "metal-kernels", native: ["axpby.metal"] },
  cuda: { code: "cuda-kernels", native: ["axpby.cu"] },
}

/** The files by their paths. `template` reads one of the template. */
export function pluginFiles(choice: PluginChoice, template: (path: string) => string): Map<string, string> {
  const { name, kernels } = choice
  const files = new Map<string, string>()
  const take = (path: string, edit = (text: string): string => text): void => {
    files.set(path, edit(template(path)).replaceAll(SAMPLE, name))
  }
  take("src/axpby.ts")
  take("src/index.ts", (text) => (kernels.length > 0 ? text : without(text, /^import "\.\/kernels"\n\n/m)))
  take("src/conformance.test.ts", (text) => testFor(kernels, text))
  if (kernels.includes("cpp")) take("src/params.test.ts")
  for (const kernel of kernels) {
    const { code, native } = PARTS[kernel]
    take(`src/${code}.ts`)
    for (const file of native) take(`native/${file}`)
  }
  take("benchmark.mjs")
  take("LICENSE", (text) =>
    text.replace(/\d{4} The Lazuli authors/, `${new Date().getFullYear()} The authors of ${name}`),
  )
  if (kernels.length > 0) {
    const having = (kernel: Kernel): string[] =>
      kernels.includes(kernel)
        ? PARTS[kernel].native.filter((f) => !f.endsWith(".h")).map((f) => `native/${f}`)
        : []
    files.set(
      "src/kernels.ts",
      `/**\n * The kernels. Whichever backend is imported takes its own; without any the primitive runs by its decomposition.\n */\n${kernels.map((kernel) => `import "./${PARTS[kernel].code}"\n`).join("")}`,
    )
    const stem = name.slice(name.lastIndexOf("/") + 1)
    files.set(
      "src/libraries.ts",
      loadCode({ name, stem, cpp: having("cpp"), metal: having("metal"), cuda: having("cuda") }),
    )
  }
  for (const [path, text] of Object.entries(ownFiles(choice))) files.set(path, text)
  return files
}

function without(text: string, part: RegExp): string {
  if (!part.test(text)) throw new Error(`the template has no ${part.source}`)
  return text.replace(part, "")
}

/** The template's test without what concerns other kernels. */
function testFor(kernels: readonly Kernel[], text: string): string {
  const has = (kernel: Kernel): boolean => kernels.includes(kernel)
  let result = text
  if (!has("cpp")) {
    result = without(result, /^test\("the native kernels are built"[\s\S]*?^\}\)\n\n/m)
    result = without(result, /^import \{ nativeLibrary \}.*\n/m)
    result = result.replace("const withKernel = backends\n", "const withKernel = backends.slice(1)\n")
  }
  if (!has("metal")) {
    result = without(result, /^import \{ canCompileKernels \}.*\n/m)
    result = without(result, /^if \(canCompileKernels\(\)\).*\n/m)
  }
  if (!has("cuda")) {
    result = without(result, /^import "@lazuli\/backend-cuda"\n/m)
    result = without(result, /^if \(mx\.cuda\.isAvailable\(\)\).*\n/m)
  }
  return result
}

function manifest({ name, kernels, version, tools }: PluginChoice): object {
  const some = kernels.length > 0
  const lazuli = [
    "lazuli",
    "@lazuli/core",
    "@lazuli/backend-cpu",
    "@lazuli/conformance",
    ...(some ? ["@lazuli/kernel-build"] : []),
    ...(kernels.includes("metal") ? ["@lazuli/backend-metal"] : []),
    ...(kernels.includes("cuda") ? ["@lazuli/backend-cuda"] : []),
  ]
  const devDependencies = { ...Object.fromEntries(lazuli.map((each) => [each, version])), ...tools }
  const scripts = {
    build: "tsup",
    ...(some ? { "build:native": "lazuli-kernel build" } : {}),
    ...(kernels.includes("cpp") ? { params: "npm run build && lazuli-kernel params dist/index.js" } : {}),
    test: `${some ? "lazuli-kernel build --in-place && " : ""}tsc && vitest run`,
    bench: "npm run build && node benchmark.mjs",
    prepack: `${some ? "npm run build:native && " : ""}npm run build`,
  }
  return {
    name,
    version: "0.1.0",
    description: "alpha · x + beta · y for Lazuli",
    keywords: ["lazuli", "lazuli-plugin"],
    license: "MIT",
    type: "module",
    sideEffects: true,
    exports: {
      ".": { types: "./dist/index.d.ts", default: "./dist/index.js" },
      "./package.json": "./package.json",
    },
    files: ["dist", ...(some ? ["native"] : []), ...(kernels.includes("cpp") ? ["build/*.so"] : [])],
    engines: { node: "^20.19.0 || >=22.12.0" },
    scripts,
    // Any minor version: the plugin contract's version refuses what does not fit.
    peerDependencies: { "@lazuli/core": `${version.split(".")[0]}.x` },
    devDependencies: Object.fromEntries(Object.entries(devDependencies).sort(([a], [b]) => (a < b ? -1 : 1))),
  }
}

const WORDS: Readonly<Record<Kernel, string>> = { cpp: "C++", metal: "Metal", cuda: "CUDA" }

function readme({ name, kernels }: PluginChoice): string {
  const rows = kernels.flatMap((kernel) => [
    `| \`native/${PARTS[kernel].native[0]}\` | the kernel in ${WORDS[kernel]} |`,
    `| \`src/${PARTS[kernel].code}.ts\` | how Lazuli comes by it |`,
  ])
  return `# ${name}

\`alpha · x + beta · y\` as one operation for [Lazuli](https://www.npmjs.com/package/lazuli)${kernels.length ? `, with kernels in ${kernels.map((kernel) => WORDS[kernel]).join(", ")}` : ""}.

\`\`\`sh
npm install lazuli ${name}
\`\`\`

\`\`\`js
import { mx } from 'lazuli'
import { axpby } from '${name}'

axpby(mx.array([1, 2]), mx.array([10, 20]), 3, 0.5).tolist() // => [8, 16]
\`\`\`

## Working on it

| command | does |
|---|---|
| \`npm test\` | ${kernels.length ? "builds what changed of the kernels, " : ""}checks types, derivatives, batches, compiled calls and kernels |
| \`npm run bench\` | times it against the same in plain operations |
${kernels.length ? "| `npx lazuli-kernel build --watch` | builds the kernels again after each change |\n" : ""}${kernels.includes("cpp") ? "| `npm run params` | writes `native/params.h` after a change of `params` |\n" : ""}| \`npm publish\` | builds and publishes |

| file | is |
|---|---|
| \`src/axpby.ts\` | the function, and the primitive with its rules |
| \`src/conformance.test.ts\` | samples, on which everything is checked |
${rows.length ? `${rows.join("\n")}\n` : ""}
## An operation of your own

1. Rename \`src/axpby.ts\` and the functions in it, write your \`infer\`, semantics and rules, and change \`src/index.ts\`, the samples in
   \`src/conformance.test.ts\`, \`benchmark.mjs\`, and \`description\` in package.json.
${steps(kernels)}
Lazuli's guide "Write a plugin" does this for an operation with two outputs, an input of integers and scratch memory.
`
}

/** A numbered step for each kernel. */
function steps(kernels: readonly Kernel[]): string {
  const texts: Readonly<Record<Kernel, string>> = {
    cpp: "Rename `native/axpby.cc`, run `npm run params`, which writes the parameters of your schema to `native/params.h`, write the kernel, and put\n   the primitive's new name into the table at its end. Remove `overwrites` and `keepsLayout` from `src/native-kernels.ts` unless the kernel is\n   elementwise.",
    metal:
      "Rename `native/axpby.metal` and write the kernels. `src/metal-kernels.ts` says which of them run, with which buffers and how many threads.",
    cuda: "Rename `native/axpby.cu` and write the kernels. `src/cuda-kernels.ts` says which of them run, with which arguments and how many threads.",
  }
  return kernels.map((kernel, i) => `${i + 2}. ${texts[kernel]}\n`).join("")
}

function ownFiles(choice: PluginChoice): Record<string, string> {
  const { kernels } = choice
  return {
    "package.json": `${JSON.stringify(manifest(choice), null, 2)}\n`,
    "README.md": `${readme(choice).trimEnd()}\n`,
    ".gitignore": "node_modules/\ndist/\nbuild/\n",
    "tsconfig.json": `{
  "compilerOptions": {
    "target": "es2022",
    "lib": ["es2023", "esnext.disposable"],
    "module": "esnext",
    "moduleResolution": "bundler",
    "strict": true,
    "noEmit": true,
    "skipLibCheck": true,
    "types": ["node"]
  },
  "include": ["src"]
}
`,
    "tsup.config.ts": `export default {
  entry: ["src/index.ts"],
  format: "esm",
  clean: true,
  // tsup sets an option that TypeScript 6 warns about.
  dts: { compilerOptions: { ignoreDeprecations: "6.0" } },
}
`,
    ".github/workflows/ci.yml": `name: CI

on:
  push:
    branches: [main]
  pull_request:

permissions:
  contents: read

jobs:
  test:
    strategy:
      matrix:
        os: [ubuntu-latest${kernels.includes("cpp") ? ", ubuntu-24.04-arm, macos-latest" : ""}]
        node: [20, 22]
    runs-on: \${{ matrix.os }}
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-node@v4
        with:
          node-version: \${{ matrix.node }}
      - run: npm install
      - run: npm test
`,
  }
}
