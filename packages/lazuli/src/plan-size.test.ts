/** Results that no memory holds: whoever is asked for one says so, by the operation's name. */
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { mx } from "lazuli"
import { expect, test } from "vitest"

function messageOf(body: () => void): string {
  try {
    body()
  } catch (error) {
    return `${(error as Error).constructor.name}: ${(error as Error).message}`
  }
  return "nothing was thrown"
}

test("a plan for a result that is too large is refused with the operation's name", () => {
  const large = mx.compile(() => mx.zeros([1e9, 1e9]))
  expect(messageOf(() => mx.eval(large()))).toMatch(
    /^DeviceError: \[broadcast\w*\] the cpu backend cannot .* of shape \(1000000000, 1000000000\) takes 4000000000000000000 bytes/,
  )
})

test("a file whose result is too large is refused when it is read", () => {
  const folder = mkdtempSync(join(tmpdir(), "lazuli-"))
  try {
    const path = join(folder, "large.lazuli")
    mx.exportFunction(path, () => mx.zeros([1e9, 1e9]), [])
    expect(messageOf(() => mx.importFunction(path))).toMatch(
      /^FormatError: \[importFunction\] .*"zeros".* makes an array of an impossible size$/,
    )
  } finally {
    rmSync(folder, { recursive: true })
  }
})
