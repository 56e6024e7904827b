// The allocator's policy: classes, cache, limits. How blocks come from the system is in blocks.cc.
#include "runtime/memory.h"

#include <pthread.h>

#include <bit>
#include <thread>

#include "runtime/blocks.h"

namespace lazuli {
namespace {

constexpr size_t kUnit = 64;
constexpr size_t kLargest = size_t(1) << 46;

// Classes are multiples of 64 bytes up to 1 KB, then eight a doubling: at most an eighth is wasted.
int class_of(size_t bytes) {
  const size_t units = bytes ? (bytes + kUnit - 1) / kUnit : 1;
  if (units <= 16) return int(units);
  const int width = std::bit_width(units - 1);
  const int step = int((units - 1) >> (width - 4));  // 8 … 15
  return 17 + (width - 5) * 8 + (step - 8);
}

size_t capacity_of(int size_class) {
  if (size_class <= 16) return size_t(size_class) * kUnit;
  const int width = (size_class - 17) / 8 + 5, step = (size_class - 17) % 8 + 8;
  const size_t bytes = (size_t(step + 1) << (width - 4)) * kUnit;
  return bytes < kPagedFrom ? bytes : (bytes + kPage - 1) / kPage * kPage;
}

std::string oom_message(size_t requested, const MemoryStats& now) {
  return "out of memory: requested " + std::to_string(requested) + " bytes with " +
         std::to_string(now.active - now.scratch) + " active, limit " + std::to_string(now.limit);
}

}  // namespace

// A spin lock: every critical section is a few list operations, far below the price of parking a thread.
class Memory::Guard {
 public:
  explicit Guard(Memory& memory) : lock_(memory.lock_) {
    for (int spins = 0; lock_.exchange(true, std::memory_order_acquire); spins++)
      if (spins > 64) std::this_thread::yield();
  }
  ~Guard() { lock_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool>& lock_;
};

Memory& memory() {
  static Memory* it = [] {
    auto* made = new Memory;
    // A child that was forked while another thread held the lock must not inherit it held.
    pthread_atfork(nullptr, nullptr, [] { memory().lock_.store(false); });
    return made;
  }();
  return *it;
}

Memory::Memory() {
  const size_t machine = system_memory();
  limit_ = machine / 10 * 9;
  cache_limit_ = machine / 4;
}

Buffer* Memory::take_cached(int size_class) {
  // A large block serves a request up to two classes smaller: a fresh one costs a page fault every 4 KB.
  const int last = capacity_of(size_class) >= kMappedFrom ? size_class + 2 : size_class;
  for (int c = size_class; c <= last && c < kClasses; c++) {
    if (Buffer* buffer = tops_[c]) {
      unlink(buffer);
      return buffer;
    }
  }
  return nullptr;
}

void Memory::unlink(Buffer* buffer) {
  (buffer->above ? buffer->above->below : tops_[buffer->size_class]) = buffer->below;
  if (buffer->below) buffer->below->above = buffer->above;
  (buffer->newer ? buffer->newer->older : newest_) = buffer->older;
  (buffer->older ? buffer->older->newer : oldest_) = buffer->newer;
  cache_ -= buffer->capacity;
}

Buffer* Memory::evict(size_t keep) {
  Buffer* gone = nullptr;
  while (cache_ > keep) {
    Buffer* buffer = oldest_;
    unlink(buffer);
    buffer->below = gone;
    gone = buffer;
  }
  return gone;
}

namespace {

void release_blocks(Buffer* list, Buffer* Buffer::* next) {
  while (list) {
    Buffer* following = list->*next;
    free_block(list->data, list->capacity);
    delete list;
    list = following;
  }
}

}  // namespace

Buffer* Memory::allocate(size_t bytes, std::string* error, bool scratch) {
  if (bytes > kLargest) {
    *error = oom_message(bytes, stats());
    return nullptr;
  }
  const int size_class = class_of(bytes);
  const size_t capacity = capacity_of(size_class);
  Buffer *buffer = nullptr, *evicted = nullptr;
  {
    Guard guard(*this);
    buffer = take_cached(size_class);
    const size_t living = active_ - scratch_, left = limit_ > living ? limit_ - living : 0;
    const size_t free = scratch ? SIZE_MAX : left;
    // A block larger than what was asked for may pass the limit where one that fits does not.
    Buffer* larger = buffer && buffer->capacity > free ? std::exchange(buffer, nullptr) : nullptr;
    const size_t needed = buffer ? buffer->capacity : capacity;
    if (needed <= free) {
      active_ += needed;
      if (scratch) scratch_ += needed;
      // The cache gives way to scratch as well.
      const size_t spare = limit_ > active_ ? limit_ - active_ : 0;
      if (!buffer && cache_ > spare) evicted = evict(spare);
      if (active_ > peak_) peak_ = active_;
      buffers_++;
      if (buffer) {
        buffer->bytes = bytes;
        buffer->scratch = scratch;
        buffer->references.store(1, std::memory_order_relaxed);
        return buffer;
      }
      buffer = reinterpret_cast<Buffer*>(this);  // granted, still to be made
    }
    if (larger) larger->below = evicted, evicted = larger;
  }
  release_blocks(evicted, &Buffer::below);
  if (!buffer) {
    *error = oom_message(bytes, stats());
    return nullptr;
  }
  void* data = allocate_block(capacity);
  if (!data) {
    clear_cache();
    data = allocate_block(capacity);
  }
  if (!data) {
    {
      Guard guard(*this);
      active_ -= capacity;
      if (scratch) scratch_ -= capacity;
      buffers_--;
    }
    *error = oom_message(bytes, stats()) + "; the system has no more";
    return nullptr;
  }
  buffer = new Buffer;
  buffer->data = data;
  buffer->capacity = capacity;
  buffer->bytes = bytes;
  buffer->size_class = int16_t(size_class);
  buffer->scratch = scratch;
  return buffer;
}

Buffer* Memory::adopt(void* data, size_t bytes, void (*release)(void*), void* owner) {
  auto* buffer = new Buffer;
  buffer->data = data;
  buffer->capacity = buffer->bytes = bytes;
  buffer->adopted = true;
  buffer->release = release;
  buffer->owner = owner;
  Guard guard(*this);
  buffers_++;
  return buffer;
}

void Memory::recycle(Buffer* buffer) {
  // Once it is in the cache, another thread may take it out and delete it.
  const bool adopted = buffer->adopted;
  Buffer* evicted = nullptr;
  {
    Guard guard(*this);
    buffers_--;
    if (!adopted) {
      active_ -= buffer->capacity;
      if (buffer->scratch) scratch_ -= buffer->capacity;
      cache_ += buffer->capacity;
      Buffer*& top = tops_[buffer->size_class];
      buffer->above = nullptr;
      buffer->below = top;
      if (top) top->above = buffer;
      top = buffer;
      buffer->newer = nullptr;
      buffer->older = newest_;
      (newest_ ? newest_->newer : oldest_) = buffer;
      newest_ = buffer;
      if (cache_ > cache_limit_) evicted = evict(cache_limit_);
    }
  }
  if (adopted) {
    if (buffer->release) buffer->release(buffer->owner);
    delete buffer;
  }
  release_blocks(evicted, &Buffer::below);
}

MemoryStats Memory::stats() {
  Guard guard(*this);
  return {active_, scratch_, peak_, cache_, buffers_, limit_, cache_limit_};
}

void Memory::set_limit(size_t bytes) {
  Guard guard(*this);
  limit_ = bytes;
}

void Memory::set_cache_limit(size_t bytes) {
  Buffer* evicted;
  {
    Guard guard(*this);
    cache_limit_ = bytes;
    evicted = evict(bytes);
  }
  release_blocks(evicted, &Buffer::below);
}

void Memory::clear_cache() {
  Buffer* evicted;
  {
    Guard guard(*this);
    evicted = evict(0);
  }
  release_blocks(evicted, &Buffer::below);
}

void Memory::reset_peak() {
  Guard guard(*this);
  peak_ = active_;
}

}  // namespace lazuli
