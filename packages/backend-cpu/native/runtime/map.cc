#include "runtime/map.h"

#include <algorithm>
#include <memory>

#include "runtime/blocks.h"
#include "runtime/dtype.h"
#include "runtime/map_call.h"
#include "runtime/pool.h"

namespace lazuli {
namespace {

// Nanoseconds a chunk, and the least work worth a second thread.
constexpr double kChunkTime = 10'000, kParallelTime = 30'000;
// Where workers look for work anyway, a third of it is worth handing over.
constexpr double kAwake = 1.0 / 3;

struct Run : MapCall {
  bool streaming = false;  // the operands are more than the caches hold

  // One step, over any length at once.
  void direct(int64_t begin, int64_t end) const {
    const Step& s = v.block[0];
    const auto at = [&](uint16_t slot) -> void* {
      if (slot < operands) return bases[slot] + (single(slot) ? 0 : begin << log_sizes[slot]);
      return const_cast<int64_t*>(job.program->constants()) + v.fixed[slot - operands].offset / 8;
    };
    s.run(at(s.out), at(s.a), at(s.b), at(s.c), end - begin);
  }

  // Bytes of all operands.
  size_t traffic() const {
    size_t bytes = 0;
    for (int i = 0; i < operands; i++) bytes += single(i) ? 0 : size_t(job.n) << log_sizes[i];
    return bytes;
  }

  void coded(int64_t begin, int64_t end) const {
    const size_t pointers = line(size_t(operands) * sizeof(void*));
    char* memory = workspace(pointers + code->scratch_bytes());
    auto** at = reinterpret_cast<void**>(memory);
    for (int i = 0; i < operands; i++) at[i] = bases[i] + (single(i) ? 0 : begin << log_sizes[i]);
    code->run(at, end - begin, memory + pointers, streaming);
  }

  void dense(int64_t begin, int64_t end) const {
    if (code) return coded(begin, end);
    if (v.direct) return direct(begin, end);
    const size_t table_bytes = line(v.n_slots * sizeof(void*));
    char* memory = workspace(table_bytes + v.register_bytes);
    auto** slots = reinterpret_cast<void**>(memory);
    table(slots, memory + table_bytes);
    for (int i = 0; i < operands; i++) slots[i] = bases[i] + (single(i) ? 0 : begin << log_sizes[i]);
    for (const auto& s : v.splats) s.fill(slots[s.out], slots[s.from], nullptr, nullptr, kBlock);
    for (int64_t p = begin; p < end; p += kBlock) {
      steps(slots, std::min(kBlock, end - p));
      for (int i = 0; i < operands; i++) {
        if (!single(i)) slots[i] = static_cast<char*>(slots[i]) + (kBlock << log_sizes[i]);
      }
    }
  }

  // Patches begin … end-1.
  void strided(int64_t begin, int64_t end) const {
    const Patches& patches = job.patches;
    const size_t pointers = line(size_t(operands) * sizeof(char*));
    const size_t table_bytes = line(v.n_slots * sizeof(void*)), block_bytes = size_t(kBlock) * 8;
    const size_t scratch_bytes = code ? line(code->scratch_bytes()) : 0;
    char* memory = workspace(2 * pointers + table_bytes + scratch_bytes + v.register_bytes +
                             size_t(operands) * block_bytes);
    auto** at = reinterpret_cast<char**>(memory);
    auto** gathered = reinterpret_cast<char**>(memory + pointers);  // what each block holds
    auto** slots = reinterpret_cast<void**>(memory + 2 * pointers);
    char* scratch = memory + 2 * pointers + table_bytes;
    char* registers = scratch + scratch_bytes;
    char* blocks = registers + v.register_bytes;
    table(slots, registers);
    for (int i = 0; i < operands; i++) slots[i] = bases[i], gathered[i] = nullptr;
    if (!code)
      for (const auto& s : v.splats) s.fill(slots[s.out], slots[s.from], nullptr, nullptr, kBlock);

    PatchCursor cursor(patches, bases, at, begin);
    int64_t held_rows = 0, held_cols = 0;
    for (int64_t p = begin; p < end; p++, cursor.next()) {
      const int64_t rows = cursor.rows(), cols = cursor.cols();
      const bool same = rows == held_rows && cols == held_cols;
      held_rows = rows, held_cols = cols;
      for (int i = 0; i < operands; i++) {
        if (single(i)) continue;
        const int64_t row_stride = patches.row_stride(i), col_stride = patches.col_stride(i);
        if (col_stride == item(i) && (rows == 1 || row_stride == cols * col_stride)) {
          slots[i] = at[i];
          continue;
        }
        char* block = blocks + size_t(i) * block_bytes;
        slots[i] = block;
        // A broadcast operand's patch is often the one before.
        if (i >= n_in || (same && gathered[i] == at[i])) continue;
        gather_patch(log_sizes[i], at[i], rows, cols, row_stride, col_stride, block);
        gathered[i] = at[i];
      }
      if (code) {
        code->run(slots, rows * cols, scratch, false);
      } else {
        steps(slots, rows * cols);
      }
      for (int i = n_in; i < operands; i++) {
        char* block = blocks + size_t(i) * block_bytes;
        if (slots[i] == block)
          scatter_patch(log_sizes[i], at[i], rows, cols, patches.row_stride(i), patches.col_stride(i), block);
      }
    }
  }
};

bool same_shape(const lz_operand& a, const lz_operand& b) {
  if (a.ndim != b.ndim) return false;
  for (int i = 0; i < a.ndim; i++)
    if (a.shape[i] != b.shape[i]) return false;
  return true;
}

std::string shape_text(const lz_operand& a) {
  std::string text = "[";
  for (int i = 0; i < a.ndim; i++) text += (i ? ", " : "") + std::to_string(a.shape[i]);
  return text + "]";
}

}  // namespace

bool MapJob::prepare(Program& p, const lz_operand* in, int n_in, const lz_operand* out, int n_out,
                     std::string* error) {
  const auto refuse = [error](std::string text) {
    *error = "[map] " + std::move(text);
    return false;
  };
  if (n_in != int(p.inputs().size()) || n_out != int(p.outputs().size())) {
    return refuse("the program takes " + std::to_string(p.inputs().size()) + " inputs and " +
                  std::to_string(p.outputs().size()) + " outputs, received " + std::to_string(n_in) +
                  " and " + std::to_string(n_out));
  }
  const lz_operand& first = out[0];
  uint64_t uniform = 0;
  dense = true;
  for (int i = 0; i < n_out; i++) {
    if (out[i].dtype != p.outputs()[i]) {
      return refuse("output " + std::to_string(i) + " must be " + dtype_name(p.outputs()[i]) + ", received " +
                    dtype_name(out[i].dtype));
    }
    if (out[i].flags & LZ_IMMEDIATE) return refuse("an output cannot be an immediate");
    if (!same_shape(out[i], first)) return refuse("outputs have different shapes");
    dense = dense && (out[i].flags & LZ_CONTIGUOUS);
  }
  n = first.size;
  for (int i = 0; i < n_in; i++) {
    if (in[i].dtype != p.inputs()[i]) {
      return refuse("input " + std::to_string(i) + " must be " + dtype_name(p.inputs()[i]) + ", received " +
                    dtype_name(in[i].dtype));
    }
    if (in[i].size == 1 && n != 1) {
      if (i < 64) {
        uniform |= uint64_t(1) << i;
        continue;
      }
      dense = false;
      if (in[i].ndim == 0) return refuse("only the first 64 inputs may be single elements of no dimensions");
    }
    if (in[i].size == 1 && n == 1) continue;
    if (in[i].size != 1 && !same_shape(in[i], first)) {
      return refuse("input " + std::to_string(i) + " has shape " + shape_text(in[i]) + ", the output " +
                    shape_text(first));
    }
    if (in[i].flags & LZ_CONTIGUOUS) continue;
    bool still = true;
    for (int axis = 0; axis < in[i].ndim; axis++)
      still = still && (in[i].strides[axis] == 0 || in[i].shape[axis] == 1);
    if (still && i < 64) {
      uniform |= uint64_t(1) << i;
    } else {
      dense = false;
    }
  }
  program = &p;
  variant = &p.variant(uniform);
  if (n <= 1) dense = true;
  if (dense) return true;

  const int width = n_in + n_out, ndim = first.ndim;
  if (ndim > 64) return refuse("more than 64 dimensions");
  patches.width = width;
  patches.shape.assign(first.shape, first.shape + ndim);
  patches.strides.assign(size_t(ndim) * width, 0);
  for (int i = 0; i < width; i++) {
    const lz_operand& x = i < n_in ? in[i] : out[i - n_in];
    // Single elements keep strides of 0, which never stand in the way of merging.
    if ((i < n_in && i < 64 && (uniform >> i & 1)) || x.size == 1) continue;
    for (int axis = 0; axis < ndim; axis++)
      patches.strides[size_t(axis * width + i)] = x.strides[axis] * itemsize(x.dtype);
  }
  patches.plan(p.log_sizes());
  return true;
}

void MapJob::run(char* const* addresses) const {
  if (n == 0) return;
  const int n_in = int(program->inputs().size()), operands = n_in + int(program->outputs().size());
  const Variant& v = *variant;
  Run run{{*this, v, addresses, program->log_sizes(), n_in, operands}};
  if (v.direct && dense && n < kSmall) return run.direct(0, n);

  // An output written where it is read is in the caches already.
  const bool in_place = std::any_of(addresses + n_in, addresses + operands, [&](const char* out) {
    return std::find(addresses, addresses + n_in, out) != addresses + n_in;
  });
  const bool large = dense && !in_place && run.traffic() > last_level_cache();
  if (v.machine.due(n, v.block.size(), large)) v.machine.code = program->machine_code(v.uniform);
  if (large && v.machine.code) v.machine.code->prepare_streaming();
  run.code = v.machine.code.get();
  run.streaming = large;

  alignas(64) char small_cells[512];
  std::unique_ptr<char[]> large_cells;
  if (!run.code) {
    if (v.cell_bytes > sizeof small_cells) large_cells.reset(new char[v.cell_bytes]);
    run.cells = large_cells ? large_cells.get() : small_cells;
    if (!v.once.empty()) run.once();
  }

  const double cost = v.cost + 0.1 * double(operands) * (dense ? 1 : 3);
  const int64_t units = dense ? n : patches.count();
  const double least = pool().is_awake() ? kAwake : 1;
  if (double(n) * cost < kParallelTime * least) return dense ? run.dense(0, units) : run.strided(0, units);
  pool().run(
      units, int64_t(kChunkTime * least / cost * double(units) / double(n)),
      [](void* arg, int64_t begin, int64_t end) {
        const Run& run = *static_cast<const Run*>(arg);
        run.job.dense ? run.dense(begin, end) : run.strided(begin, end);
      },
      &run);
}

}  // namespace lazuli
