// Elementwise work piece by piece: a kernel that knows of it runs it on each piece of its result when that is
// finished and still in a cache, or lets it compute what the kernel reads just before it does. Each element
// is computed as MapJob::run would.
#ifndef LAZULI_RUNTIME_PIECES_H
#define LAZULI_RUNTIME_PIECES_H

#include <lazuli/kernel.h>

#include <memory>
#include <span>
#include <vector>

#include "runtime/map_call.h"

namespace lazuli {

class MapPieces {
 public:
  // For a result of rows of `columns` elements. Null where the operands do not lie by rows, or where pieces
  // would be too short. Keeps nothing of the operands but their layout; the job must stay.
  static std::unique_ptr<MapPieces> make(const MapJob& job, const lz_operand* operands, int64_t columns);

  // Before each run of the kernel. `addresses` must stay until the kernel is done.
  void begin(char* const* addresses);
  // Rows row … row + rows - 1 from column on. From several threads at once; every element once.
  void run(int64_t row, int64_t rows, int64_t column, int64_t columns) const;

  // Elements of the only result, not to its memory: `lines` runs of `length` elements, the first of which are
  // `step` apart, one after the other. Where the operands do not lie like the result, several runs are parts
  // of rows that follow each other.
  void compute(int64_t first, int64_t lines, int64_t step, int64_t length, char* to) const;
  // The work as a whole, for a kernel that cannot read it in pieces. On the kernel's own thread.
  void compute_all() const { call_.job.run(call_.bases); }
  bool flat() const { return flat_; }

  int64_t columns() const { return columns_; }
  // About how many nanoseconds an element takes.
  double cost() const { return cost_; }

 private:
  explicit MapPieces(const MapJob& job, int operands, int64_t columns);
  // Runs of elements: of rows from a column on, or, of what lies like the result, of elements `step` apart.
  struct Span {
    int64_t row, column, lines, length;
    int64_t step = 0;
    char* to = nullptr;  // where the result goes instead of its own memory
  };
  void work(const Span& span) const;
  // Where the operands of a row and column are.
  void locate(int64_t row, int64_t column, char** at) const;

  MapCall call_;
  int64_t columns_;
  Patches rows_;                // the axes of rows, merged
  std::vector<int64_t> steps_;  // of each operand along a row, in bytes
  bool flat_ = true;            // what is not a single element lies like the result
  bool gathers_ = false;        // operands must be gathered along a row
  double cost_;
  std::vector<char> cells_;
};

// Lent to this package's kernels besides lz_context.
struct KernelContext : lz_context {
  const MapPieces* pieces = nullptr;  // work on the result
  const MapPieces* prologue =
      nullptr;  // work that makes the first operand, whose memory does not hold it yet
  // Calls of the same kernel with the same first operand and parameters, which follow this one and may run
  // with it: nothing that one of them writes is read or written by another.
  std::span<const lz_call> companions;
};

// The calls that may run with this one; a kernel that takes them runs them.
inline std::span<const lz_call> companions(const lz_call& call) {
  return static_cast<KernelContext*>(call.ctx)->companions;
}
inline void take_companions(const lz_call& call) { static_cast<KernelContext*>(call.ctx)->companions = {}; }

// The work that wants this call's result; null where there is none. A kernel that asks must run it on
// everything.
inline const MapPieces* take_pieces(const lz_call& call) {
  auto* context = static_cast<KernelContext*>(call.ctx);
  const MapPieces* pieces = context->pieces;
  context->pieces = nullptr;
  return pieces;
}

// The work that makes the first operand; null where that is in memory. A kernel that asks must let it compute
// all.
inline const MapPieces* take_prologue(const lz_call& call) {
  auto* context = static_cast<KernelContext*>(call.ctx);
  const MapPieces* prologue = context->prologue;
  context->prologue = nullptr;
  return prologue;
}

// The work that a kernel does with a finished part of its result that begins at this row and column.
struct Epilogue {
  const MapPieces* pieces = nullptr;
  int64_t row = 0, column = 0;

  Epilogue at(int64_t i, int64_t j) const { return {pieces, row + i, column + j}; }
  void operator()(int64_t i, int64_t rows, int64_t j, int64_t columns) const {
    if (pieces) pieces->run(row + i, rows, column + j, columns);
  }
  double cost() const { return pieces ? pieces->cost() : 0; }
};

}  // namespace lazuli

#endif
