/** Results that no memory holds: a plan that the native backend refuses says which operation asks for it. */
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { mx } from "lazuli"
import { expect, test } from "vitest"

test("a plan for a result that is too large is refused with the operation's name", () => {
  const folder = mkdtempSync(join(tmpdir(), "lazuli-"))
  try {
    const path = join(folder, "large.lazuli")
    mx.exportFunction(path, () => mx.zeros([1e9, 1e9]), [])
    const large = mx.importFunction<[], mx.Array>(path)
    let error: unknown
    try {
      mx.eval(large())
    } catch (caught) {
      error = caught
    }
    expect(error).toBeInstanceOf(mx.DeviceError)
    expect((error as Error).message).toMatch(
      /^\[broadcast\w*\] the cpu backend cannot .* of shape \(1000000000, 1000000000\) takes 4000000000000000000 bytes/,
    )
  } finally {
    rmSync(folder, { recursive: true })
  }
})
