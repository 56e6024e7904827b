/**
 * The runtime on Metal.framework, on the fake Metal of native/fake: memory, kernels, order and failures, as its own code meets them on a
 * Mac.
 */
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { setFlagsFromString } from "node:v8"
import { runInNewContext } from "node:vm"
import { DeviceError } from "@lazuli/core/engine"
import { CommandStream, type FunctionConstants } from "@lazuli/gpu-kernels"
import { afterEach, beforeEach, describe, expect, it } from "vitest"
import { AppleOnFake, fake } from "../test/fake-metal"
import type { MetalBuffer, MetalPipeline } from "./runtime"

let runtime: AppleOnFake
setFlagsFromString("--expose-gc")
const collect = runInNewContext("gc") as () => void

/** Living objects by class, without the device and the manager of captures, which are Metal's own. */
function living(): Record<string, number> {
  const { MTLDevice: _, MTLCaptureManager: __, ...others } = fake.living()
  return others
}
/** Objects that a GPU which never answered may still use. */
let lost: Record<string, number> = {}
beforeEach(() => {
  runtime = new AppleOnFake()
})
afterEach(async () => {
  fake.failAt(0)
  runtime.close()
  // Views of JavaScript keep their memory, and the fake's GPU a command buffer for a moment after its end is told.
  for (let i = 0; i < 400 && JSON.stringify(living()) !== JSON.stringify(lost); i++) {
    collect()
    await new Promise((done) => setTimeout(done, i < 10 ? 0 : 5))
  }
  expect([living(), fake.openPools()]).toEqual([lost, 0])
})

const AT = "uint i [[thread_position_in_grid]]"
const ADD = `kernel void add(device const float* x, device float* y, constant float& n, ${AT}) { y[i] = x[i] + n; }`
const f32 = (...values: number[]): Float32Array => Float32Array.from(values)
const adder = (): MetalPipeline => runtime.newPipeline(runtime.newLibrary(ADD), "add")

function add(stream: CommandStream, pipeline: MetalPipeline, x: MetalBuffer, y: MetalBuffer, n = 1): void {
  stream.setPipeline(pipeline)
  stream.setBuffer(0, x)
  stream.setBuffer(1, y)
  stream.setBytes(2, f32(n))
  stream.dispatchThreads([4, 1, 1], [32, 1, 1])
}
function valuesOf(buffer: MetalBuffer): number[] {
  const out = new Float32Array(4)
  runtime.read(buffer, 0, out)
  return [...out]
}
/** Runs a kernel of one thread that writes a number. */
function numberFrom(source: string, name: string, constants: FunctionConstants = {}): number {
  const stream = new CommandStream()
  const out = runtime.newBuffer(16)
  stream.setPipeline(runtime.newPipeline(runtime.newLibrary(source), name, constants))
  stream.setBuffer(0, out)
  stream.dispatchThreads([1, 1, 1], [1, 1, 1])
  expect(runtime.wait(runtime.commit(stream))).toEqual([])
  return valuesOf(out)[0]
}
const refused = (body: () => unknown): string => {
  try {
    body()
  } catch (error) {
    expect(error).toBeInstanceOf(DeviceError)
    return (error as Error).message
  }
  return "nothing"
}

describe("the device", () => {
  it("tells of itself", () => {
    expect(runtime.info).toMatchObject({ name: "Fake Metal", simdWidth: 32, maxThreadgroupMemory: 32768 })
    expect(runtime.deviceFacts()).toEqual({ deviceName: "Fake Metal", architecture: "fakegpu_g00" })
    expect(runtime.isAvailable).toBe(true)
  })
  it("may not be there", () => {
    fake.failAt(1, 0)
    expect(runtime.isAvailable).toBe(false)
    fake.failAt(1, 0)
    expect(refused(() => runtime.info)).toContain("no GPU can be used: Metal shows no GPU")
    // Programs without a window may have no default device.
    fake.failAt(1, 1)
    expect(runtime.isAvailable).toBe(true)
    expect(fake.calls().failed).toBe("MTLCreateSystemDefaultDevice")
  })
})

describe("memory", () => {
  it("is zeroed, and read and written in parts", () => {
    const buffer = runtime.newBuffer(16)
    runtime.write(buffer, 4, f32(1, 2))
    expect(valuesOf(buffer)).toEqual([0, 1, 2, 0])
    expect(refused(() => runtime.read(buffer, 12, f32(0, 0)))).toContain("outside the buffer")
    runtime.releaseBuffer(buffer)
    expect(refused(() => runtime.read(buffer, 0, f32(0)))).toBe("[metal] there is no such buffer")
  })
  it("is the host's too", () => {
    const buffer = runtime.newBuffer(16)
    new Float32Array(runtime.contents(buffer))[1] = 7
    expect(valuesOf(buffer)).toEqual([0, 7, 0, 0])
  })
  it("of others is taken where it begins at a page", () => {
    const owner = runtime.newBuffer(1 << 16)
    const page = (runtime.address(owner) + 16383n) & ~16383n
    const wrapped = runtime.wrapAddress(page, 20000) as MetalBuffer
    runtime.write(wrapped, 16, f32(5))
    const out = new Float32Array(1)
    runtime.read(owner, Number(page - runtime.address(owner)) + 16, out)
    expect(out[0]).toBe(5)
    expect(runtime.wrapAddress(page + 64n, 20000)).toBeNull()
    expect(refused(() => runtime.wrapBuffer(new ArrayBuffer(8)))).toContain(
      "does not begin at a page boundary",
    )
  })
  it("stays while the GPU uses it", () => {
    const [x, y] = [runtime.newBuffer(16), runtime.newBuffer(16)]
    const stream = new CommandStream()
    add(stream, adder(), x, y)
    const submission = runtime.commit(stream)
    runtime.releaseBuffer(x)
    runtime.releaseBuffer(y)
    expect(runtime.wait(submission)).toEqual([])
    runtime.releaseBuffer(runtime.newBuffer(4))
    expect(living().MTLBuffer).toBeUndefined()
  })
  it("waits for the work before it is written again", () => {
    const [x, y] = [runtime.newBuffer(16), runtime.newBuffer(16)]
    runtime.write(x, 0, f32(1, 1, 1, 1))
    const stream = new CommandStream()
    add(stream, adder(), x, y)
    runtime.commit(stream)
    runtime.write(x, 0, f32(9, 9, 9, 9))
    expect(valuesOf(y)).toEqual([2, 2, 2, 2])
  })
  it("stays in physical memory up to a bound", () => {
    const before = runtime.newBuffer(1 << 16)
    runtime.setWiredLimit(1 << 17)
    const after = runtime.newBuffer(1 << 16)
    const beyond = runtime.newBuffer(1 << 16)
    expect(fake.messages()["MTLResidencySet addAllocation:"]).toBe(2)
    for (const buffer of [before, after, beyond]) runtime.releaseBuffer(buffer)
    expect(fake.messages()["MTLResidencySet removeAllocation:"]).toBe(2)
    expect(refused(() => runtime.setWiredLimit(2 ** 45))).toContain("working set")
  })
})

describe("kernels", () => {
  it("are compiled once, with values for their constants", () => {
    const source = `constant int n [[function_constant(0)]]; constant float f [[function_constant(1)]];
      constant bool b [[function_constant(2)]]; constant ushort s [[function_constant(3)]];
      kernel void k(device float* y) { y[0] = b ? n + f : s; }`
    fake.forgetMessages()
    expect(numberFrom(source, "k", { 0: -3, 1: 0.5, 2: true, 3: 1 })).toBe(-2.5)
    expect(numberFrom(source, "k", { 0: -3, 1: 0.5, 2: false, 3: 65535 })).toBe(65535)
    expect(numberFrom(source, "k", { 0: -3, 1: 0.5, 2: false, 3: 65535 })).toBe(65535)
    expect(fake.messages()["MTLDevice newLibraryWithSource:options:error:"]).toBe(1)
    expect(fake.messages()["MTLDevice newComputePipelineStateWithFunction:error:"]).toBe(2)
  })
  it("that do not compile are refused with their lines", () => {
    const source = "kernel void k(device float* y) {\n  y[0] = nothing;\n}\n"
    expect(refused(() => runtime.newLibrary(source, { file: "mine.metal" }))).toMatch(
      /\[metal\] the source of a kernel does not compile:\nmine\.metal:2: .*nothing[^\n]*\n {4}y\[0\] = nothing;/,
    )
    expect(refused(() => runtime.newPipeline(runtime.newLibrary(ADD), "sub"))).toBe(
      '[metal] the library has no kernel "sub"; it has add',
    )
  })
  it("come from libraries that were compiled ahead", () => {
    const folder = mkdtempSync(join(tmpdir(), "lazuli-apple-"))
    const path = join(folder, "k.metallib")
    writeFileSync(path, "fake metallib\nkernel void k(device float* y) { y[0] = 4; }\n")
    const library = runtime.newLibrary("// the source it was made of", { compiled: path })
    expect(library.kernels).toEqual(["k"])
    expect(refused(() => runtime.newLibrary("", { compiled: `${path}.not` }))).toContain("cannot be loaded")
    rmSync(folder, { recursive: true })
  })
  it("have Metal's older switch of arithmetic before macOS 15", () => {
    fake.pretend("old system")
    fake.forgetMessages()
    runtime.newLibrary(`${ADD}\n// older`)
    expect(fake.messages()["MTLCompileOptions setFastMathEnabled:"]).toBe(1)
  })
})

describe("order", () => {
  it("is kept by barriers, fences and events, with several command buffers under way", () => {
    const pipeline = adder()
    const buffers = [runtime.newBuffer(16), runtime.newBuffer(16)]
    const submissions = Array.from({ length: 50 }, (_, k) => {
      const stream = new CommandStream()
      add(stream, pipeline, buffers[k % 2], buffers[(k + 1) % 2])
      stream.barrier()
      add(stream, pipeline, buffers[(k + 1) % 2], buffers[k % 2])
      stream.barrier()
      add(stream, pipeline, buffers[k % 2], buffers[(k + 1) % 2], 0)
      return runtime.commit(stream)
    })
    for (const submission of submissions) expect(runtime.wait(submission)).toEqual([])
    expect(valuesOf(buffers[0])).toEqual([100, 100, 100, 100])
  })
  it("a barrier that is missing is noticed", () => {
    const [x, y] = [runtime.newBuffer(16), runtime.newBuffer(16)]
    const stream = new CommandStream()
    add(stream, adder(), x, y)
    add(stream, adder(), y, x)
    fake.expect()
    runtime.wait(runtime.commit(stream))
    expect(fake.noted()[0]).toContain("with no barrier between")
  })
  it("holds between queues by events, and what was set before holds after them", () => {
    const other = runtime.newQueue()
    const pipeline = adder()
    const [x, y, z] = [runtime.newBuffer(16), runtime.newBuffer(16), runtime.newBuffer(16)]
    const event = runtime.newEvent()
    const [first, second] = [new CommandStream(), new CommandStream()]
    second.setPipeline(pipeline)
    second.setBuffer(0, y)
    second.setBuffer(1, z)
    second.setBytes(2, f32(10))
    second.wait(event, 3)
    second.dispatchThreads([4, 1, 1], [4, 1, 1])
    const later = runtime.commit(second, other)
    add(first, pipeline, x, y)
    first.signal(event, 3)
    const sooner = runtime.commit(first)
    expect([runtime.wait(later), runtime.wait(sooner)]).toEqual([[], []])
    expect([valuesOf(z)[0], runtime.eventValue(event)]).toEqual([11, 3])
  })
  it("an event that nothing signals is an error, and not for those who come later", () => {
    const [x, y] = [runtime.newBuffer(16), runtime.newBuffer(16)]
    const event = runtime.newEvent()
    const [stuck, next] = [new CommandStream(), new CommandStream()]
    stuck.wait(event, 2)
    add(stuck, adder(), x, y)
    // Behind it in its own queue, which is of no use.
    add(next, adder(), y, x)
    next.signal(event, 5)
    const [a, b] = [runtime.commit(stuck), runtime.commit(next)]
    expect(runtime.wait(a)).toEqual([{ word: -1, message: "waits for an event that nothing has signalled" }])
    expect(runtime.wait(b)).toEqual([])
  })
})

describe("captures", () => {
  it("go into a file, one at a time", () => {
    const folder = mkdtempSync(join(tmpdir(), "lazuli-apple-"))
    const path = join(folder, "trace.gputrace")
    runtime.startCapture(path)
    expect(refused(() => runtime.startCapture(path))).toContain("a capture is already under way")
    runtime.stopCapture()
    expect(existsSync(path)).toBe(true)
    expect(refused(() => runtime.stopCapture())).toContain("no capture is under way")
    expect(refused(() => runtime.startCapture(join(folder, "no/such/moves")))).toContain("cannot be written")
    rmSync(folder, { recursive: true })
  })
})

describe("failures", () => {
  const run = (code: number): string => {
    const [x, y] = [runtime.newBuffer(16), runtime.newBuffer(16)]
    const stream = new CommandStream()
    add(stream, adder(), x, y)
    const calls = ((): number => {
      fake.failAt(0)
      runtime.wait(runtime.commit(stream))
      return fake.calls().calls
    })()
    // Of a submission, commit is the last call that may fail.
    fake.failAt(calls, code)
    return runtime
      .wait(runtime.commit(stream))
      .map(({ message }) => message)
      .join()
  }
  it("of the GPU name their reason", () => {
    expect(run(8)).toBe("the GPU has no memory for its work: the fake GPU was told to fail")
    expect(run(11)).toBe("the GPU failed: the fake GPU was told to fail")
    expect(fake.calls().failed).toBe("commit")
  })
  it("of a kernel are those of its command buffer", () => {
    const stream = new CommandStream()
    const out = runtime.newBuffer(16)
    const source = "kernel void k(device int* y) { int n = y[1]; y[0] = 7 / n; }"
    stream.setPipeline(runtime.newPipeline(runtime.newLibrary(source), "k"))
    stream.setBuffer(0, out)
    stream.dispatchThreads([1, 1, 1], [1, 1, 1])
    expect(runtime.wait(runtime.commit(stream))[0].message).toContain("divides an integer by zero")
  })

  /** All that a program may ask for. */
  function everything(): number {
    const library = runtime.newLibrary(
      `constant int n [[function_constant(0)]]; kernel void k(device const float* x, device float* y, ${AT}) { y[i] = x[i] + n; }`,
    )
    const pipeline = runtime.newPipeline(library, "k", { 0: 2 })
    const [x, y] = [runtime.newBuffer(16), runtime.newBuffer(16)]
    runtime.setWiredLimit(1 << 20)
    const event = runtime.newEvent()
    const folder = mkdtempSync(join(tmpdir(), "lazuli-apple-"))
    try {
      runtime.startCapture(join(folder, "trace"))
      const stream = new CommandStream()
      stream.setPipeline(pipeline)
      stream.setBuffer(0, x)
      stream.setBuffer(1, y)
      stream.dispatchThreads([4, 1, 1], [4, 1, 1])
      stream.signal(event, 1)
      const failed = runtime.wait(runtime.commit(stream))
      if (failed.length > 0) throw new DeviceError("k", failed[0].message)
      return valuesOf(y)[0]
    } finally {
      try {
        runtime.stopCapture()
      } catch (error) {
        expect(error).toBeInstanceOf(DeviceError)
      }
      rmSync(folder, { recursive: true })
    }
  }
  it("at every single call are errors, and leave nothing behind", () => {
    fake.failAt(0)
    expect(everything()).toBe(2)
    const { calls } = fake.calls()
    expect(calls).toBeGreaterThan(25)
    const said = new Map<string, string>()
    for (let call = 1; call <= calls; call++) {
      runtime.close()
      fake.failAt(call)
      const message = refused(() => expect(everything()).toBe(2))
      const { failed } = fake.calls()
      said.set(failed, message.replace(/^\[\w+\] /, ""))
      fake.failAt(0)
      runtime.close()
      expect([call, failed, living()]).toEqual([call, failed, {}])
      expect([call, failed, everything()]).toEqual([call, failed, 2])
    }
    expect(Object.fromEntries(said)).toMatchInlineSnapshot(`
      {
        "MTLCreateSystemDefaultDevice": "no GPU can be used: Metal shows no GPU. Metal needs a Mac with Apple silicon and macOS 14 or newer. Use mx.cpu where there is none",
        "commandBuffer": "Metal gives no command buffer",
        "commit": "the GPU failed: the fake GPU was told to fail",
        "computeCommandEncoder": "Metal gives no encoder",
        "newBufferWithLength:": "no memory for a buffer of 16 bytes",
        "newCommandQueue": "no GPU can be used: Metal gives no command queue. Metal needs a Mac with Apple silicon and macOS 14 or newer. Use mx.cpu where there is none",
        "newComputePipelineStateWithFunction:": "the source of a kernel does not compile:
      the kernel k cannot be made",
        "newFence": "no GPU can be used: Metal gives no command queue. Metal needs a Mac with Apple silicon and macOS 14 or newer. Use mx.cpu where there is none",
        "newFunctionWithName:": "the library has no kernel "k"",
        "newFunctionWithName:constantValues:": "the source of a kernel does not compile:
      the function cannot be made",
        "newLibraryWithSource:": "the source of a kernel does not compile:
      the compiler is not there",
        "newResidencySetWithDescriptor:": "Metal gives no residency set: no residency set today",
        "newSharedEvent": "Metal gives no event",
        "objc_getClass": "nothing",
        "startCaptureWithDescriptor:": "Metal does not start the capture: captures are off",
        "supportsDestination:": "Metal cannot capture into a file; METAL_CAPTURE_ENABLED=1 must be set before the process starts",
      }
    `)
  }, 60_000)
})

it("is balanced after 100,000 dispatches, every message one that Metal has", () => {
  const pipeline = adder()
  fake.forgetMessages()
  const buffers = Array.from({ length: 3 }, () => runtime.newBuffer(16))
  const stream = new CommandStream()
  for (let k = 0; k < 2500; k++) {
    stream.clear()
    for (let i = 0; i < 40; i++) {
      if (i > 0) stream.barrier()
      add(stream, pipeline, buffers[i % 3], buffers[(i + 1) % 3])
    }
    runtime.commit(stream)
  }
  runtime.wait({ id: Number.MAX_SAFE_INTEGER })
  expect(fake.messages()["MTLComputeCommandEncoder dispatchThreads:threadsPerThreadgroup:"]).toBe(100_000)
})

it("gives up on a GPU that does not answer", () => {
  process.env.LAZULI_METAL_TIME_LIMIT = "0.2"
  const stuck = new AppleOnFake()
  try {
    const [x, y] = [stuck.newBuffer(16), stuck.newBuffer(16)]
    const stream = new CommandStream()
    const pipeline = stuck.newPipeline(stuck.newLibrary(ADD), "add")
    add(stream, pipeline, x, y)
    fake.failAt(3, -1)
    const submission = stuck.commit(stream)
    expect(fake.calls().failed).toBe("commit")
    expect(stuck.wait(submission)[0].message).toContain("did not end its work within 0.2 seconds")
    expect(stuck.wait(stuck.commit(stream))[0].message).toContain("did not end its work")
  } finally {
    delete process.env.LAZULI_METAL_TIME_LIMIT
    stuck.close()
  }
  lost = living()
  expect(lost).toMatchObject({ MTLCommandBuffer: 1, MTLBuffer: 2 })
})
