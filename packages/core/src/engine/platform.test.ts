import { afterEach, expect, test, vi } from "vitest"
import { binaryCure } from "./platform"

afterEach(() => {
  vi.restoreAllMocks()
})

test.runIf(process.platform === "linux")(
  "the cure for a missing binary names glibc where it is not there",
  () => {
    const report = vi.spyOn(process.report, "getReport")
    report.mockReturnValue({ header: {} })
    expect(binaryCure()).toContain("need glibc, which this system lacks")
    report.mockReturnValue({ header: { glibcVersionRuntime: "2.36" } })
    expect(binaryCure()).toContain("--omit=optional")
  },
)
