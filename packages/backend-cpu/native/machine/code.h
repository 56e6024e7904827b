// A scalar program as machine code: one loop for contiguous and single operands. Whether there is any, and
// when it pays to make it, is decided here too. Without asmjit, or on another processor than x86-64, there is
// none.
#ifndef LAZULI_MACHINE_CODE_H
#define LAZULI_MACHINE_CODE_H

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "machine/lower.h"

namespace lazuli {

// "avx512", "avx2", or "off" with the reason: not built in, no AVX2, LAZULI_JIT=0, or the system refuses
// executable memory.
const char* machine_code_state();
// Programs that have been made machine code, each for one choice of single-element inputs.
int64_t machine_code_count();

class MachineCode {
 public:
  // Null where the program is not covered or there is no machine code here.
  static std::unique_ptr<MachineCode> make(const std::vector<int32_t>& inputs,
                                           const std::vector<machine::Scalar>& code,
                                           const std::vector<int>& results, const uint8_t* log_sizes,
                                           uint64_t single);
  ~MachineCode();

  // Makes ready for runs that are `streaming`, which means that outputs are too large to stay in the caches.
  // For one thread, while no other runs this.
  void prepare_streaming();
  // Scratch memory for one call of run, which starts on a 64-byte boundary.
  size_t scratch_bytes() const;
  // Elements 0 … n-1, whose addresses are given; an output may be exactly an input. From several threads at
  // once, each with its own scratch memory.
  void run(void* const* operands, int64_t n, char* scratch, bool streaming) const;
  // The same for rows of n elements; `steps` are the bytes from row to row.
  void run(void* const* operands, const int64_t* steps, int64_t rows, int64_t n, char* scratch) const;

 private:
  struct Parts;
  explicit MachineCode(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

// Decides when: machine code costs as much as interpreting some hundred thousand elements.
class MachineChoice {
 public:
  // Counts a run over n elements of a program of so many steps, and tells whether to compile now. With
  // LAZULI_JIT=1 that is at once.
  bool due(int64_t n, size_t steps, bool streaming);
  std::unique_ptr<MachineCode> code;

 private:
  double work_ = 0;
  bool decided_ = false;
};

}  // namespace lazuli

#endif
