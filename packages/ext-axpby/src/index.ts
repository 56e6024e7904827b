/**
 * A sample of a third-party primitive. Importing it registers the primitive and brings its kernels; README.md walks through the files.
 */
import "./kernels"

export { type AxpbyFactors, axpby } from "./axpby"
