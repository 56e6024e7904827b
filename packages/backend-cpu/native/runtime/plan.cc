#include "runtime/plan.h"

#include <algorithm>
#include <stdexcept>

#include "runtime/pool.h"
#include "runtime/record.h"
#include "runtime/registry.h"

namespace lazuli {
namespace {

// Plans in plans run on the stack.
constexpr int kDeepest = 256;

// A step with so many elements is work for several threads.
constexpr int64_t kLarge = 1 << 14;
// Products of more rows are bound by what they compute.
constexpr int64_t kFewRows = 8;

[[noreturn]] void refuse(const std::string& what) { throw std::invalid_argument("[registerPlan] " + what); }

}  // namespace

Plan::Plan(const int64_t* words, size_t count, int n_in, int n_out, int64_t arena_bytes, Names& names)
    : n_in_(n_in),
      n_out_(n_out),
      arena_bytes_(arena_bytes),
      words_(words, words + count),
      strides_(count + 1) {
  needed_.assign(size_t(n_in + n_out) + 1, 0);
  alignment_.assign(needed_.size(), 1);
  int64_t* strides = strides_.data();
  const int64_t* const end = words_.data() + words_.size();
  for (const int64_t* next = words_.data(); next < end;) {
    const uint32_t length = high32(*next);
    if (length < 2 || length > size_t(end - next)) {
      refuse("a record of " + std::to_string(length) + " words where " + std::to_string(end - next) +
             " are left");
    }
    add_step(next, next + length, strides, names);
    next += length;
  }
  if (needed_.back() > arena_bytes_) {
    refuse("records reach " + std::to_string(needed_.back()) + " bytes of an arena of " +
           std::to_string(arena_bytes_));
  }
  size_t widest = 0;
  for (const Step& step : steps_)
    if (step.plan) widest = std::max(widest, step.plan->needed_.size());
  nested_.resize(widest);
  join();
  look_ahead();
}

void Plan::look_ahead() {
  const lz_kernel packed = registry().named("quantizedMatmul");
  size_t next = kNone;
  for (size_t i = steps_.size(); i-- > 0;) {
    Step& step = steps_[i];
    if (!step.kernel) continue;
    bool is_large = false;
    for (size_t k = step.first; k < step.first + size_t(step.n_in); k++)
      is_large = is_large || operands_[k].size >= kLarge;
    if (is_large) step.ahead = next;
    const lz_operand& x = operands_[step.first];
    if (step.kernel == packed && x.ndim >= 2 && x.shape[x.ndim - 2] <= kFewRows) next = i;
  }
}

void Plan::expect(size_t next) const {
  Pool::Range ranges[Pool::kRanges];
  const int count = std::min(steps_[next].alike, Pool::kRanges);
  for (int i = 0; i < count; i++) {
    const lz_operand& words = operands_[steps_[next + size_t(i)].first + 1];
    ranges[i] = {words.data, words.size * itemsize(words.dtype)};
  }
  pool().expect(ranges, count);
}

// True if a kernel that is called twice may read its first operand once.
bool Plan::is_alike(const Step& a, const Step& b) const {
  if (a.kernel == nullptr || a.kernel != b.kernel || a.n_in != b.n_in || a.n_out != b.n_out || a.n_in == 0 ||
      a.n_params != b.n_params || !std::equal(a.params, a.params + a.n_params, b.params) || a.prologue ||
      b.prologue)
    return false;
  const lz_operand &x = operands_[a.first], &y = operands_[b.first];
  const Location &p = locations_[a.first], &q = locations_[b.first];
  return p.binding != kUnbound && p.binding == q.binding && p.offset == q.offset && x.dtype == y.dtype &&
         x.ndim == y.ndim && std::equal(x.shape, x.shape + x.ndim, y.shape) &&
         std::equal(x.strides, x.strides + x.ndim, y.strides);
}

bool Plan::are_apart(size_t first, int count) const {
  for (int a = 0; a < count; a++) {
    const Step& writer = steps_[first + size_t(a)];
    const size_t results = writer.first + size_t(writer.n_in);
    for (int b = 0; b < count; b++) {
      if (a == b) continue;
      const Step& other = steps_[first + size_t(b)];
      for (size_t i = results; i < results + size_t(writer.n_out); i++) {
        for (size_t k = other.first; k < other.first + size_t(other.n_in + other.n_out); k++)
          if (locations_[k].binding != kUnbound && overlap(i, k)) return false;
      }
    }
  }
  return true;
}

bool Plan::run_alike(size_t first, Context& context, bool* taken, std::string* error) const {
  lz_call calls[kMostAlike];
  const int count = steps_[first].alike;
  for (int i = 0; i < count; i++) {
    const Step& step = steps_[first + size_t(i)];
    const lz_operand* in = operands_.data() + step.first;
    calls[i] = {step.n_in,   step.n_out,    in,       in + step.n_in,
                step.params, step.n_params, &context, sizeof(lz_call)};
  }
  context.companions = {calls + 1, size_t(count - 1)};
  const bool done = context.call(steps_[first].kernel, calls[0], error);
  *taken = context.companions.empty();
  context.companions = {};
  return done;
}

void Plan::join() {
  for (size_t i = 0; i + 1 < steps_.size(); i++) {
    Step &step = steps_[i], &after = steps_[i + 1];
    if (step.is_prologue && step.n_out == 1 && after.kernel && after.n_in > 0) {
      const size_t made = step.first + size_t(step.n_in);
      const lz_operand& x = operands_[after.first];
      const bool same = locations_[made].binding == locations_[after.first].binding &&
                        locations_[made].offset == locations_[after.first].offset &&
                        (x.flags & LZ_CONTIGUOUS) && x.size == operands_[made].size &&
                        x.dtype == operands_[made].dtype && x.ndim > 0;
      if (same)
        after.prologue = MapPieces::make(step.job, operands_.data() + step.first, x.shape[x.ndim - 1]);
    }
    while (step.alike < kMostAlike && i + size_t(step.alike) < steps_.size() &&
           is_alike(step, steps_[i + size_t(step.alike)]))
      step.alike++;
    // Work before a kernel and work after it share a table of addresses: a kernel has one of them.
    if (!step.kernel || step.prologue || step.n_out != 1 || !after.is_epilogue) continue;
    const lz_operand& result = operands_[step.first + size_t(step.n_in)];
    if (result.ndim < 1 || !(result.flags & LZ_CONTIGUOUS) || result.size != after.job.n) continue;
    const Location& made = locations_[step.first + size_t(step.n_in)];
    for (size_t k = after.first; k < after.first + size_t(after.n_in); k++) {
      if (locations_[k].binding != made.binding || locations_[k].offset != made.offset) continue;
      step.pieces = MapPieces::make(after.job, operands_.data() + after.first, result.shape[result.ndim - 1]);
      break;
    }
  }
}

bool Plan::overlap(size_t a, size_t b) const {
  const char *x = static_cast<const char*>(operands_[a].data),
             *y = static_cast<const char*>(operands_[b].data);
  const Location &p = locations_[a], &q = locations_[b];
  return x + p.low < y + q.high && y + q.low < x + p.high;
}

bool Plan::is_prologue_of(const Step& work, const Step& kernel) const {
  const size_t made = work.first + size_t(work.n_in), results = kernel.first + size_t(kernel.n_in);
  for (size_t i = results; i < results + size_t(kernel.n_out); i++) {
    for (size_t k = work.first; k <= made; k++)
      if (locations_[k].binding != kUnbound && overlap(i, k)) return false;
  }
  // Other operands of the kernel are in memory.
  for (size_t k = kernel.first + 1; k < results; k++)
    if (locations_[k].binding != kUnbound && overlap(made, k)) return false;
  return true;
}

bool Plan::joins(const Step& kernel, const Step& work) const {
  const size_t result = kernel.first + size_t(kernel.n_in), outputs = work.first + size_t(work.n_in);
  const lz_operand& made = operands_[result];
  for (size_t i = work.first; i < outputs + size_t(work.n_out); i++) {
    if (locations_[i].binding == kUnbound) continue;
    const lz_operand& x = operands_[i];
    const bool same = x.data == made.data && x.dtype == made.dtype && (x.flags & LZ_CONTIGUOUS);
    if (!same && overlap(i, result) &&
        !(i >= outputs && x.data == made.data && itemsize(x.dtype) == itemsize(made.dtype)))
      return false;
    if (i < outputs) continue;
    for (size_t k = kernel.first; k < result; k++)
      if (locations_[k].binding != kUnbound && overlap(i, k)) return false;
  }
  return true;
}

void Plan::need(uint32_t binding, int64_t low, int64_t high, int64_t alignment) {
  if (binding >= needed_.size()) refuse("binding " + std::to_string(binding) + " is out of range");
  if (low < 0) refuse("an operand reaches below binding " + std::to_string(binding));
  if (high > record_detail::kFar)
    refuse("an operand reaches too far into binding " + std::to_string(binding));
  needed_[binding] = std::max(needed_[binding], high);
  alignment_[binding] = std::max(alignment_[binding], alignment);
}

void Plan::add_step(const int64_t* record, const int64_t* end, int64_t*& strides, Names& names) {
  const uint32_t opcode = low32(*record);
  const int64_t* next = record + 1;
  Step step;
  if (opcode == kPlan) {
    const uint32_t id = low32(*next++);
    step.plan = names.plan_at(id);
    if (!step.plan) refuse("there is no plan " + std::to_string(id));
    depth_ = std::max(depth_, step.plan->depth_ + 1);
    if (depth_ > kDeepest) refuse("plans are nested more than " + std::to_string(kDeepest) + " deep");
    const int count = step.plan->n_in_ + step.plan->n_out_;
    if (end - next != 2 * int64_t(count))
      refuse("a nested plan takes " + std::to_string(count) + " buffers with offsets");
    step.first = uint32_t(pairs_.size());
    for (int i = 0; i < count; i++, next += 2) {
      const int64_t binding = next[0], offset = next[1], needed = step.plan->needed_[size_t(i)];
      if (binding < 0 || binding >= int64_t(needed_.size()))
        refuse("binding " + std::to_string(binding) + " is out of range");
      const int64_t alignment = step.plan->alignment_[size_t(i)];
      if (offset < 0 || offset > record_detail::kFar || offset % alignment)
        refuse("an offset is out of range or not aligned");
      need(uint32_t(binding), offset, offset + needed, alignment);
      pairs_.push_back({uint32_t(binding), offset, 0, needed});
    }
    steps_.push_back(std::move(step));
    return;
  }
  if (opcode != kRun && opcode != kMap && opcode != kEpilogue && opcode != kPrologue)
    refuse("a plan cannot hold records of opcode " + std::to_string(opcode));
  step.is_epilogue = opcode == kEpilogue;
  step.is_prologue = opcode == kPrologue;
  CallHead head;
  if (!decode_head(next, end, head)) refuse("a record lacks what it calls or operands");
  const uint32_t id = head.id;
  step.n_in = head.n_in;
  step.n_out = head.n_out;
  step.first = uint32_t(operands_.size());
  for (int i = 0; i < step.n_in + step.n_out; i++) {
    lz_operand x{};
    Extent extent;
    if (const char* wrong = decode_operand(next, end, x, extent, strides)) refuse(wrong);
    const bool immediate = x.flags & LZ_IMMEDIATE;
    if (immediate && i >= step.n_in) refuse("an output is an immediate");
    if (opcode == kRun && i >= step.n_in && !(x.flags & LZ_CONTIGUOUS))
      refuse("an output of a kernel has gaps");
    if (!immediate) need(extent.id, extent.low, extent.high, itemsize(x.dtype));
    operands_.push_back(x);
    if (immediate)
      locations_.push_back({kUnbound, 0, 0, 0});
    else
      locations_.push_back(
          {extent.id, extent.offset, extent.low - extent.offset, extent.high - extent.offset});
  }
  if (opcode == kRun) {
    step.kernel = registry().find(id);
    if (!step.kernel) refuse("there is no kernel " + std::to_string(id));
    step.params = next;
    step.n_params = end - next;
  } else {
    step.program = names.program_at(id);
    if (!step.program) refuse("there is no scalar program " + std::to_string(id));
    const lz_operand* in = operands_.data() + step.first;
    std::string error;
    if (!step.job.prepare(*step.program, in, step.n_in, in + step.n_in, step.n_out, &error)) refuse(error);
  }
  steps_.push_back(std::move(step));
}

std::string Plan::check(int binding, int64_t offset, size_t capacity) const {
  const int64_t needed = needed_[size_t(binding)];
  if (offset < 0 || offset % alignment_[size_t(binding)]) {
    return "offset " + std::to_string(offset) + " of the plan's binding " + std::to_string(binding) +
           " is negative or not aligned";
  }
  if (offset > int64_t(capacity) || needed > int64_t(capacity) - offset) {
    return "the plan's binding " + std::to_string(binding) + " needs " + std::to_string(needed) +
           " bytes from offset " + std::to_string(offset) + " of a buffer of " + std::to_string(capacity);
  }
  return {};
}

bool Plan::run(char** addresses, Context& context, std::string* error) const {
  BufferRef arena;
  addresses[n_in_ + n_out_] = nullptr;
  if (arena_bytes_ > 0) {
    arena = BufferRef(memory().allocate(size_t(arena_bytes_), error));
    if (!arena) return false;
    addresses[n_in_ + n_out_] = static_cast<char*>(arena->data);
  }
  for (size_t i = 0; i < operands_.size(); i++) {
    if (locations_[i].binding != kUnbound)
      operands_[i].data = addresses[locations_[i].binding] + locations_[i].offset;
  }
  char* at[510];
  for (size_t next = 0; next < steps_.size(); next++) {
    const Step& step = steps_[next];
    if (step.plan) {
      const int count = step.plan->n_in_ + step.plan->n_out_;
      for (int i = 0; i < count; i++) {
        const Location& location = pairs_[step.first + size_t(i)];
        nested_[size_t(i)] = addresses[location.binding] + location.offset;
      }
      if (!step.plan->run(nested_.data(), context, error)) return false;
      continue;
    }
    const lz_operand* in = operands_.data() + step.first;
    if (step.program) {
      for (int i = 0; i < step.n_in + step.n_out; i++) at[i] = static_cast<char*>(in[i].data);
      const Step* reader = next + 1 < steps_.size() ? &steps_[next + 1] : nullptr;
      if (step.is_prologue && reader && reader->prologue && is_prologue_of(step, *reader)) {
        reader->prologue->begin(at);
        context.prologue = reader->prologue.get();
      } else {
        step.job.run(at);
      }
      continue;
    }
    if (step.alike > 1 && are_apart(next, step.alike)) {
      bool taken = false;
      if (!run_alike(next, context, &taken, error)) return false;
      if (taken) next += size_t(step.alike - 1);
      if (steps_[next].ahead != kNone) expect(steps_[next].ahead);
      continue;
    }
    lz_call call{step.n_in, step.n_out, in, in + step.n_in, step.params, step.n_params, nullptr, 0};
    if (step.pieces && joins(step, steps_[next + 1])) {
      const Step& work = steps_[next + 1];
      for (int i = 0; i < work.n_in + work.n_out; i++)
        at[i] = static_cast<char*>(operands_[work.first + size_t(i)].data);
      step.pieces->begin(at);
      context.pieces = step.pieces.get();
      const bool done = context.call(step.kernel, call, error);
      if (!context.pieces) next++;
      context.pieces = nullptr;
      if (!done) return context.prologue = nullptr, false;
    } else if (!context.call(step.kernel, call, error)) {
      context.prologue = nullptr;
      return false;
    }
    if (step.ahead != kNone) expect(step.ahead);
    if (context.prologue) {
      context.prologue = nullptr;
      *error = "a kernel that reads only memory was given a prologue that makes its operand";
      return false;
    }
  }
  return true;
}

}  // namespace lazuli
