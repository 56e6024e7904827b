/**
 * Functions that make kernels in a platform's language. Core knows their options; the platform's backend makes the kernels.
 */
import { operation } from "../graph/args"
import { DeviceError } from "../graph/errors"

/** The function `op` with these options, in order, and how the backend of `platform`, in the package `module`, comes to serve it. */
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
