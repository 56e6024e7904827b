// A sparse array with numbers for keys: pages made on first use, so that a large number costs one page and
// not the range below it, and entries never move.
#ifndef LAZULI_RUNTIME_PAGED_TABLE_H
#define LAZULI_RUNTIME_PAGED_TABLE_H

#include <cstdint>
#include <memory>
#include <vector>

namespace lazuli {

template <class T>
class PagedTable {
 public:
  static constexpr uint32_t kPageSize = 4096, kPages = 16384, kLimit = kPageSize * kPages;

  PagedTable() : pages_(kPages) {}

  // Null when the key's page does not exist.
  T* find(uint64_t key) const {
    if (key >= kLimit) return nullptr;
    T* page = pages_[key / kPageSize].get();
    return page ? page + key % kPageSize : nullptr;
  }
  // Null when the key is beyond kLimit.
  T* make(uint64_t key) {
    if (key >= kLimit) return nullptr;
    auto& page = pages_[key / kPageSize];
    if (!page) page.reset(new T[kPageSize]());
    return page.get() + key % kPageSize;
  }
  template <class F>
  void for_each(F&& f) {
    for (auto& page : pages_)
      if (page)
        for (uint32_t i = 0; i < kPageSize; i++) f(page[i]);
  }

 private:
  std::vector<std::unique_ptr<T[]>> pages_;
};

}  // namespace lazuli

#endif
