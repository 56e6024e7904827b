/**
 * Kernels of other packages in JavaScript and WebAssembly: they run where a backend has none, on copies in the host's memory.
 */
import {
  type Application,
  type ApplicationMeta,
  ArgumentError,
  DeviceError,
  describe,
  type HostArray,
  type JsKernel,
  onKernels,
  RegistryError,
  setHostKernels,
  type WasmKernel,
} from "@lazuli/core/engine"
import { type HostData, sizeOf } from "@lazuli/core/plugin"

const { readFileSync } = process.getBuiltinModule("node:fs")

/** By primitive; with the package that brought it. */
const kernels = new Map<string, { readonly from: string; readonly kernel: JsKernel }>()

function add(from: string, given: unknown, make: (name: string, kernel: never) => JsKernel): void {
  if (typeof given !== "object" || given === null)
    throw new ArgumentError(
      from,
      `kernels must be an object keyed by primitive names, received ${describe(given)}`,
    )
  for (const [name, kernel] of Object.entries(given)) {
    const known = kernels.get(name)
    if (known)
      throw new RegistryError(from, `brings a kernel for ${name}, which already has one from ${known.from}`)
    kernels.set(name, { from, kernel: make(name, kernel as never) })
  }
}

onKernels("js", (offer) =>
  add(offer.package, offer.kernels, (name, kernel: JsKernel) => {
    if (typeof kernel?.run === "function") return kernel
    throw new ArgumentError(
      offer.package,
      `the kernel for ${name} needs run, a function, received ${describe(kernel)}`,
    )
  }),
)

onKernels("wasm", (offer) => {
  let opened: WasmExports | undefined
  const open = (): WasmExports => (opened ??= instantiate(offer.package, offer.library))
  add(offer.package, offer.kernels, (name, kernel: WasmKernel) => {
    if (typeof kernel?.launch === "function") return wasmKernel(name, kernel, open)
    throw new ArgumentError(
      offer.package,
      `the kernel for ${name} needs inputNames, outputNames and launch, received ${describe(kernel)}`,
    )
  })
})

const metaOf = (application: Application): ApplicationMeta => ({
  primitive: application.primitive.name,
  inputs: application.inputs,
  outputs: application.outputs ?? [application],
  params: application.params,
})

setHostKernels(hostKernel)

/** The kernel that takes an application; null where there is none. */
function hostKernel(application: Application): JsKernel | null {
  if (kernels.size === 0) return null
  const found = kernels.get(application.primitive.name)?.kernel
  if (!found) return null
  return !found.supports || found.supports(metaOf(application)) ? found : null
}

interface WasmExports {
  readonly memory: { readonly buffer: ArrayBuffer; grow(pages: number): void }
  readonly __heap_base?: { readonly value: number }
  readonly [name: string]: unknown
}
/** The engine's, which the types of Node do not have. */
const { WebAssembly: Wasm } = globalThis as unknown as {
  WebAssembly: {
    Module: new (bytes: Uint8Array) => object
    Instance: new (module: object) => { readonly exports: WasmExports }
  }
}

function instantiate(from: string, library: string | URL): WasmExports {
  let exports: WasmExports
  try {
    exports = new Wasm.Instance(new Wasm.Module(readFileSync(library))).exports
  } catch (cause) {
    throw new DeviceError(from, `cannot load the kernels of ${library}: ${(cause as Error).message}`, {
      cause,
    })
  }
  if (exports.memory?.buffer) return exports
  throw new DeviceError(from, `the module ${library} exports no memory`)
}

const PAGE = 65536

function wasmKernel(
  op: string,
  { inputNames, outputNames, launch }: WasmKernel,
  open: () => WasmExports,
): JsKernel {
  return {
    supports: (application) => launch(application) !== null,
    run(inputs, outputs, params) {
      const found = launch({ primitive: op, inputs, outputs, params })
      if (found === null)
        throw new ArgumentError(op, "its kernel's launch gave null for a call that it had accepted")
      const exports = open()
      const call = exports[found.call]
      if (typeof call !== "function")
        throw new ArgumentError(op, `the module exports no function "${found.call}"`)
      const addresses = new Map<string, number>()
      let end = exports.__heap_base?.value ?? 0
      const allocate = (names: readonly string[], arrays: readonly HostArray[]): void =>
        arrays.forEach((array, i) => {
          end = Math.ceil(end / 16) * 16
          addresses.set(names[i], end)
          end += bytesOf(array)
        })
      allocate(inputNames, inputs)
      allocate(outputNames, outputs)
      const missing = end - exports.memory.buffer.byteLength
      if (missing > 0) exports.memory.grow(Math.ceil(missing / PAGE))
      const view = (array: HostArray, name: string): HostData => {
        // Half types are float32 there, on their way out too.
        const Store = storeOf(array)
        return new Store(exports.memory.buffer, addresses.get(name), array.data.length) as unknown as HostData
      }
      inputs.forEach((array, i) => {
        ;(view(array, inputNames[i]) as unknown as Float32Array).set(array.data as unknown as Float32Array)
      })
      outputs.forEach((array, i) => {
        ;(view(array, outputNames[i]) as unknown as Float32Array).fill(0)
      })
      call(
        ...found.arguments.map((each) => {
          if (typeof each !== "string") return each
          const at = addresses.get(each)
          if (at === undefined)
            throw new ArgumentError(
              op,
              `there is no input or output "${each}"; there are ${[...addresses.keys()].join(", ")}`,
            )
          return at
        }),
      )
      outputs.forEach((array, i) => {
        ;(array.data as unknown as Float32Array).set(view(array, outputNames[i]) as unknown as Float32Array)
      })
    },
  }
}

const isHalf = ({ dtype }: HostArray): boolean => dtype.kind === "floating" && dtype.size === 2
const storeOf = (array: HostArray): Float32ArrayConstructor =>
  isHalf(array) ? Float32Array : (array.data.constructor as Float32ArrayConstructor)
const bytesOf = (array: HostArray): number =>
  isHalf(array) ? 4 * sizeOf(array.shape) : (array.data as unknown as Float32Array).byteLength
