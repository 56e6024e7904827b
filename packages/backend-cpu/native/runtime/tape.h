// The executor of tapes: one an isolate. It holds the isolate's slots, scalar programs and plans, runs
// records, and keeps what failed. Not thread-safe; memory, pool and registry below it are.
#ifndef LAZULI_RUNTIME_TAPE_H
#define LAZULI_RUNTIME_TAPE_H

#include <memory>
#include <string>
#include <vector>

#include "runtime/context.h"
#include "runtime/map.h"
#include "runtime/memory.h"
#include "runtime/paged_table.h"
#include "runtime/plan.h"
#include "runtime/record.h"

namespace lazuli {

// The version of PROTOCOL.md, which src/native.ts states too. Raise both with any change to what words mean, a
// kernel's parameters included.
inline constexpr int kProtocol = 1;

struct Slot {
  BufferRef buffer;
  bool poisoned = false;
};

struct Failure {
  int64_t word;  // where the record starts
  std::string message;
};

class Tape {
 public:
  // Runs the records and returns how many failed.
  size_t run(const int64_t* words, size_t count);

  const std::vector<Failure>& failures() const { return failures_; }
  std::vector<uint32_t> take_poisoned() { return std::exchange(poisoned_, {}); }

  PagedTable<Slot>& slots() { return slots_; }
  // Gives the slot a new buffer. False, with the reason, when there is none.
  bool allocate(uint64_t slot, int64_t bytes, std::string* error);

  uint32_t add_program(const int64_t* words, size_t count);
  bool release_program(uint32_t id);
  uint32_t add_plan(const int64_t* words, size_t count, int n_in, int n_out, int64_t arena_bytes);
  bool release_plan(uint32_t id);

  const std::vector<std::shared_ptr<Program>>& programs() const { return programs_; }
  const std::vector<std::shared_ptr<Plan>>& plans() const { return plans_; }

 private:
  enum class Outcome { done, skipped, failed };
  Outcome record(const int64_t* record, const int64_t* end);
  Outcome run_kernel(const int64_t* next, const int64_t* end);
  Outcome run_map(const int64_t* next, const int64_t* end);
  Outcome run_plan(const int64_t* next, const int64_t* end);
  // The record of a common MAP (all operands contiguous and of one shape, or single elements), without the
  // detour over lz_operand: this is what an op on a small array costs. False, having done nothing, for every
  // other record.
  bool run_dense_map(const int64_t* next, const int64_t* end, Program& program, int n_in, int n_out);
  // Decodes operands into operands_ and finds their memory. Outputs are noted in outputs_ even when it fails.
  Outcome operands(const int64_t*& next, const int64_t* end, int n_in, int n_out);
  Outcome fail(std::string message);
  void poison_outputs();

  PagedTable<Slot> slots_;
  Context context_;
  MapJob job_;
  std::vector<lz_operand> operands_ = std::vector<lz_operand>(64);
  std::vector<int64_t> strides_;
  std::vector<uint32_t> outputs_;
  std::vector<char*> addresses_;
  std::string message_;
  std::vector<Failure> failures_;
  std::vector<uint32_t> poisoned_;
  std::vector<std::shared_ptr<Program>> programs_;
  std::vector<std::shared_ptr<Plan>> plans_;
};

}  // namespace lazuli

#endif
