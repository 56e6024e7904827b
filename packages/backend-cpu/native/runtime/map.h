// Runs a scalar program over operands: decides from their layouts how, then works through blocks, on several
// threads where that pays.
#ifndef LAZULI_RUNTIME_MAP_H
#define LAZULI_RUNTIME_MAP_H

#include <lazuli/kernel.h>

#include <string>

#include "runtime/patches.h"
#include "runtime/program.h"

namespace lazuli {

// The preparation that a MAP record's layouts ask for; addresses are not in it, so a plan prepares it once.
struct MapJob {
  // Below this many elements no instruction is worth a second thread.
  static constexpr int64_t kSmall = 1024;

  const Program* program = nullptr;
  const Variant* variant = nullptr;
  int64_t n = 0;
  // Every operand is contiguous or a single element; otherwise the patches say how the index space is walked.
  bool dense = true;
  Patches patches;

  // Fills the job, or returns false with a reason. Memory is kept between calls.
  bool prepare(Program& p, const lz_operand* in, int n_in, const lz_operand* out, int n_out,
               std::string* error);
  // For operands that are all contiguous and of one shape, or single elements where `uniform` has their bit.
  void prepare_dense(Program& p, uint64_t uniform, int64_t count) {
    program = &p;
    variant = &p.variant(uniform);
    n = count;
    dense = true;
  }
  // `addresses`: the inputs', then the outputs'.
  void run(char* const* addresses) const;
};

}  // namespace lazuli

#endif
