// Memory for an operation that stays for the next one. It begins at a page: a kernel's copy between
// processes, `rep movsb`, is five times slower on AMD's Zen 3 where the target lies up to 63 bytes behind the
// source within a page, as malloc's memory lies behind an array's.
#ifndef LAZULI_DISTRIBUTED_SCRATCH_H
#define LAZULI_DISTRIBUTED_SCRATCH_H

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>

namespace lazuli::dist {

// The parts of arrays and of scratch memory begin at multiples of it, for the same reason.
constexpr size_t kAlignment = 64;

class Scratch {
 public:
  // So many bytes; those of the call before are lost.
  char* take(size_t bytes) {
    if (bytes <= bytes_) return memory_.get();
    const size_t whole = (bytes + kPage - 1) / kPage * kPage;
    memory_.reset(static_cast<char*>(std::aligned_alloc(kPage, whole)));
    bytes_ = memory_ ? whole : 0;
    if (!memory_) throw std::bad_alloc();
    return memory_.get();
  }

 private:
  static constexpr size_t kPage = 4096;
  struct Free {
    void operator()(char* memory) const { std::free(memory); }
  };
  std::unique_ptr<char, Free> memory_;
  size_t bytes_ = 0;
};

}  // namespace lazuli::dist

#endif
