#include "runtime/tape.h"

#include <new>
#include <stdexcept>

#include "runtime/registry.h"

namespace lazuli {
namespace {

// Puts a new object where the last release left a hole, or at the end.
template <class T>
uint32_t insert(std::vector<std::shared_ptr<T>>& table, std::shared_ptr<T> made) {
  for (size_t id = 0; id < table.size(); id++) {
    if (!table[id]) {
      table[id] = std::move(made);
      return uint32_t(id);
    }
  }
  table.push_back(std::move(made));
  return uint32_t(table.size() - 1);
}

template <class T>
bool remove(std::vector<std::shared_ptr<T>>& table, uint32_t id) {
  if (id >= table.size() || !table[id]) return false;
  table[id].reset();
  return true;
}

}  // namespace

uint32_t Tape::add_program(const int64_t* words, size_t count) {
  return insert(programs_, std::make_shared<Program>(words, count));
}

bool Tape::release_program(uint32_t id) { return remove(programs_, id); }

uint32_t Tape::add_plan(const int64_t* words, size_t count, int n_in, int n_out, int64_t arena_bytes) {
  return insert(plans_, std::make_shared<Plan>(words, count, n_in, n_out, arena_bytes, programs_, plans_));
}

bool Tape::release_plan(uint32_t id) { return remove(plans_, id); }

bool Tape::allocate(uint64_t slot, int64_t bytes, std::string* error) {
  Slot* it = slots_.make(slot);
  if (!it) return *error = "slot " + std::to_string(slot) + " is out of range", false;
  it->buffer.reset();
  it->poisoned = false;
  if (bytes < 0) return *error = "cannot allocate " + std::to_string(bytes) + " bytes", false;
  it->buffer = BufferRef(memory().allocate(size_t(bytes), error));
  return bool(it->buffer);
}

Tape::Outcome Tape::fail(std::string message) {
  message_ = std::move(message);
  return Outcome::failed;
}

void Tape::poison_outputs() {
  for (uint32_t slot : outputs_) {
    Slot* it = slots_.make(slot);
    if (!it || it->poisoned) continue;
    it->poisoned = true;
    poisoned_.push_back(slot);
  }
}

size_t Tape::run(const int64_t* words, size_t count) {
  failures_.clear();
  const int64_t* const end = words + count;
  for (const int64_t* next = words; next < end;) {
    const uint32_t length = high32(*next);
    if (length == 0 || length > size_t(end - next)) {
      failures_.push_back({next - words, "malformed tape: a record of " + std::to_string(length) + " words where " +
                                             std::to_string(end - next) + " are left"});
      break;
    }
    outputs_.clear();
    Outcome outcome;
    try {
      outcome = record(next, next + length);
    } catch (const std::exception& error) {
      outcome = fail(error.what());
    }
    if (outcome != Outcome::done) {
      poison_outputs();
      if (outcome == Outcome::failed) failures_.push_back({next - words, message_});
    }
    next += length;
  }
  return failures_.size();
}

Tape::Outcome Tape::record(const int64_t* record, const int64_t* end) {
  const uint32_t opcode = low32(*record);
  const int64_t* next = record + 1;
  switch (opcode) {
    case kAlloc: {
      if (end - next != 2) return fail("malformed record: ALLOC takes a slot and bytes");
      std::string error;
      if (allocate(uint64_t(next[0]), next[1], &error)) return Outcome::done;
      if (uint64_t(next[0]) < slots_.kLimit) outputs_.push_back(low32(next[0]));
      return fail("[allocate] " + error);
    }
    case kFree: {
      if (end - next != 1) return fail("malformed record: FREE takes a slot");
      if (Slot* slot = slots_.find(uint64_t(*next))) {
        slot->buffer.reset();
        slot->poisoned = false;
      }
      return Outcome::done;
    }
    case kRun: return run_kernel(next, end);
    case kMap: return run_map(next, end);
    case kPlan: return run_plan(next, end);
    default: return fail("malformed record: unknown opcode " + std::to_string(opcode));
  }
}

Tape::Outcome Tape::operands(const int64_t*& next, const int64_t* end, int n_in, int n_out) {
  // A record of w words needs at most w strides.
  if (strides_.size() < size_t(end - next) + 1) strides_.resize(size_t(end - next) * 2 + 64);
  int64_t* strides = strides_.data();
  Outcome outcome = Outcome::done;
  const int count = n_in + n_out;
  for (int i = 0; i < count; i++) {
    DecodedOperand decoded;
    if (const char* wrong = decode_operand(next, end, decoded, strides)) {
      // The words that follow cannot be understood, so the outputs after this operand are not known.
      return fail(std::string("malformed record: ") + wrong);
    }
    lz_operand& x = operands_[size_t(i)];
    x = decoded.operand;
    if (x.flags & LZ_IMMEDIATE) {
      if (i >= n_in) return fail("malformed record: an output is an immediate");
      continue;
    }
    if (i >= n_in) outputs_.push_back(decoded.slot);
    Slot* slot = slots_.find(decoded.slot);
    if (!slot || !slot->buffer) {
      if (slot && slot->poisoned) {
        if (outcome == Outcome::done) outcome = Outcome::skipped;
      } else {
        outcome = fail("slot " + std::to_string(decoded.slot) + " has no buffer");
      }
      continue;
    }
    if (slot->poisoned && i < n_in && outcome == Outcome::done) outcome = Outcome::skipped;
    if (decoded.low < 0 || decoded.high > int64_t(slot->buffer->capacity)) {
      outcome = fail("malformed record: an operand reaches bytes " + std::to_string(decoded.low) + " to " +
                     std::to_string(decoded.high) + " of slot " + std::to_string(decoded.slot) + ", which has " +
                     std::to_string(slot->buffer->capacity));
      continue;
    }
    x.data = static_cast<char*>(slot->buffer->data) + decoded.offset;
  }
  return outcome;
}

Tape::Outcome Tape::run_kernel(const int64_t* next, const int64_t* end) {
  if (end - next < 1) return fail("malformed record: RUN lacks its kernel");
  const int64_t head = *next++;
  const uint32_t counts = high32(head);
  const int n_in = int(counts & 0xff), n_out = int(counts >> 8 & 0xff);
  const Outcome outcome = operands(next, end, n_in, n_out);
  if (outcome != Outcome::done) return outcome;
  const lz_kernel kernel = registry().find(low32(head));
  if (!kernel) return fail("there is no kernel " + std::to_string(low32(head)));
  lz_call call{n_in, n_out, operands_.data(), operands_.data() + n_in, next, end - next, nullptr};
  return context_.call(kernel, call, &message_) ? Outcome::done : Outcome::failed;
}

Tape::Outcome Tape::run_map(const int64_t* next, const int64_t* end) {
  if (end - next < 1) return fail("malformed record: MAP lacks its program");
  const int64_t head = *next++;
  const uint32_t counts = high32(head), id = low32(head);
  const int n_in = int(counts & 0xff), n_out = int(counts >> 8 & 0xff);
  const Outcome outcome = operands(next, end, n_in, n_out);
  if (outcome != Outcome::done) return outcome;
  if (id >= programs_.size() || !programs_[id]) return fail("there is no scalar program " + std::to_string(id));
  if (!job_.prepare(*programs_[id], operands_.data(), n_in, operands_.data() + n_in, n_out, &message_)) return Outcome::failed;
  job_.run(operands_.data(), operands_.data() + n_in);
  return Outcome::done;
}

Tape::Outcome Tape::run_plan(const int64_t* next, const int64_t* end) {
  if (end - next < 1) return fail("malformed record: PLAN lacks its plan");
  const uint32_t id = low32(*next++);
  if (id >= plans_.size() || !plans_[id]) return fail("there is no plan " + std::to_string(id));
  const Plan& plan = *plans_[id];
  // The counts are the plan's own: eight bits of the record could not hold a model's parameters.
  const int count = plan.n_in() + plan.n_out();
  if (end - next != 2 * int64_t(count)) {
    return fail("malformed record: plan " + std::to_string(id) + " takes " + std::to_string(count) + " slots with offsets");
  }
  for (int i = plan.n_in(); i < count; i++) {
    if (uint64_t(next[2 * i]) < slots_.kLimit) outputs_.push_back(low32(next[2 * i]));
  }
  addresses_.resize(size_t(count) + 1);
  bool skipped = false;
  for (int i = 0; i < count; i++, next += 2) {
    const Slot* slot = slots_.find(uint64_t(next[0]));
    if (slot && slot->poisoned && (i < plan.n_in() || !slot->buffer)) {
      skipped = true;
      continue;
    }
    if (!slot || !slot->buffer) return fail("slot " + std::to_string(next[0]) + " has no buffer");
    std::string wrong = plan.check(i, next[1], slot->buffer->capacity);
    if (!wrong.empty()) return fail("malformed record: " + wrong);
    addresses_[size_t(i)] = static_cast<char*>(slot->buffer->data) + next[1];
  }
  if (skipped) return Outcome::skipped;
  return plan.run(addresses_.data(), context_, &message_) ? Outcome::done : Outcome::failed;
}

}  // namespace lazuli
