// Buffers and the process-wide allocator behind them: a cache of blocks by size class, with limits and
// statistics. Blocks of 16 KB and more start on a page, so that another device may adopt them; smaller ones
// on a cache line.
#ifndef LAZULI_RUNTIME_MEMORY_H
#define LAZULI_RUNTIME_MEMORY_H

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace lazuli {

// A block of memory. Descriptors are cached with their blocks, so that an allocation touches no other
// allocator.
struct Buffer {
  void* data = nullptr;
  size_t capacity = 0;  // bytes that may be touched
  size_t bytes = 0;     // bytes that were asked for
  std::atomic<int32_t> references{1};
  int16_t size_class = 0;
  bool adopted = false;
  bool scratch = false;
  // For adopted memory: called once, when the last reference is dropped.
  void (*release)(void* owner) = nullptr;
  void* owner = nullptr;

 private:
  friend class Memory;
  Buffer *newer = nullptr, *older = nullptr;  // the cache by age, over all classes
  Buffer *above = nullptr, *below = nullptr;  // the cache of one class, a stack
};

struct MemoryStats {
  size_t active, scratch, peak, cache, buffers, limit, cache_limit;
};

class Memory {
 public:
  // A buffer with one reference, or null: `error` then says what was requested, what is active and the limit.
  // `scratch`: for one call of a kernel. Only the system may refuse it, and it takes nothing of what the
  // limit leaves to others.
  Buffer* allocate(size_t bytes, std::string* error, bool scratch = false);
  // A buffer over memory that someone else owns. Not counted as active.
  Buffer* adopt(void* data, size_t bytes, void (*release)(void* owner), void* owner);
  // Drops a reference.
  void drop(Buffer* buffer) {
    if (buffer->references.load(std::memory_order_acquire) == 1 ||
        buffer->references.fetch_sub(1, std::memory_order_acq_rel) == 1)
      recycle(buffer);
  }
  static void share(Buffer* buffer) { buffer->references.fetch_add(1, std::memory_order_relaxed); }

  MemoryStats stats();
  void set_limit(size_t bytes);
  void set_cache_limit(size_t bytes);
  void clear_cache();
  void reset_peak();

 private:
  friend Memory& memory();
  Memory();
  void recycle(Buffer* buffer);
  Buffer* take_cached(int size_class);
  void unlink(Buffer* buffer);
  // Moves cached buffers, oldest first, from the cache to a list until it holds at most `keep` bytes.
  Buffer* evict(size_t keep);

  static constexpr int kClasses = 480;
  std::atomic<bool> lock_{false};
  Buffer* tops_[kClasses] = {};
  Buffer *oldest_ = nullptr, *newest_ = nullptr;
  // `scratch_` is a part of `active_`.
  size_t active_ = 0, scratch_ = 0, peak_ = 0, cache_ = 0, buffers_ = 0, limit_ = 0, cache_limit_ = 0;

  class Guard;
};

Memory& memory();

// Shared ownership of a buffer.
class BufferRef {
 public:
  BufferRef() = default;
  explicit BufferRef(Buffer* taken) : buffer_(taken) {}
  BufferRef(const BufferRef& other) : buffer_(other.buffer_) {
    if (buffer_) Memory::share(buffer_);
  }
  BufferRef(BufferRef&& other) noexcept : buffer_(std::exchange(other.buffer_, nullptr)) {}
  BufferRef& operator=(BufferRef other) noexcept {
    std::swap(buffer_, other.buffer_);
    return *this;
  }
  ~BufferRef() { reset(); }
  void reset() {
    if (buffer_) memory().drop(std::exchange(buffer_, nullptr));
  }
  Buffer* get() const { return buffer_; }
  Buffer* operator->() const { return buffer_; }
  explicit operator bool() const { return buffer_ != nullptr; }

 private:
  Buffer* buffer_ = nullptr;
};

}  // namespace lazuli

#endif
