// The executor of command buffers: one a queue. It holds the queue's scalar programs and plans, runs records,
// and keeps what failed. Not thread-safe; memory, pool and registry below it are, and so is what queues
// share.
#ifndef LAZULI_RUNTIME_EXECUTOR_H
#define LAZULI_RUNTIME_EXECUTOR_H

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/context.h"
#include "runtime/map.h"
#include "runtime/memory.h"
#include "runtime/plan.h"
#include "runtime/record.h"
#include "runtime/store.h"

namespace lazuli {

// The version of PROTOCOL.md, which src/native.ts states too. Raise both with any change to what words mean,
// a kernel's parameters included.
inline constexpr int kProtocol = 9;

struct Failure {
  int64_t word;  // where the record starts
  std::string message;
};

class Executor final : public Names {
 public:
  explicit Executor(Store& store) : store_(store), buffers_(store.buffers) {}

  // Runs the records, and returns how many failed. `stop`, when it becomes true, ends that between two
  // records; `wait` is how a WAIT record waits.
  size_t run(const int64_t* words, size_t count);
  const std::atomic<bool>* stop = nullptr;
  std::function<bool(uint32_t queue, uint64_t ticket)> wait;

  // Of the last run.
  const std::vector<Failure>& failures() const { return failures_; }
  // The buffers without a value since the last call, each once.
  std::vector<uint32_t> take_poisoned() { return std::exchange(poisoned_, {}); }
  bool has_poisoned() const { return !poisoned_.empty(); }

  // Gives the id a new buffer. False, with the reason, when there is none.
  bool allocate(uint64_t id, int64_t bytes, std::string* error);

  // A program or plan in the store is made when a record first names it, or given.
  void give_program(uint32_t id, std::shared_ptr<Program> made);
  void give_plan(uint32_t id, std::shared_ptr<Plan> made);
  void forget_program(uint32_t id) {
    if (id < programs_.size()) programs_[id].reset();
  }
  void forget_plan(uint32_t id) {
    if (id < plans_.size()) plans_[id].reset();
  }
  std::shared_ptr<Program> program_at(uint32_t id) override;
  std::shared_ptr<Plan> plan_at(uint32_t id) override;

 private:
  enum class Outcome { done, skipped, failed };
  Outcome record(const int64_t* record, const int64_t* end);
  Outcome run_kernel(const int64_t* next, const int64_t* end);
  Outcome run_map(const int64_t* next, const int64_t* end);
  Outcome run_plan(const int64_t* next, const int64_t* end);
  Outcome run_dense(const int64_t* next, const int64_t* end);
  // Decodes operands into operands_ and finds their memory. Outputs are noted in outputs_ even when it fails.
  Outcome operands(const int64_t*& next, const int64_t* end, int n_in, int n_out);
  Outcome fail(std::string message);
  Outcome skip(const BufferEntry* input);
  void poison_outputs(uint32_t cause);
  void heal_outputs();
  // The program of a MAP or DENSE record; null where there is none.
  Program* find_program(uint32_t id) {
    if (id < programs_.size() && programs_[id]) [[likely]]
      return programs_[id].get();
    return program_at(id).get();
  }

  Store& store_;
  PagedTable<BufferEntry>& buffers_;
  Context context_;
  MapJob job_;
  std::vector<lz_operand> operands_ = std::vector<lz_operand>(64);
  std::vector<int64_t> strides_;
  std::vector<uint32_t> outputs_;
  std::vector<char*> addresses_;
  bool ailing_ = false;  // an output was without a value before
  uint32_t cause_ = 0;   // of a record that is skipped
  std::string message_;
  std::vector<Failure> failures_;
  std::vector<uint32_t> poisoned_;
  std::vector<std::shared_ptr<Program>> programs_;
  std::vector<std::shared_ptr<Plan>> plans_;
};

}  // namespace lazuli

#endif
