/**
 * Compiled kernels, by source and by the form of their dispatches. Where a runtime compiles kernels together, those of a stream wait
 * until the stream is handed over.
 */
import {
  type Dispatch,
  type DispatchForm,
  type FunctionConstants,
  isLocation,
  type Kernel,
  type Wording,
} from "../dispatch"
import type { CommandStream } from "./command-stream"
import type { GpuPipeline, GpuRuntime, LibraryOptions, LibrarySource } from "./runtime"
import { dumpSource } from "./source-dump"

/** A kernel of a stream that is compiled with the others before the stream is used. */
interface Awaited extends GpuPipeline {
  readonly key: string
  readonly kernel: Kernel
  readonly form: DispatchForm | undefined
  /** Words that are to be its number. */
  readonly numbers: { readonly stream: CommandStream; readonly at: number }[]
}

const formOf = ({ arguments: args, grid, threadgroup, kernel }: Dispatch): DispatchForm => {
  const threads = threadgroup[0] * threadgroup[1] * threadgroup[2]
  return {
    inline: args.map((argument) => (isLocation(argument) ? undefined : argument.byteLength)),
    threads,
    // Kernels that somebody else wrote need not keep simdgroups together.
    whole:
      kernel.wording === undefined && threads % 32 === 0 && grid.every((n, i) => n % threadgroup[i] === 0),
  }
}

const keyOf = (kernel: Kernel, form: DispatchForm | undefined): string =>
  form ? `${kernel.key}\0${form.threads}\0${form.whole}\0${form.inline.join()}` : kernel.key

const fileOf = ({ file, name }: Kernel): string => file ?? `${name}.metal`

/** A kernel's source, as a runtime takes it. */
const sourceOf = (
  kernel: Kernel,
): { source: string; options: LibraryOptions; constants: FunctionConstants | undefined } => {
  const { constants, wording, mathMode, compiled, isNative } = kernel
  return {
    source: kernel.source(),
    options: { file: fileOf(kernel), wording, mathMode, compiled, isNative },
    constants,
  }
}

/** Chooses a kernel in a stream; one that is not compiled yet learns which word is to be its number. */
export function choose(stream: CommandStream, pipeline: GpuPipeline): void {
  const at = stream.setPipeline(pipeline)
  if (at >= 0 && "numbers" in pipeline) (pipeline as Awaited).numbers.push({ stream, at })
}

export class Pipelines {
  private readonly compiled = new Map<string, GpuPipeline>()
  /** By key: what dispatches need and is not compiled yet. */
  private readonly awaited = new Map<string, Awaited>()
  /** Of kernels that users wrote. */
  private readonly wordings = new WeakMap<GpuPipeline, Wording>()
  /** By key: kernels that the platform, which compiles nothing, has or lacks. */
  private readonly provided = new Map<string, boolean>()

  constructor(private readonly runtime: GpuRuntime) {}

  /** A dispatch's kernel, compiled once, or once for each form of its dispatches. */
  for(dispatch: Dispatch): GpuPipeline {
    return this.forForm(dispatch.kernel, this.formOf(dispatch))
  }
  forForm(kernel: Kernel, form: DispatchForm | undefined): GpuPipeline {
    const key = keyOf(kernel, form)
    const known = this.compiled.get(key) ?? this.awaited.get(key)
    if (known) return known
    // A kernel of a user may not compile, which is better said at once.
    if (!this.runtime.compileTogether || kernel.wording || kernel.compiled || kernel.isNative)
      return this.compile(key, kernel, form)
    const { name } = kernel
    const { maxThreadsPerThreadgroup: maxThreads } = this.runtime.info
    const awaited: Awaited = { id: 0, name, maxThreads, key, kernel, form, numbers: [] }
    this.awaited.set(key, awaited)
    return awaited
  }

  private formOf(dispatch: Dispatch): DispatchForm | undefined {
    return this.runtime.specializes ? formOf(dispatch) : undefined
  }

  private compile(key: string, kernel: Kernel, form: DispatchForm | undefined): GpuPipeline {
    const { name, wording, isNative } = kernel
    const { source, options, constants } = sourceOf(kernel)
    const made = this.runtime.newPipeline(this.runtime.newLibrary(source, options), name, constants, form)
    if (wording) this.wordings.set(made, wording)
    if (!isNative) dumpSource(name, source)
    this.compiled.set(key, made)
    return made
  }

  /**
   * Compiles together all that streams wait for. Commands that choose a kernel that does not compile then do nothing, and `failed` is
   * told of it.
   * @throws the error of a kernel that another stream than `own` chose: that one is a recording
   */
  compileAwaited(own: CommandStream, failed: (pipeline: GpuPipeline, error: Error) => void): void {
    const { awaited, runtime } = this
    if (awaited.size === 0) return
    const all = [...awaited.values()]
    awaited.clear()
    runtime.compileTogether?.(all.map(({ kernel }) => ({ source: kernel.source(), file: fileOf(kernel) })))
    let refused: unknown = null
    for (const pipeline of all) {
      const { key, kernel, form, numbers } = pipeline
      try {
        const { id } = this.compile(key, kernel, form)
        for (const { stream, at } of numbers) stream.words[at] = id
      } catch (error) {
        if (numbers.some(({ stream }) => stream !== own)) refused = error
        for (const { stream, at } of numbers) stream.skip(at - 1)
        failed(pipeline, error as Error)
      }
    }
    if (refused !== null) throw refused
  }

  /** Adds the source of a dispatch's kernel to `sources` unless it is compiled. */
  addMissing({ kernel }: Dispatch, sources: Map<string, LibrarySource>): void {
    const { key } = kernel
    if (!this.compiled.has(key) && !sources.has(key))
      sources.set(key, { source: kernel.source(), file: fileOf(kernel) })
  }

  /** True if the platform, which compiles nothing, has a dispatch's kernel. */
  provides(dispatch: Dispatch): boolean {
    const { kernel } = dispatch
    const form = this.formOf(dispatch)
    const key = keyOf(kernel, form)
    let known = this.provided.get(key)
    if (known === undefined) {
      known = this.runtime.provides?.({ ...sourceOf(kernel), name: kernel.name, form }) ?? true
      this.provided.set(key, known)
    }
    return known
  }

  /** A message of the device about a kernel, with the lines and buffers that its author knows. */
  located(message: string, pipeline: GpuPipeline | null): string {
    const wording = pipeline && this.wordings.get(pipeline)
    if (!wording) return message
    const location = (line: string): string => wording.location(Number(line))
    return message
      .replace(`${pipeline.name}: `, wording.namesKernels ? `the kernel ${pipeline.name} ` : "")
      .replace(/\bbuffer (\d+)/g, (text, index: string) => {
        const name = wording.buffer(pipeline.name, Number(index))
        return name === undefined ? text : `${text} (${name})`
      })
      .replace(/\blines? (\d+)(?: and (\d+))?/, (_, first: string, second?: string) =>
        second === undefined ? location(first) : `${location(first)} and ${location(second)}`,
      )
  }
}
