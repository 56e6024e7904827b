// `npm run bench:peers`: PyTorch and NumPy from Debian, the JavaScript peers from npm. What cannot be installed leaves its column empty.
import { spawnSync } from "node:child_process"
import { dirname } from "node:path"
import { fileURLToPath } from "node:url"

const here = dirname(fileURLToPath(import.meta.url))
const run = (command, ...args) => {
  console.log(`$ ${command} ${args.join(" ")}`)
  return spawnSync(command, args, { cwd: here, stdio: "inherit" }).status === 0
}
// None of them needs its install script; ONNX Runtime's would fetch code for graphics cards, as llama.cpp's optional packages are.
const results = [
  run("npm", "install", "--ignore-scripts", "--omit=optional", "--no-audit", "--no-fund"),
  run("apt-get", "install", "-y", "--no-install-recommends", "python3-torch", "python3-numpy"),
]
process.exitCode = results.every(Boolean) ? 0 : 1
