/**
 * The shared part of `mx.fast.metalKernel` and `cudaKernel`. The platform's backend registers the implementation.
 */
import { operation } from "../graph/args"
import { DeviceError } from "../graph/errors"

/**
 * The function `op` with the given positional options, and the hook with which the backend of `platform` (package `module`) implements it.
 */
export function kernelFunction<Options, Kernel>(
  op: string,
  options: readonly string[],
  platform: string,
  module: string,
): { call: (args: readonly unknown[]) => Kernel; serve: (make: (options: Options) => Kernel) => void } {
  let maker: ((options: Options) => Kernel) | null = null
  const call = operation(
    op,
    options,
    (...values: unknown[]): Kernel => {
      if (maker === null)
        throw new DeviceError(op, `there is no ${platform} backend to compile a kernel`, {
          hint: `import "${module}"`,
        })
      return maker(Object.fromEntries(options.map((name, i) => [name, values[i]])) as Options)
    },
    null,
  )
  return {
    call,
    serve: (make) => {
      maker = make
    },
  }
}
