/**
 * Wrong calls of public functions: a right call with some of its arguments exchanged for what does not belong there. It is refused by an
 * error of ours that names the function that was called, or taken; nothing else.
 */
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { inspect } from "node:util"
import fc from "fast-check"
import { mx, nn } from "lazuli"
import { type Call, copied, exampleCalls, usersErrors } from "./example-calls"
import { Finding, type Fuzzer, internalText } from "./fuzzer"
import { wrongValues } from "./wrong-values"

/** A change of an argument, or of a part of one: which, how, and to what. Every number counts modulo the choices there are. */
type Change = readonly [position: number, way: number, what: number]

interface Wrong {
  readonly call: number
  readonly changes: readonly Change[]
}

/** These wait for another process, or are made by engines alone. */
const LEFT_OUT = /^(new mx\.Array|mx\.(metal\.startCapture|setDebug|receive)|new mx\.\w*Error)$/
const calls = (await exampleCalls()).filter(({ name }) => !LEFT_OUT.test(name))
const folder = mkdtempSync(join(tmpdir(), "lazuli-fuzz-calls-"))
process.chdir(folder)
process.on("exit", () => rmSync(folder, { recursive: true, force: true }))

/** Changes one argument, one part of one, or how many there are. */
function change(args: unknown[], [position, way, what]: Change): void {
  const wrong = wrongValues[what % wrongValues.length]()
  const at = args.length === 0 ? 0 : position % (args.length + 1)
  const old = args[at]
  const inner =
    way % 4 === 0 &&
    typeof old === "object" &&
    old !== null &&
    !Object.isFrozen(old) &&
    // A namespace, which is one thing.
    !(Symbol.toStringTag in old) &&
    !(old instanceof mx.Array)
  if (inner && Array.isArray(old)) old[what % (old.length + 1)] = wrong
  else if (inner && Object.getPrototypeOf(old) === Object.prototype) {
    const keys = [...Object.keys(old), "unknown"]
    ;(old as Record<string, unknown>)[keys[what % keys.length]] = wrong
  } else if (way % 16 === 1) args.splice(at, 1)
  else if (way % 16 === 2) args.splice(at, 0, wrong)
  else if (way % 16 === 3 && args.length > 1) args.reverse()
  else args[at] = wrong
}

const limits = { memory: mx.setMemoryLimit(2 ** 40), options: mx.getPrintoptions() }
mx.setMemoryLimit(limits.memory)

/** Puts back what a call may have set. */
function restore(): void {
  mx.setDefaultDevice(mx.cpu)
  mx.setMemoryLimit(limits.memory)
  mx.setPrintoptions(limits.options as never)
  mx.enableCompile()
}

/** Small results are computed: what was taken must have a value. */
const MOST = 1e5
async function use(result: unknown): Promise<void> {
  const value = await result
  const list = Array.isArray(value) ? value.slice(0, 4) : [value]
  for (const each of list) if (each instanceof mx.Array && each.size < MOST) mx.eval(each)
}

function judge(call: Call, args: readonly unknown[], error: unknown, when: string): string {
  const handsDtype = args.some(
    (arg) => typeof arg === "function" && (arg instanceof mx.Dtype || (arg as unknown) === mx.Dtype),
  )
  const definedName =
    call.name === "mx.definePrimitive" ? (args[0] as { name?: unknown } | null)?.name : undefined
  // A file that is not there: programs ask such errors for their code.
  if (error instanceof Error && "syscall" in error) return "refused by the system"
  if (!(error instanceof mx.LazuliError)) {
    const { name = typeof error, message = String(error) } = (error ?? {}) as Error
    // JavaScript calls a class handed over as a function so.
    if (/^Class constructors? .*without 'new'$/.test(message)) return "the user's own error"
    throw new Finding(`${when}raw ${name}`, `${call.name}: ${message}`, error)
  }
  // A rule of the user's, and a dtype handed over as a function.
  if (
    error.op.startsWith("customFunction.") ||
    (handsDtype && (error.op === "array" || error.op === "Dtype"))
  )
    return "the user's own error"
  // A layer that is part of the called one knows best; a primitive is known by its name.
  if ((call.name.startsWith("nn.") && error.op in nn) || error.op === definedName) return "refused by a part"
  if (when !== "" && error instanceof mx.DeviceError) return "too large"
  const internal = internalText(error.message)
  if (internal)
    throw new Finding(`${when}internal text`, `${call.name}: ${internal}: ${error.message}`, error)
  if (when === "" && !call.names.has(error.op))
    throw new Finding("names another function", `${call.name}: ${error.message}`, error)
  return "refused"
}

function showOf({ call: index, changes }: Wrong): string {
  const { name, args: right } = calls[index % calls.length]
  const args = right.map(copied)
  for (const each of changes) change(args, each)
  return `${name}(${args.map((arg) => inspect(arg, { depth: 2, breakLength: Infinity }).slice(0, 300)).join(", ")})`
}

export const wrongCalls: Fuzzer<Wrong> = {
  cases: fc
    .record({
      call: fc.nat(0xffff),
      changes: fc.array(fc.tuple(fc.nat(15), fc.nat(15), fc.nat(0xffff)), { minLength: 1, maxLength: 3 }),
    })
    .map((drawn) => Object.assign(drawn, { [fc.toStringMethod]: () => showOf(drawn) })),
  async attempt({ call: index, changes }) {
    const call = calls[index % calls.length]
    const args = call.args.map(copied)
    for (const each of changes) change(args, each)
    let when = ""
    try {
      const result = call.callee()(args)
      when = "when computed: "
      await use(result)
      return "taken"
    } catch (error) {
      if (typeof error === "object" && error !== null && usersErrors.has(error)) return "the user's own error"
      return judge(call, args, error, when)
    } finally {
      if (/set|able|reset|clear/i.test(call.name)) restore()
    }
  },
}
