// Where the recorded names of golden vectors are looked up: every package that has some.

import { compile } from "@lazuli/compile"
import type { Spaces } from "@lazuli/conformance"
import * as core from "@lazuli/core"
import * as nn from "@lazuli/nn"
import * as optimizers from "@lazuli/nn/optimizers"

export const goldenSpaces: Spaces = { core, nn, optimizers, compile }
