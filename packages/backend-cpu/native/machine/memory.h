// Pages of machine code: written first, executable and read-only ever after.
#ifndef LAZULI_MACHINE_MEMORY_H
#define LAZULI_MACHINE_MEMORY_H

#include <cstddef>
#include <utility>

namespace lazuli::machine {

class Pages {
 public:
  Pages() = default;
  Pages(Pages&& other) noexcept
      : address_(std::exchange(other.address_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  Pages& operator=(Pages&& other) noexcept {
    std::swap(address_, other.address_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~Pages();

  // Fresh writable pages; null when the system refuses.
  static Pages writable(size_t bytes);
  // From now on code. False when the system forbids that: the pages are then given back.
  bool seal();

  void* address() const { return address_; }

 private:
  void* address_ = nullptr;
  size_t size_ = 0;
};

}  // namespace lazuli::machine

#endif
