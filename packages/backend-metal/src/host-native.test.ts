/** An addon of another protocol is refused when it is loaded. */
import { expect, test } from "vitest"
import { checkProtocol, hostNative } from "./host-native"

test("the addon of this build speaks this package's protocol, another one is refused", () => {
  expect(() => checkProtocol(hostNative(), "x.node")).not.toThrow()
  expect(() => checkProtocol({ protocol: () => 99 }, "new.node")).toThrowErrorMatchingInlineSnapshot(
    `[DeviceError: [metal] new.node was built for protocol 99 of the host runtime, but this package writes protocol 3. Build it again: npm run build in a clone of the repository]`,
  )
  expect(() => checkProtocol({}, "old.node")).toThrow("old.node was built for protocol 0")
})
