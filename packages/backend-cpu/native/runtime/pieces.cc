#include "runtime/pieces.h"

#include <algorithm>

#include "runtime/dtype.h"

namespace lazuli {
namespace {

// Rows shorter than this are no work by themselves.
constexpr int64_t kShortRow = 64;

}  // namespace

MapPieces::MapPieces(const MapJob& job, int operands, int64_t columns)
    : call_{job,     *job.variant, nullptr, job.program->log_sizes(), int(job.program->inputs().size()),
            operands},
      columns_(columns),
      cost_(job.variant->cost + 0.1 * double(operands)),
      cells_(job.variant->cell_bytes) {}

std::unique_ptr<MapPieces> MapPieces::make(const MapJob& job, const lz_operand* operands, int64_t columns) {
  const int n_in = int(job.program->inputs().size()), count = n_in + int(job.program->outputs().size());
  const lz_operand& out = operands[n_in];
  if (job.n <= 1 || columns < 1 || job.n % columns != 0) return nullptr;
  for (int i = n_in; i < count; i++)
    if (!(operands[i].flags & LZ_CONTIGUOUS)) return nullptr;
  // The axes of a row.
  int first = out.ndim;
  for (int64_t length = 1; length < columns;) {
    if (first == 0) return nullptr;
    length *= out.shape[--first];
    if (length > columns) return nullptr;
  }
  std::unique_ptr<MapPieces> made(new MapPieces(job, count, columns));
  Patches row;
  for (Patches* part : {&made->rows_, &row}) {
    const int begin = part == &row ? first : 0, end = part == &row ? out.ndim : first;
    part->width = count;
    part->shape.assign(out.shape + begin, out.shape + end);
    part->strides.assign(size_t(end - begin) * size_t(count), 0);
    for (int i = 0; i < count; i++) {
      if (made->call_.single(i) || operands[i].size == 1) continue;
      for (int axis = begin; axis < end; axis++)
        part->strides[size_t((axis - begin) * count + i)] =
            operands[i].strides[axis] * itemsize(operands[i].dtype);
    }
    part->merge();
  }
  if (row.shape.size() > 1) return nullptr;
  made->steps_.assign(size_t(count), 0);
  for (int i = 0; i < count; i++) {
    if (made->call_.single(i)) continue;
    const int64_t item = made->call_.item(i);
    made->steps_[size_t(i)] = row.shape.empty() ? item : row.stride(0, i);
    made->gathers_ = made->gathers_ || made->steps_[size_t(i)] != item;
    const bool one = made->rows_.shape.empty();
    made->flat_ = made->flat_ && made->steps_[size_t(i)] == item &&
                  (one || (made->rows_.shape.size() == 1 && made->rows_.stride(0, i) == columns * item));
  }
  return made->flat_ || columns >= kShortRow ? std::move(made) : nullptr;
}

void MapPieces::begin(char* const* addresses) {
  const Variant& v = call_.v;
  call_.bases = addresses;
  if (v.machine.due(call_.job.n, v.block.size(), false))
    v.machine.code = call_.job.program->machine_code(v.uniform);
  call_.code = v.machine.code.get();
  call_.cells = cells_.data();
  if (!call_.code && !v.once.empty()) call_.once();
}

void MapPieces::locate(int64_t row, int64_t column, char** at) const {
  for (int i = 0; i < call_.operands; i++) at[i] = call_.bases[i] + column * steps_[size_t(i)];
  for (int axis = int(rows_.shape.size()) - 1; axis >= 0; axis--) {
    const int64_t length = rows_.shape[size_t(axis)], index = axis == 0 ? row : row % length;
    row /= length;
    for (int i = 0; i < call_.operands; i++) at[i] += index * rows_.stride(axis, i);
  }
}

void MapPieces::run(int64_t row, int64_t rows, int64_t column, int64_t columns) const {
  if (flat_ && columns == columns_)
    work({row, column, 1, rows * columns});
  else
    work({row, column, rows, columns});
}

void MapPieces::compute(int64_t first, int64_t lines, int64_t step, int64_t length, char* to) const {
  if (flat_) return work({0, first, lines, length, step, to});
  if (lines > 1) return work({first / columns_, first % columns_, lines, length, 0, to});
  // Parts of rows, and whole rows.
  const int64_t item = call_.item(call_.n_in);
  for (int64_t done = 0; done < length;) {
    const int64_t row = (first + done) / columns_, column = (first + done) % columns_;
    const int64_t rows = column == 0 ? std::max<int64_t>((length - done) / columns_, 1) : 1;
    const int64_t count = std::min(columns_ - column, length - done);
    work({row, column, rows, count, 0, to + done * item});
    done += rows * count;
  }
}

void MapPieces::work(const Span& span) const {
  const int64_t lines = span.lines, length = span.length;
  const Variant& v = call_.v;
  const int operands = call_.operands, out = call_.n_in;
  const size_t pointers = line(size_t(operands) * sizeof(char*)),
               table_bytes = line(v.n_slots * sizeof(void*));
  const size_t scratch_bytes = call_.code ? line(call_.code->scratch_bytes()) : 0,
               block_bytes = size_t(kBlock) * 8;
  char* memory = workspace(2 * pointers + table_bytes + scratch_bytes + v.register_bytes +
                           (gathers_ ? size_t(operands) * block_bytes : 0));
  auto** at = reinterpret_cast<char**>(memory);
  auto* steps = reinterpret_cast<int64_t*>(memory + pointers);
  auto** slots = reinterpret_cast<void**>(memory + 2 * pointers);
  char* scratch = memory + 2 * pointers + table_bytes;
  char* registers = scratch + scratch_bytes;
  char* blocks = registers + v.register_bytes;
  // Lines one after the other are steps, unless rows have several axes.
  const bool regular = span.step > 0 || rows_.shape.size() <= 1;
  for (int i = 0; i < operands; i++) {
    steps[i] = span.step > 0                     ? span.step * steps_[size_t(i)]
               : regular && !rows_.shape.empty() ? rows_.stride(0, i)
                                                 : 0;
    if (i == out && span.to) steps[i] = length * call_.item(i);
  }
  const auto start = [&](int64_t r) {
    locate(span.row + r, span.column, at);
    if (span.to) at[out] = span.to + r * length * call_.item(out);
  };
  start(0);
  if (call_.code && !gathers_ && regular)
    return call_.code->run(reinterpret_cast<void* const*>(at), steps, lines, length, scratch);
  for (int i = 0; i < operands; i++) slots[i] = call_.bases[i];
  if (!call_.code) {
    call_.table(slots, registers);
    for (const auto& s : v.splats) s.fill(slots[s.out], slots[s.from], nullptr, nullptr, kBlock);
  }
  const int64_t width = (call_.code || v.direct) && !gathers_ ? length : kBlock;
  for (int64_t r = 0; r < lines; r++) {
    if (r > 0 && !regular) start(r);
    for (int64_t c = 0; c < length; c += width) {
      const int64_t count = std::min(width, length - c);
      for (int i = 0; i < operands; i++) {
        if (call_.single(i)) continue;
        const int64_t step = steps_[size_t(i)];
        slots[i] = at[i] + c * step;
        if (step == call_.item(i)) continue;
        char* block = blocks + size_t(i) * block_bytes;
        gather_patch(call_.log_sizes[i], static_cast<const char*>(slots[i]), 1, count, 0, step, block);
        slots[i] = block;
      }
      if (call_.code)
        call_.code->run(slots, count, scratch, false);
      else
        call_.steps(slots, count);
    }
    for (int i = 0; i < operands; i++) at[i] += steps[i];
  }
}

}  // namespace lazuli
