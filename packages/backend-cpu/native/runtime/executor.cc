#include "runtime/executor.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <new>
#include <stdexcept>

#include "runtime/registry.h"

namespace lazuli {
void Executor::give_program(uint32_t id, std::shared_ptr<Program> made) {
  if (programs_.size() <= id) programs_.resize(id + 1);
  programs_[id] = std::move(made);
}

void Executor::give_plan(uint32_t id, std::shared_ptr<Plan> made) {
  if (plans_.size() <= id) plans_.resize(id + 1);
  plans_[id] = std::move(made);
}

std::shared_ptr<Program> Executor::program_at(uint32_t id) {
  if (id < programs_.size() && programs_[id]) return programs_[id];
  const auto words = store_.program(id);
  if (!words) return nullptr;
  give_program(id, std::make_shared<Program>(words->data(), words->size()));
  return programs_[id];
}

std::shared_ptr<Plan> Executor::plan_at(uint32_t id) {
  if (id < plans_.size() && plans_[id]) return plans_[id];
  const auto plan = store_.plan(id);
  if (!plan) return nullptr;
  give_plan(id, std::make_shared<Plan>(plan->words.data(), plan->words.size(), plan->n_in, plan->n_out,
                                       plan->arena_bytes, *this));
  return plans_[id];
}

bool Executor::allocate(uint64_t id, int64_t bytes, std::string* error) {
  BufferEntry* it = buffers_.make(id);
  if (!it) return *error = "buffer id " + std::to_string(id) + " is out of range", false;
  it->buffer.reset();
  it->cause = 0;
  if (bytes < 0) return *error = "cannot allocate " + std::to_string(bytes) + " bytes", false;
  it->buffer = BufferRef(memory().allocate(size_t(bytes), error));
  return bool(it->buffer);
}

Executor::Outcome Executor::fail(std::string message) {
  message_ = std::move(message);
  return Outcome::failed;
}

Executor::Outcome Executor::skip(const BufferEntry* input) {
  cause_ = input->cause;
  return Outcome::skipped;
}

void Executor::poison_outputs(uint32_t cause) {
  for (uint32_t id : outputs_) {
    BufferEntry* it = buffers_.make(id);
    if (!it || it->cause) continue;
    it->cause = cause;
    poisoned_.push_back(id);
  }
}

// A written buffer has a value again: ids are used for one array after another.
void Executor::heal_outputs() {
  for (uint32_t id : outputs_)
    if (BufferEntry* it = buffers_.find(id)) it->cause = 0;
}

size_t Executor::run(const int64_t* words, size_t count) {
  failures_.clear();
  const int64_t* const end = words + count;
  for (const int64_t* next = words; next < end;) {
    if (stop && stop->load(std::memory_order_relaxed)) break;
    const uint32_t length = high32(*next);
    if (length == 0 || length > size_t(end - next)) {
      failures_.push_back({next - words, "malformed command buffer: a record of " + std::to_string(length) +
                                             " words where " + std::to_string(end - next) + " are left"});
      break;
    }
    outputs_.clear();
    ailing_ = false;
    Outcome outcome;
    try {
      outcome = record(next, next + length);
    } catch (const std::exception& error) {
      outcome = fail(error.what());
    }
    if (outcome == Outcome::failed) {
      poison_outputs(store_.add_cause(message_));
      failures_.push_back({next - words, message_});
    } else if (outcome == Outcome::skipped) {
      poison_outputs(cause_);
    } else if (ailing_) {
      heal_outputs();
    }
    next += length;
  }
  if (!poisoned_.empty()) {
    // Some were given back or written since.
    const auto lacks = [this](uint32_t id) { return buffers_.find(id)->cause != 0; };
    std::sort(poisoned_.begin(), poisoned_.end());
    poisoned_.erase(std::unique(poisoned_.begin(), poisoned_.end()), poisoned_.end());
    poisoned_.erase(std::remove_if(poisoned_.begin(), poisoned_.end(), std::not_fn(lacks)), poisoned_.end());
  }
  return failures_.size();
}

Executor::Outcome Executor::record(const int64_t* record, const int64_t* end) {
  const uint32_t opcode = low32(*record);
  const int64_t* next = record + 1;
  switch (opcode) {
    case kAlloc: {
      if (end - next != 2) return fail("malformed record: ALLOC takes a buffer id and bytes");
      std::string error;
      if (allocate(uint64_t(next[0]), next[1], &error)) return Outcome::done;
      if (uint64_t(next[0]) < buffers_.kLimit) outputs_.push_back(low32(next[0]));
      return fail("[allocate] " + error);
    }
    case kData: {
      const int64_t left = end - next - 2;
      if (left < 0 || next[1] < 0 || next[1] > left * 8 || next[1] <= (left - 1) * 8)
        return fail("malformed record: DATA takes a buffer id, a number of bytes, and these");
      std::string error;
      const auto id = uint64_t(next[0]);
      if (allocate(id, next[1], &error)) {
        std::memcpy(buffers_.find(id)->buffer->data, next + 2, size_t(next[1]));
        return Outcome::done;
      }
      if (id < buffers_.kLimit) outputs_.push_back(low32(next[0]));
      return fail("[allocate] " + error);
    }
    case kFree: {
      if (end - next != 1) return fail("malformed record: FREE takes a buffer id");
      if (BufferEntry* entry = buffers_.find(uint64_t(*next))) {
        entry->buffer.reset();
        entry->cause = 0;
      }
      return Outcome::done;
    }
    case kWait:
      if (end - next != 2) return fail("malformed record: WAIT takes a queue and a ticket");
      if (!wait || !wait(low32(next[0]), uint64_t(next[1])))
        return fail("there is no ticket " + std::to_string(next[1]) + " of queue " + std::to_string(next[0]) +
                    " to wait for");
      return Outcome::done;
    case kRun:
      return run_kernel(next, end);
    case kMap:
      return run_map(next, end);
    case kDense:
      return run_dense(next, end);
    case kPlan:
      return run_plan(next, end);
    default:
      return fail("malformed record: unknown opcode " + std::to_string(opcode));
  }
}

Executor::Outcome Executor::operands(const int64_t*& next, const int64_t* end, int n_in, int n_out) {
  // A record of w words needs at most w strides.
  if (strides_.size() < size_t(end - next) + 1) strides_.resize(size_t(end - next) * 2 + 64);
  int64_t* strides = strides_.data();
  Outcome outcome = Outcome::done;
  const int count = n_in + n_out;
  if (operands_.size() < size_t(count)) operands_.resize(size_t(count));
  for (int i = 0; i < count; i++) {
    lz_operand& x = operands_[size_t(i)];
    Extent extent;
    if (const char* wrong = decode_operand(next, end, x, extent, strides)) {
      // The words that follow cannot be understood, so the outputs after this operand are not known.
      return fail(std::string("malformed record: ") + wrong);
    }
    if (x.flags & LZ_IMMEDIATE) {
      if (i >= n_in) return fail("malformed record: an output is an immediate");
      continue;
    }
    if (i >= n_in) outputs_.push_back(extent.id);
    const BufferEntry* entry = buffers_.find(extent.id);
    const Buffer* buffer = entry ? entry->buffer.get() : nullptr;
    if (!buffer) {
      if (!entry || !entry->cause) outcome = fail("there is no buffer " + std::to_string(extent.id));
      if (outcome == Outcome::done) outcome = skip(entry);
      continue;
    }
    if (entry->cause) {
      if (i >= n_in)
        ailing_ = true;
      else if (outcome == Outcome::done)
        outcome = skip(entry);
    }
    if (extent.low < 0 || extent.high > int64_t(buffer->capacity)) {
      outcome = fail("malformed record: an operand reaches bytes " + std::to_string(extent.low) + " to " +
                     std::to_string(extent.high) + " of buffer " + std::to_string(extent.id) +
                     ", which has " + std::to_string(buffer->capacity));
      continue;
    }
    x.data = static_cast<char*>(buffer->data) + extent.offset;
  }
  return outcome;
}

Executor::Outcome Executor::run_kernel(const int64_t* next, const int64_t* end) {
  CallHead head;
  if (!decode_head(next, end, head)) return fail("malformed record: RUN lacks its kernel or operands");
  const auto [id, n_in, n_out] = head;
  const Outcome outcome = operands(next, end, n_in, n_out);
  if (outcome != Outcome::done) return outcome;
  for (int i = n_in; i < n_in + n_out; i++)
    if (!(operands_[size_t(i)].flags & LZ_CONTIGUOUS))
      return fail("malformed record: an output of a kernel has gaps");
  const lz_kernel kernel = registry().find(id);
  if (!kernel) return fail("there is no kernel " + std::to_string(id));
  lz_call call{n_in, n_out, operands_.data(), operands_.data() + n_in, next, end - next, nullptr, 0};
  return context_.call(kernel, call, &message_) ? Outcome::done : Outcome::failed;
}

// The cost of an op on a small array: no operand but its location.
Executor::Outcome Executor::run_dense(const int64_t* next, const int64_t* end) {
  constexpr uint32_t kMost = 16;
  if (end - next < 3) return fail("malformed record: DENSE lacks its result");
  const uint32_t id = low32(next[0]), n_in = high32(next[0]), size = low32(next[1]), bits = high32(next[1]);
  outputs_.push_back(low32(end[-1]));
  Program* program = find_program(id);
  if (!program) return fail("there is no scalar program " + std::to_string(id));
  if (n_in > kMost || n_in != program->inputs().size() || program->outputs().size() != 1 ||
      end - next != int64_t(n_in) + 3)
    return fail("malformed record: DENSE does not have the inputs that its program takes");
  const uint32_t immediates = bits >> 16, singles = bits & 0xffff;
  if ((immediates | singles) >> n_in)
    return fail("malformed record: DENSE has a bit for an input that is not there");
  next += 2;
  char* addresses[kMost + 1];
  for (uint32_t i = 0; i <= n_in; i++, next++) {
    if (immediates >> i & 1) {
      addresses[i] = reinterpret_cast<char*>(const_cast<int64_t*>(next));
      continue;
    }
    const BufferEntry* entry = buffers_.find(low32(*next));
    if (!entry || !entry->buffer) {
      if (entry && entry->cause) return skip(entry);
      return fail("there is no buffer " + std::to_string(low32(*next)));
    }
    if (entry->cause) {
      if (i < n_in) return skip(entry);
      ailing_ = true;
    }
    const int log_size = program->log_sizes()[i];
    const int64_t offset = high32(*next), bytes = int64_t(singles >> i & 1 ? 1 : size) << log_size;
    if ((offset & ((1 << log_size) - 1)) || bytes + offset > int64_t(entry->buffer->capacity)) {
      return fail("malformed record: an operand reaches bytes " + std::to_string(offset) + " to " +
                  std::to_string(offset + bytes) + " of buffer " + std::to_string(low32(*next)) +
                  ", which has " + std::to_string(entry->buffer->capacity));
    }
    addresses[i] = static_cast<char*>(entry->buffer->data) + offset;
  }
  // One element is no more uniform than its result.
  const uint64_t uniform = size == 1 ? 0 : immediates | singles;
  const Variant& variant = program->variant(uniform);
  if (variant.plain && size < MapJob::kSmall) {
    const Step& step = variant.block[0];
    step.run(addresses[step.out], addresses[step.a], addresses[step.b], addresses[step.c], size);
    return Outcome::done;
  }
  job_.prepare_dense(*program, uniform, size);
  job_.run(addresses);
  return Outcome::done;
}

Executor::Outcome Executor::run_map(const int64_t* next, const int64_t* end) {
  CallHead head;
  if (!decode_head(next, end, head)) return fail("malformed record: MAP lacks its program or operands");
  const auto [id, n_in, n_out] = head;
  const Outcome outcome = operands(next, end, n_in, n_out);
  if (outcome != Outcome::done) return outcome;
  Program* program = find_program(id);
  if (!program) return fail("there is no scalar program " + std::to_string(id));
  const lz_operand* all = operands_.data();
  if (!job_.prepare(*program, all, n_in, all + n_in, n_out, &message_)) return Outcome::failed;
  addresses_.resize(size_t(n_in + n_out));
  for (int i = 0; i < n_in + n_out; i++) addresses_[size_t(i)] = static_cast<char*>(all[i].data);
  job_.run(addresses_.data());
  return Outcome::done;
}

Executor::Outcome Executor::run_plan(const int64_t* next, const int64_t* end) {
  if (end - next < 1) return fail("malformed record: PLAN lacks its plan");
  const uint32_t id = low32(*next++);
  if (id >= plans_.size() || !plans_[id]) {
    if (!plan_at(id)) return fail("there is no plan " + std::to_string(id));
  }
  const Plan& plan = *plans_[id];
  const int count = plan.n_in() + plan.n_out();
  if (end - next != 2 * int64_t(count)) {
    return fail("malformed record: plan " + std::to_string(id) + " takes " + std::to_string(count) +
                " buffers with offsets");
  }
  for (int i = plan.n_in(); i < count; i++) {
    if (uint64_t(next[2 * i]) < buffers_.kLimit) outputs_.push_back(low32(next[2 * i]));
  }
  addresses_.resize(size_t(count) + 1);
  bool skipped = false;
  for (int i = 0; i < count; i++, next += 2) {
    const BufferEntry* entry = buffers_.find(uint64_t(next[0]));
    if (entry && entry->cause) {
      if (i < plan.n_in() || !entry->buffer) {
        if (!skipped) skip(entry);
        skipped = true;
        continue;
      }
      ailing_ = true;
    }
    if (!entry || !entry->buffer) return fail("there is no buffer " + std::to_string(next[0]));
    std::string wrong = plan.check(i, next[1], entry->buffer->capacity);
    if (!wrong.empty()) return fail("malformed record: " + wrong);
    addresses_[size_t(i)] = static_cast<char*>(entry->buffer->data) + next[1];
  }
  if (skipped) return Outcome::skipped;
  return plan.run(addresses_.data(), context_, &message_) ? Outcome::done : Outcome::failed;
}

}  // namespace lazuli
