// Written by `lazuli-kernel build`; edits are lost.
import { existsSync } from "node:fs"
import { fileURLToPath } from "node:url"

/** The package that brings the kernels. */
export const PACKAGE = "@lazuli/ext-axpby"

// src/ and dist/ are both one below the package.
const suffix = process.platform === "win32" ? "dll" : "so"
const native = `../build/ext-axpby-${process.platform}-${process.arch}.${suffix}`
const path = fileURLToPath(new URL(native, import.meta.url))

/** The library of native kernels; null on a platform that nobody built it for. */
export const nativeLibrary: string | null = existsSync(path) ? path : null

/** The Metal kernels. */
export const metalLibrary: URL = new URL("../native/axpby.metal", import.meta.url)

/** The CUDA kernels. */
export const cudaLibrary: URL = new URL("../native/axpby.cu", import.meta.url)
