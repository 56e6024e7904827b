let asked = 0

/**
 * The wish for the same bits at every run. On GPUs float sums whose order the hardware decides are not: where this is asked for, backends
 * take kernels and algorithms that add in an order of their own, which are slower. Kernels that were remembered before stay as they are.
 */
export const determinism = {
  /** Of work that is encoded from now on. */
  get isAsked(): boolean {
    return asked > 0
  },
  /** Asks until the function it returns is called; work of others meanwhile has the same bits too. */
  ask(): () => void {
    asked++
    return () => void asked--
  },
}
