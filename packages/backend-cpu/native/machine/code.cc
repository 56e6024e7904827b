#include "machine/code.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>

#include "simd/targets.h"

#if LAZULI_MACHINE_CODE
#include "machine/emit.h"
#endif

namespace lazuli {
namespace {

// The saving of machine code over the interpreter for a step beyond the first, and for stores through the
// caches more than around them, in nanoseconds an element; and how much of that must have been spent before
// machine code, which takes some 100 microseconds to make, is made.
constexpr double kStepLoss = 0.04, kStoreLoss = 0.04, kWorthwhile = 200'000;

const char* wish() {
  static const char* const it = [] {
    const char* text = std::getenv("LAZULI_JIT");
    return text ? text : "";
  }();
  return it;
}
bool at_once() { return std::strcmp(wish(), "1") == 0; }

std::atomic<int64_t> made_so_far{0};

#if LAZULI_MACHINE_CODE
// Set when the system first refuses executable memory: nobody asks again.
std::atomic<bool> refused{false};
#endif

}  // namespace

int64_t machine_code_count() { return made_so_far.load(std::memory_order_relaxed); }

#if LAZULI_MACHINE_CODE

const char* machine_code_state() {
  if (std::strcmp(wish(), "0") == 0) return "off (LAZULI_JIT=0)";
  if (refused.load(std::memory_order_relaxed)) return "off (the system refuses executable memory)";
  if (simd_target() == SimdTarget::avx512) return "avx512";
  return simd_target() == SimdTarget::avx2 ? "avx2" : "off (no AVX2)";
}

struct MachineCode::Parts {
  machine::Target target;
  machine::Sequence sequence;
  machine::Emitted cached, streaming;
  int n_in = 0, operands = 0;
  std::vector<uint8_t> log_sizes;
  std::vector<bool> single;

  char* offset(void* const* from, int i, int64_t element) const {
    return static_cast<char*>(from[i]) + (single[size_t(i)] ? 0 : element << log_sizes[size_t(i)]);
  }
  char* blocks(char* memory) const { return memory + std::max(cached.spilled, streaming.spilled); }
  void** table(char* memory) const {
    return reinterpret_cast<void**>(blocks(memory) + size_t(operands) * 64);
  }

  // Fewer elements than a vector: by way of copies, so that no memory beyond them is touched.
  void few(void* const* from, int64_t element, int64_t count, char* memory) const {
    void** const to = table(memory);
    for (int i = 0; i < operands; i++) {
      char* block = blocks(memory) + size_t(i) * 64;
      to[i] = single[size_t(i)] ? from[i] : block;
      if (single[size_t(i)] || i >= n_in) continue;
      const size_t bytes = size_t(count) << log_sizes[size_t(i)];
      std::memcpy(block, offset(from, i, element), bytes);
      std::memset(block + bytes, 0, 64 - bytes);
    }
    enter(cached, to, machine::lanes_of(target), memory);
    for (int i = n_in; i < operands; i++)
      std::memcpy(offset(from, i, element), blocks(memory) + size_t(i) * 64,
                  size_t(count) << log_sizes[size_t(i)]);
  }

  // One row.
  void enter(const machine::Emitted& code, void** to, int64_t n, char* memory) const {
    std::fill_n(to + operands, operands, nullptr);
    to[2 * operands] = reinterpret_cast<void*>(1);
    code.entry()(to, n, memory);
  }
  // The word outputs, which streaming stores need on a boundary.
  std::vector<int> words;
};

MachineCode::MachineCode(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
MachineCode::~MachineCode() = default;

std::unique_ptr<MachineCode> MachineCode::make(const std::vector<int32_t>& inputs,
                                               const std::vector<machine::Scalar>& code,
                                               const std::vector<int>& results, const uint8_t* log_sizes,
                                               uint64_t single) {
  if (std::strncmp(machine_code_state(), "avx", 3) != 0) return nullptr;
  auto parts = std::make_unique<Parts>();
  parts->target = simd_target() == SimdTarget::avx512 ? machine::Target::avx512 : machine::Target::avx2;
  auto sequence = machine::lower(inputs, code, results, single, machine::lanes_of(parts->target));
  if (!sequence) return nullptr;
  parts->n_in = int(inputs.size());
  parts->operands = parts->n_in + int(results.size());
  parts->log_sizes.assign(log_sizes, log_sizes + parts->operands);
  for (int i = 0; i < parts->operands; i++) {
    parts->single.push_back(i < parts->n_in && i < 64 && (single >> i & 1));
    if (i >= parts->n_in && log_sizes[i] == 2) parts->words.push_back(i);
  }
  parts->sequence = std::move(*sequence);
  parts->cached = machine::emit(parts->sequence, parts->target, parts->operands, false);
  if (!parts->cached.code.address()) {
    refused = true;
    return nullptr;
  }
  made_so_far.fetch_add(1, std::memory_order_relaxed);
  return std::unique_ptr<MachineCode>(new MachineCode(std::move(parts)));
}

void MachineCode::prepare_streaming() {
  Parts& it = *parts_;
  if (it.words.empty() || it.streaming.code.address()) return;
  it.streaming = machine::emit(it.sequence, it.target, it.operands, true);
  // Without it, stores go through the caches.
  if (!it.streaming.code.address()) it.words.clear();
}

size_t MachineCode::scratch_bytes() const {
  // Registers, the last elements of every operand, and a table of addresses.
  return std::max(parts_->cached.spilled, parts_->streaming.spilled) + size_t(parts_->operands) * 64 +
         machine::table_size(parts_->operands) * 8;
}

void MachineCode::run(void* const* operands, int64_t n, char* scratch, bool streaming) const {
  const Parts& it = *parts_;
  const int lanes = machine::lanes_of(it.target);
  int64_t from = 0;
  const machine::Emitted* code = &it.cached;
  if (streaming && it.streaming.code.address() && n >= 4 * lanes) {
    const auto misplaced = [&](int i) {
      return reinterpret_cast<uintptr_t>(operands[i]) % size_t(lanes * 4);
    };
    const size_t first = misplaced(it.words[0]);
    bool alike = true;
    for (int i : it.words) alike = alike && misplaced(i) == first;
    if (alike) {
      code = &it.streaming;
      if (first) it.few(operands, 0, from = lanes - int64_t(first / 4), scratch);
    }
  }
  if (const int64_t whole = (n - from) / lanes * lanes) {
    void** const table = it.table(scratch);
    for (int i = 0; i < it.operands; i++) table[i] = it.offset(operands, i, from);
    it.enter(*code, table, whole, scratch);
    from += whole;
  }
  if (from < n) it.few(operands, from, n - from, scratch);
}

void MachineCode::run(void* const* operands, const int64_t* steps, int64_t rows, int64_t n,
                      char* scratch) const {
  const Parts& it = *parts_;
  const int lanes = machine::lanes_of(it.target);
  const int64_t whole = n / lanes * lanes;
  void** const table = it.table(scratch);
  if (whole > 0) {
    for (int i = 0; i < it.operands; i++) table[i] = operands[i];
    std::memcpy(table + it.operands, steps, size_t(it.operands) * sizeof(int64_t));
    table[2 * it.operands] = reinterpret_cast<void*>(rows);
    it.cached.entry()(table, whole, scratch);
  }
  if (whole == n) return;
  std::vector<void*> row(operands, operands + it.operands);
  for (int64_t r = 0; r < rows; r++) {
    it.few(row.data(), whole, n - whole, scratch);
    for (int i = 0; i < it.operands; i++) row[size_t(i)] = static_cast<char*>(row[size_t(i)]) + steps[i];
  }
}

#else

const char* machine_code_state() { return "off (not built in)"; }

struct MachineCode::Parts {};
MachineCode::MachineCode(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
MachineCode::~MachineCode() = default;
std::unique_ptr<MachineCode> MachineCode::make(const std::vector<int32_t>&,
                                               const std::vector<machine::Scalar>&, const std::vector<int>&,
                                               const uint8_t*, uint64_t) {
  return nullptr;
}
void MachineCode::prepare_streaming() {}
size_t MachineCode::scratch_bytes() const { return 0; }
void MachineCode::run(void* const*, int64_t, char*, bool) const {}
void MachineCode::run(void* const*, const int64_t*, int64_t, int64_t, char*) const {}

#endif

bool MachineChoice::due(int64_t n, size_t steps, bool streaming) {
  if (decided_) return false;
  work_ += double(n) * ((double(steps) - 1) * kStepLoss + (streaming ? kStoreLoss : 0));
  if (work_ < kWorthwhile && !at_once()) return false;
  return decided_ = true;
}

}  // namespace lazuli
