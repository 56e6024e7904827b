/**
 * The wish for the same bits at every run. On GPUs float sums whose order the hardware decides are not: where this is asked for, backends
 * take kernels and algorithms that add in an order of their own, which are slower. Kernels that were remembered before stay as they are.
 */
export const determinism = {
  /** Of work that is encoded from now on. */
  isAsked: false,
}
