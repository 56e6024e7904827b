/** Runs epilogue.test.ts with the loops for AVX2. */
import { vi } from "vitest"
import "./epilogue.test"

vi.hoisted(() => {
  process.env.LAZULI_SIMD = "avx2"
})
