/**
 * Where CUDA's libraries are looked for: by their names alone, as the system's loader finds them, and in the locations where users have
 * them. `LAZULI_CUDA_PATH` names folders that come first, and `LAZULI_CUDA_WITHOUT` libraries that are not used (`nvrtc`, …).
 */
import { existsSync, readdirSync } from "node:fs"
import { homedir } from "node:os"
import { delimiter, join } from "node:path"
import { choicesFrom } from "@lazuli/core/engine"

/** Libraries that the backend opens. */
export type LibraryName = "cuda" | "nvrtc" | "cublasLt" | "cudnn" | "cufft" | "cusolver" | "nccl"

const NAMES: Record<LibraryName, readonly string[]> = {
  cuda: ["libcuda.so.1", "libcuda.so"],
  nvrtc: ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"],
  cudnn: ["libcudnn.so.9", "libcudnn.so"],
  // Of CUDA 13 these have the number 12, of CUDA 12 the number 11.
  cufft: ["libcufft.so.12", "libcufft.so.11", "libcufft.so"],
  cusolver: ["libcusolver.so.12", "libcusolver.so.11", "libcusolver.so"],
  nccl: ["libnccl.so.2", "libnccl.so"],
  cublasLt: ["libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"],
}

/** Where the driver is on machines whose loader does not know it. */
const DRIVER_FOLDERS = ["/usr/local/nvidia/lib64", "/usr/lib/wsl/lib", "/run/opengl-driver/lib"]

/** And where the system's loader looks, more or less. */
const SYSTEM_FOLDERS = [
  "/usr/lib/x86_64-linux-gnu",
  "/usr/lib/aarch64-linux-gnu",
  "/usr/lib64",
  "/usr/lib",
  "/lib64",
  "/usr/local/lib",
]

/**
 * True where a GPU is likely: the driver's device and library are there, and no setting hides them. Cheap, and opens nothing; the first use
 * says for certain.
 */
export function isLikely(): boolean {
  const { CUDA_VISIBLE_DEVICES: visible, LD_LIBRARY_PATH: own = "" } = process.env
  if (visible === "" || visible?.startsWith("-") || isHidden("cuda")) return false
  if (!["/dev/nvidiactl", "/dev/dxg"].some((path) => existsSync(path))) return false
  const folders = [...ownFolders(), ...own.split(delimiter), ...DRIVER_FOLDERS, ...SYSTEM_FOLDERS]
  return folders.some((folder) => folder !== "" && existsSync(join(folder, NAMES.cuda[0])))
}

const isHidden = (library: LibraryName): boolean =>
  choicesFrom("LAZULI_CUDA_WITHOUT", Object.keys(NAMES) as LibraryName[]).includes(library)
const ownFolders = (): string[] =>
  (process.env.LAZULI_CUDA_PATH ?? "").split(delimiter).filter((folder) => folder !== "")

const entriesOf = (folder: string): string[] => {
  try {
    return readdirSync(folder).sort().reverse()
  } catch {
    return []
  }
}

/** `lib64` of the toolkits on this machine. */
function toolkitFolders(): string[] {
  const roots = [process.env.CUDA_HOME, process.env.CUDA_PATH, "/usr/local/cuda", "/opt/cuda"]
  const versions = entriesOf("/usr/local")
    .filter((name) => name.startsWith("cuda-"))
    .map((name) => join("/usr/local", name))
  return [...roots, ...versions].flatMap((root) => (root ? [join(root, "lib64"), join(root, "lib")] : []))
}

/** `nvidia/…/lib` of the Python packages on this machine. */
function pythonFolders(): string[] {
  const roots = [
    process.env.VIRTUAL_ENV,
    process.env.CONDA_PREFIX,
    join(homedir(), ".local"),
    "/usr/local",
    "/usr",
  ]
  return roots.flatMap((root) =>
    (root ? entriesOf(join(root, "lib")) : [])
      .filter((name) => name.startsWith("python3"))
      .flatMap((python) =>
        ["site-packages", "dist-packages"].map((kind) => join(root as string, "lib", python, kind, "nvidia")),
      )
      .flatMap((nvidia) => entriesOf(nvidia).map((each) => join(nvidia, each, "lib"))),
  )
}

/** The paths to try, in order; none where the library is not to be used. */
export function candidatesFor(library: LibraryName): string[] {
  if (isHidden(library)) return []
  const names = NAMES[library]
  const folders = library === "cuda" ? DRIVER_FOLDERS : [...toolkitFolders(), ...pythonFolders()]
  const within = (folder: string): string[] =>
    names.map((name) => join(folder, name)).filter((path) => existsSync(path))
  return [...ownFolders().flatMap(within), ...names, ...[...new Set(folders)].flatMap(within)]
}

/** True if a file of a library is where it is looked for: more than likely the loader finds it too. Opens nothing. */
export function isInstalled(library: LibraryName): boolean {
  const folders = [...(process.env.LD_LIBRARY_PATH ?? "").split(delimiter), ...SYSTEM_FOLDERS]
  return candidatesFor(library).some(
    (path) => path.includes("/") || folders.some((folder) => folder !== "" && existsSync(join(folder, path))),
  )
}

/** True if a driver's device is there, or a folder was named in which there may be a driver. */
export const hasDevice = (): boolean =>
  ["/dev/nvidiactl", "/dev/dxg"].some((path) => existsSync(path)) || ownFolders().length > 0
