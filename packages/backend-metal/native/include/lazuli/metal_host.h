/* The interface between a compiled kernel and the host executor. A kernel library is plain C++ made from
 * Metal source: it imports nothing but the math library, and reaches the executor through the pointers below.
 * No standard header is included, because Metal source declares names of its own in the global namespace. */
#pragma once

namespace lz {

typedef unsigned int u32;
typedef unsigned long usize;

constexpr int kAbi = 1;
constexpr u32 kBuffers = 31;               // buffer indices of a kernel
constexpr u32 kSimdWidth = 32;             // threads of a simdgroup
constexpr u32 kMaxThreads = 1024;          // threads of a threadgroup
constexpr u32 kThreadgroupBytes = 32768;   // threadgroup memory
constexpr usize kStackBytes = 256 * 1024;  // of a fiber; a power of two, to which stacks are aligned
constexpr usize kStackColors = 512;        // cache lines by which the tops of stacks differ

struct Dim3 {
  u32 x, y, z;
};

/* One dispatch: the same for all of its threads. */
struct Launch {
  void* buffers[kBuffers];
  u32 threadgroup_offset[kBuffers];  // of the memory lengths set by the host, in the arena
  Dim3 threads;                      // of the whole grid
  Dim3 groups;
  Dim3 group_size;  // as asked for; groups at the far edges of a grid may be smaller
};

struct Group;

/* The public part of a fiber, above its stack. */
struct Fiber {
  Group* group;
  void* argument;  // of the exchange in which the thread waits
  u32 lane;        // the thread it runs, by index in the threadgroup
  u32 line;        // where the thread waits
  void* stack;     // where it stopped
};

/* An exchange's computation, done once, for all threads of a simdgroup that take part. arguments[i] is null
 * where thread i does not. */
typedef void (*Exchange)(void* const* arguments);

/* One threadgroup on one worker. */
struct Group {
  const Launch* launch;
  Dim3 position;
  Dim3 size;
  u32 lanes;
  char* arena;  // threadgroup memory
  void (*barrier)(Fiber*, u32 line);
  void (*exchange)(Fiber*, Exchange, void* argument, u32 line);
  void* (*variable)(Fiber*, const void* tag, usize size, usize align);
};

/* The fiber of a stack. Stacks that began at equal offsets would compete for a few sets of the caches, so
 * their tops differ by cache lines, in a way that follows from the address. */
__attribute__((always_inline)) inline Fiber* fiber_of(usize stack) {
  const usize base = stack & ~(kStackBytes - 1);
  const usize color = base / kStackBytes * 5 % kStackColors;
  return reinterpret_cast<Fiber*>(base + kStackBytes - 64 * (color + 1));
}

/* The fiber that is running. Code that may wait runs on fibers only. */
__attribute__((always_inline)) inline Fiber* current() {
  return fiber_of(reinterpret_cast<usize>(__builtin_frame_address(0)));
}

/* One compiled kernel: `lane` where threads may wait for each other, `group` where they never do. */
struct Kernel {
  const char* name;
  void (*lane)(const Launch*, const Group*, u32 lane);  // one thread
  void (*group)(const Launch*, const Group*);           // all threads of a group
  int bytes[kBuffers];                                  // least size of each buffer; -1 where there is none
  u32 max_threads;                                      // 0 without a limit of its own
};

/* The kernels of a source, exported as a symbol that follows from the source. */
struct Library {
  int abi;
  u32 count;
  const Kernel* kernels;
  bool waits;  // some kernel has barriers, exchanges or threadgroup memory
};

}  // namespace lz
