// Shared by the command buffers of an isolate: the buffers, the words of programs and plans, and why buffers
// are poisoned. A buffer is touched by one thread at a time, which is the business of whoever writes the
// command buffers; the rest is guarded here.
#ifndef LAZULI_RUNTIME_STORE_H
#define LAZULI_RUNTIME_STORE_H

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "runtime/memory.h"
#include "runtime/paged_table.h"

namespace lazuli {

// The buffer that an id stands for.
struct BufferEntry {
  BufferRef buffer;
  uint32_t cause = 0;  // the number of the failure that left it without a value; 0: none
};

class Store {
 public:
  struct PlanWords {
    std::vector<int64_t> words;
    int n_in, n_out;
    int64_t arena_bytes;
  };

  PagedTable<BufferEntry> buffers;

  // Numbers what is registered: the lowest number that is free.
  uint32_t add_program(const int64_t* words, size_t count) {
    return insert(programs_, std::vector<int64_t>(words, words + count));
  }
  uint32_t add_plan(PlanWords plan) { return insert(plans_, std::move(plan)); }
  // False when there is none.
  bool drop_program(uint32_t id) { return remove(programs_, id); }
  bool drop_plan(uint32_t id) { return remove(plans_, id); }
  std::optional<std::vector<int64_t>> program(uint32_t id) const {
    std::lock_guard lock(mutex_);
    return id < programs_.size() ? programs_[id] : std::nullopt;
  }
  std::optional<PlanWords> plan(uint32_t id) const {
    std::lock_guard lock(mutex_);
    return id < plans_.size() ? plans_[id] : std::nullopt;
  }

  // Numbers a failure.
  uint32_t add_cause(const std::string& message) {
    std::lock_guard lock(mutex_);
    causes_.emplace(++last_cause_, message);
    if (causes_.size() > kCauses) causes_.erase(causes_.begin());
    return last_cause_;
  }
  std::string cause(uint32_t number) const {
    std::lock_guard lock(mutex_);
    const auto found = causes_.find(number);
    return found == causes_.end() ? "what this depends on failed long ago" : found->second;
  }

 private:
  template <class T>
  uint32_t insert(std::vector<std::optional<T>>& table, T made) {
    std::lock_guard lock(mutex_);
    size_t id = 0;
    while (id < table.size() && table[id]) id++;
    if (id == table.size()) table.emplace_back();
    table[id] = std::move(made);
    return uint32_t(id);
  }
  template <class T>
  bool remove(std::vector<std::optional<T>>& table, uint32_t id) {
    std::lock_guard lock(mutex_);
    if (id >= table.size() || !table[id]) return false;
    table[id].reset();
    return true;
  }

  static constexpr size_t kCauses = 4096;
  mutable std::mutex mutex_;
  std::vector<std::optional<std::vector<int64_t>>> programs_;
  std::vector<std::optional<PlanWords>> plans_;
  std::map<uint32_t, std::string> causes_;
  uint32_t last_cause_ = 0;
};

}  // namespace lazuli

#endif
