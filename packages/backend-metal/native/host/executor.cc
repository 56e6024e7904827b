#include "host/executor.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

#include "host/checker.h"
#include "host/faults.h"
#include "host/fiber.h"
#include "host/pool.h"
#include "host/watchdog.h"

namespace lz {
namespace {

constexpr u32 kSimdgroups = kMaxThreads / kSimdWidth;
// Below this many threads a dispatch is not worth waking a worker for.
constexpr uint64_t kParallelThreads = 4096;

// Threads of a simdgroup that wait in an exchange.
struct Simdgroup {
  void* arguments[kSimdWidth];
  Fiber* fibers[kSimdWidth];
  Exchange compute[kSimdWidth];
  u32 waiting;  // bits of the threads
  u32 lines;    // bits: whether all wait at `line`
  u32 line;
  u32 finished;  // how many threads have returned
};

struct Variable {
  const void* tag;
  char* data;
  usize size;
};

// One threadgroup at a time, with the stacks and the memory that its threads need. Every thread of the
// process that runs kernels has one.
class Worker {
 public:
  // Runs one group whose threads may wait. Returns false after an error.
  bool run_group(const Kernel* kernel, Group& group, u32 dynamic_bytes);

  char* arena() { return arena_; }
  std::string error;
  // Follows accesses while a checked kernel runs.
  Checker* checker() { return checker_ ? checker_.get() : (checker_ = std::make_unique<Checker>()).get(); }
  void note(Fiber* fiber, const void* address, u32 size, u32 kind, const void* where) {
    std::string problem = checker_->access(fiber->lane, reinterpret_cast<uintptr_t>(address), size,
                                           AccessKind(kind), reinterpret_cast<uintptr_t>(where));
    if (problem.empty()) return;
    fail(std::move(problem));
    // The group is given up: back to the scheduler for good.
    switch_stack(&fiber->stack, scheduler_);
  }
  static void note_access(Fiber* fiber, const void* address, u32 size, u32 kind, const void* where) {
    of(fiber).note(fiber, address, size, kind, where);
  }
  // After a fault the stacks hold abandoned threads.
  void reset() { prepared_ = 0; }
  bool on_stack(uintptr_t address) const { return stacks_.contains(address); }
  static Worker& mine() {
    static thread_local Worker* worker =
        new Worker;  // as long as the process: a fault may interrupt anything
    return *worker;
  }

 private:
  static Worker& of(Fiber* fiber) { return *static_cast<Owned*>(fiber->group)->worker; }
  static void fiber_main();
  static void barrier(Fiber* fiber, u32 line);
  static void exchange(Fiber* fiber, Exchange compute, void* argument, u32 line);
  static void* variable(Fiber* fiber, const void* tag, usize size, usize align);

  void finished(u32 lane) {
    finished_++;
    simdgroups_[lane / kSimdWidth].finished++;
  }
  u32 width(u32 simdgroup) const { return std::min(kSimdWidth, group_->lanes - simdgroup * kSimdWidth); }
  void resolve(Simdgroup& s, u32 line, Fiber* self);
  void make_ready(Fiber* fiber) {
    ready_[(first_ + count_) % kMaxThreads] = fiber;
    count_++;
  }
  Fiber* next();
  bool unblock();
  void leave(Fiber* fiber);
  void fail(std::string message) {
    if (error.empty()) error = std::move(message);
  }

  struct Owned : Group {
    Worker* worker;
  };
  const Kernel* kernel_ = nullptr;
  Owned* group_ = nullptr;
  u32 next_lane_ = 0, finished_ = 0, used_ = 0;
  u32 at_barrier_ = 0, barrier_line_ = 0, other_barrier_ = 0;
  Fiber* waiting_[kMaxThreads];
  Fiber* ready_[kMaxThreads];
  u32 first_ = 0, count_ = 0;
  Fiber* idle_[kMaxThreads];  // fibers whose threads have returned
  u32 idle_count_ = 0;
  Simdgroup simdgroups_[kSimdgroups];
  Variable variables_[64];
  u32 variable_count_ = 0;
  usize arena_used_ = 0;
  void* scheduler_ = nullptr;
  Stacks stacks_;
  u32 prepared_ = 0;
  std::unique_ptr<Checker> checker_;
  alignas(64) char arena_[kThreadgroupBytes];
};

// A thread after another, until there are none; then whatever else can run.
void Worker::fiber_main() {
  Fiber* self = current();
  for (;;) {
    Worker& w = of(self);
    while (w.next_lane_ < w.group_->lanes) {
      self->lane = w.next_lane_++;
      w.kernel_->lane(w.group_->launch, w.group_, self->lane);
      w.finished(self->lane);
    }
    w.idle_[w.idle_count_++] = self;
    w.leave(self);
  }
}

// The next fiber that can run: one that was released, or a new one for a thread that has not begun.
Fiber* Worker::next() {
  if (count_ > 0) {
    Fiber* fiber = ready_[first_];
    first_ = (first_ + 1) % kMaxThreads;
    count_--;
    return fiber;
  }
  if (next_lane_ >= group_->lanes) return nullptr;
  if (idle_count_ > 0) return idle_[--idle_count_];
  const u32 index = used_++;
  Fiber* fiber = stacks_.fiber(index);
  if (!fiber) {
    fail("no memory for the threads' stacks");
    return nullptr;
  }
  if (index >= prepared_) {
    prepare(fiber, fiber_main);
    prepared_ = index + 1;
  }
  fiber->group = group_;
  return fiber;
}

// Suspends a fiber in favour of another one, or of the scheduler when the group is done or stuck.
void Worker::leave(Fiber* fiber) {
  Fiber* to = next();
  if (!to && error.empty() && finished_ < group_->lanes && unblock()) to = next();
  if (to == fiber) return;
  switch_stack(&fiber->stack, to ? to->stack : scheduler_);
}

// Computes the exchange of the threads that wait at `line`, and lets them run.
void Worker::resolve(Simdgroup& s, u32 line, Fiber* self) {
  void* arguments[kSimdWidth] = {};
  u32 chosen = 0;
  Exchange compute = nullptr;
  for (u32 bits = s.waiting; bits; bits &= bits - 1) {
    const u32 i = static_cast<u32>(__builtin_ctz(bits));
    if (s.fibers[i]->line != line) continue;
    // Two exchanges on one line: the first one now.
    if (compute && s.compute[i] != compute) continue;
    compute = s.compute[i];
    arguments[i] = s.arguments[i];
    chosen |= 1u << i;
  }
  compute(arguments);
  s.waiting &= ~chosen;
  s.lines = 0;
  for (; chosen; chosen &= chosen - 1) {
    Fiber* fiber = s.fibers[__builtin_ctz(chosen)];
    if (fiber != self) make_ready(fiber);
  }
}

// Nobody can run: the exchanges that are as complete as they get, and then the barrier.
bool Worker::unblock() {
  for (u32 i = 0; i * kSimdWidth < group_->lanes; i++) {
    Simdgroup& s = simdgroups_[i];
    if (!s.waiting) continue;
    // Threads on different ways through the kernel: the earliest line first, as if the others waited for it.
    u32 line = ~0u;
    for (u32 bits = s.waiting; bits; bits &= bits - 1)
      line = std::min(line, s.fibers[__builtin_ctz(bits)]->line);
    resolve(s, line, nullptr);
  }
  if (count_ > 0) return true;
  const std::string where = "threadgroup_barrier at line " + std::to_string(barrier_line_);
  if (other_barrier_)
    fail("the threads of a threadgroup wait at different barriers, at lines " +
         std::to_string(std::min(barrier_line_, other_barrier_)) + " and " +
         std::to_string(std::max(barrier_line_, other_barrier_)));
  else
    fail(where + " was reached by " + std::to_string(at_barrier_) + " of " + std::to_string(group_->lanes) +
         " threads; the others returned");
  return false;
}

void Worker::barrier(Fiber* fiber, u32 line) {
  Worker& w = of(fiber);
  fiber->line = line;
  if (w.at_barrier_ == 0)
    w.barrier_line_ = line;
  else if (w.barrier_line_ != line)
    w.other_barrier_ = line;
  w.waiting_[w.at_barrier_++] = fiber;
  if (w.at_barrier_ < w.group_->lanes || w.other_barrier_) return w.leave(fiber);
  // The last one: all may go on, this one first.
  for (u32 i = 0; i + 1 < w.at_barrier_; i++) w.make_ready(w.waiting_[i]);
  w.at_barrier_ = 0;
}

void Worker::exchange(Fiber* fiber, Exchange compute, void* argument, u32 line) {
  Worker& w = of(fiber);
  const u32 index = fiber->lane / kSimdWidth, lane = fiber->lane % kSimdWidth;
  Simdgroup& s = w.simdgroups_[index];
  fiber->line = line;
  if (!s.waiting) {
    s.line = line;
    s.lines = 1;
  } else if (s.line != line || s.compute[__builtin_ctz(s.waiting)] != compute)
    s.lines = 0;
  s.arguments[lane] = argument;
  s.fibers[lane] = fiber;
  s.compute[lane] = compute;
  s.waiting |= 1u << lane;
  if (s.lines && static_cast<u32>(__builtin_popcount(s.waiting)) + s.finished == w.width(index))
    return w.resolve(s, line, fiber);
  w.leave(fiber);
}

void* Worker::variable(Fiber* fiber, const void* tag, usize size, usize align) {
  Worker& w = of(fiber);
  for (u32 i = 0; i < w.variable_count_; i++)
    if (w.variables_[i].tag == tag) return w.variables_[i].data;
  const usize start = (w.arena_used_ + align - 1) & ~(align - 1);
  if (start + size > kThreadgroupBytes || w.variable_count_ == 64) {
    w.fail("needs more than " + std::to_string(kThreadgroupBytes) + " bytes of threadgroup memory");
    // The group is given up: back to the scheduler for good.
    switch_stack(&fiber->stack, w.scheduler_);
  }
  char* data = w.arena_ + start;
  std::memset(data, 0xff, size);  // NaN, so that a read before a write shows
  w.arena_used_ = start + size;
  w.variables_[w.variable_count_++] = {tag, data, size};
  return data;
}

bool Worker::run_group(const Kernel* kernel, Group& group, u32 dynamic_bytes) {
  Owned owned;
  static_cast<Group&>(owned) = group;
  owned.worker = this;
  owned.arena = arena_;
  owned.barrier = barrier;
  owned.exchange = exchange;
  owned.variable = variable;
  kernel_ = kernel;
  group_ = &owned;
  next_lane_ = finished_ = used_ = 0;
  at_barrier_ = other_barrier_ = first_ = count_ = idle_count_ = 0;
  variable_count_ = 0;
  arena_used_ = dynamic_bytes;
  for (u32 i = 0; i * kSimdWidth < group.lanes; i++) {
    simdgroups_[i].waiting = 0;
    simdgroups_[i].finished = 0;
  }
  Fiber* first = next();
  if (first) switch_stack(&scheduler_, first->stack);
  if (!error.empty()) {
    reset();
    return false;
  }
  return true;
}

std::string in_words(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", seconds);
  return text;
}

std::string describe_fault(const Fault& fault, const Dispatch& d) {
  if (fault.signal == kTimeSignal)
    return "did not end within " + in_words(time_limit()) +
           " seconds: an endless loop? LAZULI_METAL_TIME_LIMIT sets another limit, 0 none";
  if (fault.signal == SIGFPE) return "divides an integer by zero";
  if (fault.signal == SIGILL) return "reached code that must not be reached";
  const auto address = fault.address;
  const auto unbound = reinterpret_cast<uintptr_t>(unbound_memory());
  u32 nearest = kBuffers;
  uintptr_t behind = 1u << 20;
  for (u32 i = 0; i < kBuffers; i++) {
    const Binding& b = d.bindings[i];
    if (d.kernel->bytes[i] < 0) continue;
    if (!b.data && address >= unbound && address - unbound < (1u << 20))
      return "accesses buffer " + std::to_string(i) + ", which is not bound";
    const auto end = reinterpret_cast<uintptr_t>(b.data) + b.reach;
    if (!b.data || !b.reach || address < end || address - end >= behind) continue;
    nearest = i;
    behind = address - end;
  }
  if (nearest < kBuffers) {
    const Binding& b = d.bindings[nearest];
    return "accesses memory beyond the end of buffer " + std::to_string(nearest) + ": byte " +
           std::to_string(address - reinterpret_cast<uintptr_t>(b.data)) + " of " + std::to_string(b.length);
  }
  return "accesses memory that it may not access (an index out of bounds, or endless recursion)";
}

std::atomic<u32> chosen_workers{0};

}  // namespace

void set_workers(u32 count) { chosen_workers = count; }
u32 workers() {
  const u32 chosen = chosen_workers;
  return chosen ? chosen : std::max(1u, std::thread::hardware_concurrency());
}

char* unbound_memory() {
  static char* memory = static_cast<char*>(
      mmap(nullptr, 1 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  return memory;
}

Traffic take_traffic() { return Worker::mine().checker()->take_traffic(); }

void note_access(const void* address, u32 size, u32 kind, const void* where) {
  Fiber* fiber = current();
  const uintptr_t stack = reinterpret_cast<uintptr_t>(fiber) & ~(uintptr_t{kStackBytes} - 1);
  // A thread's own variables.
  if (reinterpret_cast<uintptr_t>(address) - stack < kStackBytes) return;
  Worker::note_access(fiber, address, size, kind, where);
}

std::string run(const Dispatch& dispatch) {
  const Launch& launch = dispatch.launch;
  const uint64_t groups = uint64_t{launch.groups.x} * launch.groups.y * launch.groups.z;
  const uint64_t size = uint64_t{launch.group_size.x} * launch.group_size.y * launch.group_size.z;
  if (groups == 0 || size == 0) return {};
  std::mutex mutex;
  std::string error;
  std::atomic<bool> failed{false};
  auto body = [&](uint64_t begin, uint64_t end) {
    if (failed.load(std::memory_order_relaxed)) return;
    watch_faults();
    Worker& worker = Worker::mine();
    worker.error.clear();
    Guard guard;
    guard.outer = current_guard();
    if (dispatch.checked) worker.checker()->begin(dispatch);
    Watch watch;
    if (sigsetjmp(guard.jump, 0) == 0) {
      current_guard() = &guard;
      for (uint64_t i = begin; i < end; i++) {
        Group group{};
        group.launch = &launch;
        group.position = {u32(i % launch.groups.x), u32(i / launch.groups.x % launch.groups.y),
                          u32(i / (uint64_t{launch.groups.x} * launch.groups.y))};
        const Dim3 &p = group.position, &g = launch.group_size, &t = launch.threads;
        group.size = {std::min(g.x, t.x - p.x * g.x), std::min(g.y, t.y - p.y * g.y),
                      std::min(g.z, t.z - p.z * g.z)};
        group.lanes = group.size.x * group.size.y * group.size.z;
        group.arena = worker.arena();
        if (dispatch.checked) worker.checker()->begin_group(i, group.lanes, worker.arena());
        if (dispatch.kernel->group)
          dispatch.kernel->group(&launch, &group);
        else if (!worker.run_group(dispatch.kernel, group, dispatch.threadgroup_bytes))
          break;
      }
    } else {
      worker.error = worker.on_stack(guard.fault.address)
                         ? "a thread's variables need more than " +
                               std::to_string((kStackBytes - 64 * kStackColors) / 1024) + " KB"
                         : describe_fault(guard.fault, dispatch);
      worker.reset();
    }
    current_guard() = guard.outer;
    if (worker.error.empty()) return;
    failed = true;
    std::lock_guard<std::mutex> lock(mutex);
    if (error.empty()) error = worker.error;
  };
  // The checker sees groups one after another.
  const u32 threads = dispatch.checked || groups * size < kParallelThreads ? 1 : workers();
  const uint64_t chunk = std::max<uint64_t>(1, std::max(groups / (uint64_t{threads} * 8), 2048 / size));
  if (threads == 1)
    body(0, groups);
  else
    Pool::run(groups, chunk, threads, body);
  return error;
}

}  // namespace lz
