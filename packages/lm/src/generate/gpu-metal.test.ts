/** Language models on Metal, by its host runtime. */
import "@lazuli/backend-cpu"
import "@lazuli/backend-metal"
import { gpuTests } from "../../test/gpu"

gpuTests()
