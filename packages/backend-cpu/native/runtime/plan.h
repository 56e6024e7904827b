// Plans: recorded command buffers with bindings for buffers, checked and decoded once. A replay adds
// addresses to offsets and runs.
#ifndef LAZULI_RUNTIME_PLAN_H
#define LAZULI_RUNTIME_PLAN_H

#include <lazuli/kernel.h>

#include <memory>
#include <string>
#include <vector>

#include "runtime/context.h"
#include "runtime/map.h"
#include "runtime/pieces.h"

namespace lazuli {

class Plan;

// Where records find what they name; null for what is not there.
class Names {
 public:
  virtual std::shared_ptr<Program> program_at(uint32_t id) = 0;
  virtual std::shared_ptr<Plan> plan_at(uint32_t id) = 0;

 protected:
  ~Names() = default;
};

class Plan {
 public:
  // Throws std::invalid_argument when the words do not hold a plan. Programs and nested plans are kept alive.
  Plan(const int64_t* words, size_t count, int n_in, int n_out, int64_t arena_bytes, Names& names);

  int n_in() const { return n_in_; }
  int n_out() const { return n_out_; }

  // The reason why an input or output cannot start at `offset` of a buffer of that capacity; empty when
  // it can.
  std::string check(int binding, int64_t offset, size_t capacity) const;

  // `addresses` has one checked address an input and output, and room for one more.
  bool run(char** addresses, Context& context, std::string* error) const;

 private:
  static constexpr size_t kNone = ~size_t(0);
  struct Step {
    lz_kernel kernel = nullptr;
    std::shared_ptr<Program> program;
    std::shared_ptr<Plan> plan;
    MapJob job;
    // Of a kernel: the next step, where that is an epilogue of the result.
    std::unique_ptr<MapPieces> pieces;
    // Of a kernel: the step before, where that makes pieces of the first operand.
    std::unique_ptr<MapPieces> prologue;
    bool is_epilogue = false, is_prologue = false;
    // Of a kernel: the steps from this one on that call it with the same first operand and parameters.
    int alike = 1;
    // The next step that reads weights once, where this one leaves other threads without work until then.
    size_t ahead = kNone;
    uint32_t first = 0;  // into operands_, or into pairs_
    int n_in = 0, n_out = 0;
    const int64_t* params = nullptr;
    int64_t n_params = 0;
  };
  struct Location {
    uint32_t binding;
    int64_t offset;
    int64_t low, high;  // what an operand reaches, in bytes from its address
  };
  static constexpr uint32_t kUnbound = ~0u;

  void add_step(const int64_t* record, const int64_t* end, int64_t*& strides, Names& names);
  // Gives kernels the work that makes their operands or finishes their results.
  void join();
  // True if, with the operands' addresses, the work after a kernel reads its result as it lies, and writes
  // nothing that the kernel reads.
  bool joins(const Step& kernel, const Step& work) const;
  // True if a kernel may write its result while the work that makes its operand still reads.
  bool is_prologue_of(const Step& work, const Step& kernel) const;
  bool is_alike(const Step& a, const Step& b) const;
  // True if, with the operands' addresses, steps that are alike write nothing that another one reads or
  // writes.
  bool are_apart(size_t first, int count) const;
  static constexpr int kMostAlike = 8;
  // Runs a kernel on steps that are alike; false, with the reason, when it failed. `taken` tells if it ran
  // all.
  bool run_alike(size_t first, Context& context, bool* taken, std::string* error) const;
  // Finds the steps to expect.
  void look_ahead();
  // Tells threads without work what a step reads.
  void expect(size_t step) const;
  bool overlap(size_t a, size_t b) const;
  void need(uint32_t binding, int64_t low, int64_t high, int64_t alignment);

  int n_in_, n_out_, depth_ = 1;
  int64_t arena_bytes_;
  std::vector<int64_t> words_, strides_;  // shapes, parameters and immediates point into words_
  std::vector<Step> steps_;
  // A replay writes addresses into these; a plan belongs to one command buffer and never contains itself.
  mutable std::vector<lz_operand> operands_;
  std::vector<Location> locations_;  // of operands_
  std::vector<Location> pairs_;      // of nested plans
  mutable std::vector<char*> nested_;
  std::vector<int64_t> needed_, alignment_;  // by binding
};

}  // namespace lazuli

#endif
