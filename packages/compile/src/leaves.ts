/**
 * The leaves of captured trees, looked at in every call of a compiled function. As long as a tree holds the same containers with the same
 * keys and constants, a look reads its arrays and nothing else.
 */
import { Array, checkLevel, currentTree, isList } from "@lazuli/core/engine"
import { type Contents, sameConstant } from "./constants"
import { classOf, constantOf, type Holder, isContainer } from "./state"

/** Kinds of values that a walk meets at a key, and the end of a container. */
const [ARRAY, CONSTANT, CONTENTS, FIRST, AGAIN, END] = [0, 1, 2, 3, 4, 5]
type Kind = number

/** True if a set, a map or a date has contents. Every module has a set. */
function hasContents(value: unknown, contents: Contents): boolean {
  if (!(value instanceof Set)) return sameConstant(constantOf(value), contents)
  if (value.size !== contents.elements.length) return false
  let i = 0
  for (const element of value) if (!sameConstant(element, contents.elements[i++])) return false
  return true
}

/** The contents of a tree, for comparing quickly; in the same order as those of `arrayLeaves`, `rootClass` and `constantsOf`. */
export class Leaves {
  readonly holders: Holder[] = []
  readonly keys: (string | number)[] = []
  readonly arrays: Array[] = []
  /** Keys and values, in turn. */
  readonly constants: unknown[] = []
  /** The containers of the walk before, from `met` on, and of this one: as long as it meets the same, none comes twice. */
  private readonly containers: object[] = []
  private met = 0
  /** Those of this walk, once it has met others. */
  private seen: Set<object> | null = null
  /** Everything that the last walk met, in order. Of an array only its key is noted, so that it does not live longer. */
  private readonly kinds: Kind[] = []
  private readonly names: (string | number)[] = []
  private readonly values: unknown[] = []
  /** Of containers those that their owners have now; of sets, maps and dates the contents. */
  private readonly current: unknown[] = []
  private readonly classes: unknown[] = []
  private at = 0
  private fitting: object | null = null

  /** Looks at what the tree holds now. */
  read(tree: unknown): void {
    this.holders.length = 0
    this.keys.length = 0
    this.arrays.length = 0
    this.constants.length = 0
    this.kinds.length = 0
    this.names.length = 0
    this.values.length = 0
    this.current.length = 0
    this.classes.length = 0
    this.fitting = null
    this.met = 0
    this.seen = null
    try {
      if (!isContainer(tree)) return
      const type = classOf(tree)
      if (type !== Object) this.constants.push("", type)
      this.walk(tree, 0, "")
    } catch (error) {
      this.forget()
      throw error
    }
  }

  /** Remembers that what was read fits a program. */
  fit(program: object): void {
    this.fitting = program
  }

  /** True if the tree still holds what fitted a program, but for its arrays, which are read. */
  stillFits(program: object, tree: unknown): boolean {
    if (this.fitting !== program) return false
    this.arrays.length = 0
    this.at = 1
    const { kinds, values, classes } = this
    try {
      if (kinds.length === 0) return true
      const root = tree as object
      if (values[0] === root && classOf(root) === classes[0] && this.isUnchanged(root, 0)) return true
    } catch (error) {
      this.forget()
      throw error
    }
    this.fitting = null
    return false
  }

  /** Lets go of the arrays: they must not live longer than their owners let them. */
  forget(): void {
    this.arrays.length = 0
    this.constants.length = 0
  }

  /** Goes as the function `walk` of state.ts does, without its paths. */
  private walk(tree: object, level: number, name: string | number): void {
    const value = currentTree(tree)
    const isFirst = this.isFirst(value)
    this.note(isFirst ? FIRST : AGAIN, name, tree, value, classOf(tree))
    if (!isFirst) return
    checkLevel(level, "compile")
    const holder = value as Holder
    if (isList(value)) for (let i = 0; i < value.length; i++) this.take(holder, i, level)
    else {
      const keys = Object.keys(value)
      for (let i = 0; i < keys.length; i++) this.take(holder, keys[i], level)
    }
    this.note(END, "", null, null)
  }

  private note(kind: Kind, name: string | number, value: unknown, current: unknown, type?: unknown): void {
    this.kinds.push(kind)
    this.names.push(name)
    this.values.push(value)
    this.current.push(current)
    this.classes.push(type)
  }

  /** True if this walk has not met a container before. */
  private isFirst(container: object): boolean {
    const { containers } = this
    if (this.seen === null) {
      if (containers[this.met] === container) {
        this.met++
        return true
      }
      containers.length = this.met
      this.seen = new Set(containers)
    }
    if (this.seen.has(container)) return false
    this.seen.add(container)
    containers.push(container)
    return true
  }

  private take(holder: Holder, key: string | number, level: number): void {
    const child = holder[key]
    if (child instanceof Array) {
      this.note(ARRAY, key, null, null)
      this.holders.push(holder)
      this.keys.push(key)
      this.arrays.push(child)
    } else if (isContainer(child)) {
      const type = classOf(child)
      if (type !== Object) this.constants.push(key, type)
      this.walk(child, level + 1, key)
    } else {
      const constant = constantOf(child)
      this.note(constant === child ? CONSTANT : CONTENTS, key, child, constant)
      this.constants.push(key, constant)
    }
  }

  /** True if a container, which the walk met at `from`, holds what it held then. */
  private isUnchanged(tree: object, from: number): boolean {
    const holder = currentTree(tree) as Holder
    if (holder !== this.current[from]) return false
    if (isList(holder)) {
      const list = holder as unknown as readonly unknown[]
      for (let i = 0; i < list.length; i++) if (!this.isSame(i, list[i])) return false
    } else {
      const keys = Object.keys(holder)
      for (let i = 0; i < keys.length; i++) if (!this.isSame(keys[i], holder[keys[i]])) return false
    }
    return this.kinds[this.at++] === END
  }

  private isSame(key: string | number, child: unknown): boolean {
    const at = this.at++
    if (this.names[at] !== key) return false
    const kind = this.kinds[at]
    if (kind === ARRAY) {
      if (!(child instanceof Array)) return false
      this.arrays.push(child)
      return true
    }
    if (!Object.is(child, this.values[at])) return false
    switch (kind) {
      case CONSTANT:
        return true
      case CONTENTS:
        return hasContents(child, this.current[at] as Contents)
      case FIRST:
        return classOf(child as object) === this.classes[at] && this.isUnchanged(child as object, at)
      case AGAIN:
        return (
          classOf(child as object) === this.classes[at] && currentTree(child as object) === this.current[at]
        )
      default:
        return false
    }
  }
}
