/**
 * The kernels. Whichever backend is imported takes its own; without any the primitive runs by its decomposition.
 */
import "./native-kernels"
import "./metal-kernels"
import "./cuda-kernels"
