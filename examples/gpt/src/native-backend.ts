/**
 * The refusal to train on the reference backend, where the first step alone takes longer than the whole demo.
 */
import { mx } from "lazuli"
import { UserError } from "./user-error"

/** @throws UserError where no package brought native kernels for the device that the program uses */
export function requireNativeBackend(): void {
  if (mx.deviceInfo().deviceName !== "reference") return
  const name = `${process.platform}-${process.arch}`
  throw new UserError(
    `the native addon of @lazuli/backend-cpu is missing, and training without it is far too slow. In a clone of the repository run ` +
      `\`npm run build\`; elsewhere install @lazuli/backend-cpu-${name} (npm does so unless --omit=optional is given)`,
  )
}
