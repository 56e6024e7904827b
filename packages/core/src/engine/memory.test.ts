/** The parts of the engine's memory, each alone: weak references by number, groups of small storages, free bytes under a limit. */
import { describe, expect, test } from "vitest"
import { backendFor, registerBackend } from "../graph/backend"
import { currentStream } from "../graph/device"
import { float32 } from "../graph/dtype"
import { Mark, Node } from "../graph/graph"
import { NO_PARAMS } from "../graph/params"
import { type Memory, Storage, type Tracker } from "../graph/storage"
import "../index"
import { type Collection, MemoryLimit } from "./memory-limit"
import { TinyStorages } from "./tiny-storages"
import { WeakReferences } from "./weak-references"

const reference = backendFor(currentStream().device)

describe("weak references", () => {
  /** A tracker whose objects die when they are told to. */
  function mortal() {
    const objects = new Map<number, object>()
    const dead = new Set<object>()
    const tracker: Tracker = {
      track: (list, count, ids) => {
        for (let i = 0; i < count; i++) objects.set(ids[i], list[i])
      },
      untrack: (id) => void objects.delete(id),
      isAlive: (id) => !dead.has(objects.get(id) as object),
      poll: () => {
        const ids = [...objects].filter(([, object]) => dead.has(object)).map(([id]) => id)
        for (const id of ids) objects.delete(id)
        return ids
      },
      collect() {},
    }
    return { objects, dead, references: new WeakReferences(tracker) }
  }
  const resource = () => ({ dropped: 0, drop() {} })

  test("hand over what died objects had, once", () => {
    const { dead, references } = mortal()
    const [object, other] = [{}, {}]
    const [mine, theirs] = [resource(), resource()]
    references.add(object, mine)
    references.add(other, theirs)
    expect(references.track()).toBe(2)
    dead.add(object)
    const taken: unknown[] = []
    references.poll(false, (subject) => taken.push(subject))
    references.poll(true, (subject) => taken.push(subject))
    expect(taken).toEqual([mine])
    expect(references.some((subject) => subject === theirs)).toBe(true)
  })

  test("use numbers again, and drop what is given up early", () => {
    const { objects, dead, references } = mortal()
    const first = references.trackOne({}, resource())
    references.drop(first)
    expect(objects.size).toBe(0)
    const object = {}
    expect(references.trackOne(object, resource())).toBe(first)
    const successor = resource()
    references.move(first, successor)
    dead.add(object)
    const taken: unknown[] = []
    references.poll(false, (subject) => taken.push(subject))
    expect(taken).toEqual([successor])
  })

  test("know that the collector ran by itself", () => {
    const { objects, dead, references } = mortal()
    expect(references.wasCollected()).toBe(false)
    references.poll(false, () => {})
    expect(references.wasCollected()).toBe(false)
    for (const canary of objects.values()) dead.add(canary)
    expect(references.wasCollected()).toBe(true)
    references.poll(false, () => {})
    expect(references.wasCollected()).toBe(false)
  })

  test("tell when many have become old", () => {
    const { references } = mortal()
    const hold: object[] = []
    for (let i = 0; i < 300; i++) hold.push({})
    for (const object of hold) references.trackOne(object, resource())
    expect(references.areManyOld()).toBe(true)
    references.noteLiving()
    expect(references.areManyOld()).toBe(false)
  })
})

test("small storages go in groups, which are used again", () => {
  const tiny = new TinyStorages()
  const nodeOf = (): Node => {
    const node = new Node([1], float32, null, [], NO_PARAMS, currentStream(), Mark.None)
    node.storage = new Storage(reference.memory, 0, 4, new ArrayBuffer(4))
    return node
  }
  const nodes = Array.from({ length: 32 }, nodeOf)
  const { group, anchor } = tiny
  expect(nodes.map((node) => tiny.add(node))).toEqual([...Array(31).fill(false), true])
  expect(nodes.every((node) => node.anchor === anchor)).toBe(true)
  tiny.renew()
  expect(tiny.group).not.toBe(group)
  expect(tiny.anchor).not.toBe(anchor)
  expect(nodes.every(({ storage }) => storage?.refs === 1)).toBe(true)
  group.drop()
  expect(nodes.every(({ storage }) => storage?.refs === 0)).toBe(true)
  tiny.renew()
  expect(tiny.group).toBe(group)
})

describe("a memory limit", () => {
  const state = { active: 0, drained: 0, looks: 0, limit: 1000 }
  const stats = () => {
    state.looks++
    return { active: state.active, peak: 0, cache: 0, buffers: 0, limit: state.limit }
  }
  const memory: Memory = { ...reference.memory, name: "counted", stats }
  registerBackend({
    ...reference,
    name: "counted",
    priority: reference.priority - 1,
    memory,
    queue: { ...reference.queue, drain: () => state.drained++ },
  })
  const limited = (active: number): MemoryLimit => {
    Object.assign(state, { active, drained: 0, looks: 0, limit: 1000 })
    const limit = new MemoryLimit()
    limit.home = memory
    return limit
  }
  const reserve = (limit: MemoryLimit, bytes: number, findDead: ((c: Collection) => void) | null = null) => {
    const needed = new Map([[memory, bytes]])
    limit.reserve("eval", needed, () => needed, findDead)
  }

  test("is looked at once, and then known for as many bytes as were free", () => {
    const limit = limited(400)
    expect(limit.admits(10)).toBe(true)
    reserve(limit, 100)
    expect(limit.admits(600)).toBe(true)
    limit.note(memory, 500)
    expect(limit.admits(100)).toBe(true)
    expect(state.looks).toBe(1)
    expect(limit.admits(101)).toBe(false)
    expect(state.looks).toBe(2)
    expect(state.drained).toBe(0)
    state.limit = 300
    expect(limit.admits(1)).toBe(true)
    limit.forget()
    expect(limit.admits(1)).toBe(false)
  })

  test("is asked of a memory that tells free bytes alone", () => {
    const limit = new MemoryLimit()
    const told = { ...memory, free: () => 300 }
    limit.home = told
    const needed = new Map([[told, 200]])
    limit.reserve("eval", needed, () => needed, null)
    expect(limit.admits(300)).toBe(true)
    expect(limit.admits(301)).toBe(false)
  })

  test("counts what was allocated since work was waited for as well as what is in use", () => {
    const limit = limited(400)
    limit.note(memory, 500)
    expect(() => reserve(limit, 300)).not.toThrow()
    // Without the wait only 100 bytes were certainly free.
    expect(state.drained).toBe(1)
  })

  test("has dead arrays looked for as far as it takes, and refuses what then does not fit", () => {
    const looks: Collection[] = []
    const limit = limited(900)
    reserve(limit, 200, (collection) => {
      looks.push(collection)
      if (collection === "all") state.active = 100
    })
    expect(looks).toEqual(["young", "all"])
    state.active = 900
    limit.forget()
    expect(() => reserve(limit, 200, (collection) => looks.push(collection))).toThrow(
      "[eval] out of memory: needs 200 bytes more with 900 active, limit 1000",
    )
    expect(looks).toEqual(["young", "all", "young", "all", "all"])
  })

  test("below what is in use admits what needs nothing", () => {
    const limit = limited(2000)
    expect(() => reserve(limit, 0)).not.toThrow()
    expect(() => reserve(limit, 1)).toThrow("needs 1 bytes more")
  })

  test("is not known ahead where other memory is used besides", () => {
    const limit = limited(0)
    reserve(limit, 1)
    expect(limit.admits(1)).toBe(true)
    limit.note(reference.memory, 1)
    expect(limit.admits(1)).toBe(false)
  })
})
