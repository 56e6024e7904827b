// A sparse array with numbers for keys: pages made on first use, so that a large number costs one page and
// not the range below it, and entries never move. Threads may find and make entries at once; who may touch an
// entry is their business.
#ifndef LAZULI_RUNTIME_PAGED_TABLE_H
#define LAZULI_RUNTIME_PAGED_TABLE_H

#include <atomic>
#include <cstdint>
#include <memory>

namespace lazuli {

template <class T>
class PagedTable {
 public:
  static constexpr uint32_t kPageSize = 4096, kPages = 16384, kLimit = kPageSize * kPages;

  PagedTable() : pages_(new std::atomic<T*>[kPages]()) {}
  ~PagedTable() {
    for (uint32_t i = 0; i < kPages; i++) delete[] pages_[i].load(std::memory_order_relaxed);
  }
  PagedTable(const PagedTable&) = delete;
  PagedTable& operator=(const PagedTable&) = delete;

  // Null when the key's page does not exist.
  T* find(uint64_t key) const {
    if (key >= kLimit) return nullptr;
    T* page = pages_[key / kPageSize].load(std::memory_order_acquire);
    return page ? page + key % kPageSize : nullptr;
  }
  // Null when the key is beyond kLimit.
  T* make(uint64_t key) {
    if (key >= kLimit) return nullptr;
    std::atomic<T*>& entry = pages_[key / kPageSize];
    T* page = entry.load(std::memory_order_acquire);
    if (!page) {
      std::unique_ptr<T[]> made(new T[kPageSize]());
      // Where another thread was faster, its page is the one.
      if (entry.compare_exchange_strong(page, made.get(), std::memory_order_acq_rel)) page = made.release();
    }
    return page + key % kPageSize;
  }

 private:
  std::unique_ptr<std::atomic<T*>[]> pages_;
};

}  // namespace lazuli

#endif
