/* A graph may launch a kernel before the end of the one before it: this waits for that end, and lets the next
 * one be launched. The runtime finds by its name that a kernel may be launched so. */
inline void await_earlier() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
