// CommonJS: one program, one core, whether a package is required or imported.
const assert = require("node:assert/strict")
const { mx } = require("lazuli")
const core = require("@lazuli/core")
const { axpby } = require("@lazuli/ext-axpby")

assert.equal(core.Array, mx.Array)
assert.deepEqual(axpby(mx.array([1, 2]), mx.array([10, 20]), 3, 0.5).tolist(), [8, 16])
import("@lazuli/core").then((imported) => assert.equal(imported.Array, core.Array))
