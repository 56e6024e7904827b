/** Runs epilogue.test.ts with the loops for SSE4. */
import { vi } from "vitest"
import "./epilogue.test"

vi.hoisted(() => {
  process.env.LAZULI_SIMD = "sse4"
})
