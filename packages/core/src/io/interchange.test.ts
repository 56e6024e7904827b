/**
 * Files of ours in NumPy's hands, and NumPy's in ours. Runs where python3 with NumPy is installed.
 */
import { execFileSync } from "node:child_process"
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterAll, describe, expect, test } from "vitest"
import * as mx from "../index"

const python = (code: string): string =>
  execFileSync("python3", ["-c", code], { cwd: folder, encoding: "utf8" })
const folder = mkdtempSync(join(tmpdir(), "numpy-"))
afterAll(() => rmSync(folder, { recursive: true }))
const hasNumpy = (() => {
  try {
    execFileSync("python3", ["-c", "import numpy"], { stdio: "ignore" })
    return true
  } catch {
    return false
  }
})()

const codes = ["?", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8", "c8"]

describe.skipIf(!hasNumpy)("NumPy", () => {
  test("reads what we write", () => {
    const named = {
      f: mx.arange(6).reshape([2, 3]).T,
      h: mx.array([1.5, -2], mx.float16),
      z: mx.array([mx.complex(1, -2)]),
      big: mx.array([2n ** 63n], mx.uint64),
      none: mx.zeros([0, 2]),
      flag: mx.array(true),
    }
    mx.save(join(folder, "a.npy"), named.f)
    mx.savez(join(folder, "s.npz"), named)
    mx.savezCompressed(join(folder, "c.npz"), named)
    const out = python(`
import numpy as np
print(np.load("a.npy").tolist())
for name in ("s.npz", "c.npz"):
    d = np.load(name)
    print([(k, str(d[k].dtype), d[k].shape, d[k].tolist()) for k in d.files])
import zipfile
print(zipfile.ZipFile("s.npz").testzip(), zipfile.ZipFile("c.npz").testzip())
`).split("\n")
    const all =
      "[('f', 'int32', (3, 2), [[0, 3], [1, 4], [2, 5]]), ('h', 'float16', (2,), [1.5, -2.0]), ('z', 'complex64', (1,), [(1-2j)]), ('big', 'uint64', (1,), [9223372036854775808]), ('none', 'float32', (0, 2), []), ('flag', 'bool', (), True)]"
    expect(out).toEqual(["[[0, 3], [1, 4], [2, 5]]", all, all, "None None", ""])
  })

  test("writes what we read: dtypes, byte orders, Fortran order, versions, streams", () => {
    python(`
import numpy as np, io
codes = ${JSON.stringify(codes)}
arrays = {c.replace("?", "b1"): np.arange(6).reshape(2, 3).astype(c) for c in codes}
np.savez("n.npz", **arrays)
np.savez_compressed("nc.npz", **arrays)
np.savez("big.npz", **{k: v.astype(v.dtype.newbyteorder(">")) for k, v in arrays.items()})
np.savez("fortran.npz", **{k: np.asfortranarray(v) for k, v in arrays.items()})
class Pipe(io.RawIOBase):
    def __init__(self, f): self.f = f
    def writable(self): return True
    def write(self, b): return self.f.write(b)
with open("stream.npz", "wb") as f: np.savez(Pipe(f), **arrays)
for v in ((1, 0), (2, 0), (3, 0)):
    with open("v%d.npy" % v[0], "wb") as f: np.lib.format.write_array(f, arrays["f4"], version=v)
np.save("object.npy", np.array([{}, None], dtype=object), allow_pickle=True)
np.save("record.npy", np.zeros(2, dtype=[("a", "f4")]))
np.save("text.npy", np.array(["ab"]))
`)
    for (const name of ["n", "nc", "big", "fortran", "stream"]) {
      const got = mx.load(join(folder, `${name}.npz`) as "x.npz")
      expect(Object.keys(got)).toEqual(codes.map((c) => c.replace("?", "b1")))
      for (const a of Object.values(got)) {
        expect(a.shape).toEqual([2, 3])
        const want = mx.arange(6).reshape([2, 3]).astype(a.dtype)
        expect(mx.arrayEqual(a, want).item()).toBe(true)
      }
    }
    for (const v of [1, 2, 3])
      expect((mx.load(join(folder, `v${v}.npy`)) as mx.Array).tolist()).toEqual([
        [0, 1, 2],
        [3, 4, 5],
      ])
    const load = (name: string) => () => mx.load(join(folder, name))
    expect(load("object.npy")).toThrow(/pickled Python objects/)
    expect(load("record.npy")).toThrow(/records/)
    expect(load("text.npy")).toThrow(mx.FormatError)
  })
})
