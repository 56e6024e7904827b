// The fake's GPU: a thread that begins only when somebody waits for it, or when much is under way, so that
// what is read too early is not there yet. Dispatches with no barrier between run in the reverse order. It
// knows what runs before what by barriers, fences, events and the host's waiting, and holds every dispatch to
// it.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <thread>

#include "fake/metal.h"
#include "host/executor.h"

namespace lz::fake {
namespace {

// More command buffers than these run without being waited for.
constexpr int kPatience = 8;

struct Gpu {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Queue*> queues;  // with committed work
  int waiting = 0, pending = 0;
  uint64_t time = 0, dispatches = 0;
};
Gpu& gpu() {
  static Gpu* made = new Gpu;  // its thread outlives main
  return *made;
}

bool is_blocked(const Commands& c) {
  if (c.is_lost) return true;
  if (c.failure || c.next >= c.steps.size()) return false;
  const Step& step = c.steps[c.next];
  return step.kind == Step::kWait && static_cast<Event*>(step.object)->value < step.value;
}

// Adds works that the host does not know the end of.
void add_works(Work& to, const Works& works) {
  for (const auto& each : works)
    if (each->observed_at > to.committed_at && each.get() != &to) to.before.insert(each);
}
Works up_to(const std::shared_ptr<Work>& work) {
  Works all = work->before;
  all.insert(work);
  return all;
}

bool conflicts(const Access& before, const Access& now) {
  if (!before.writes && !now.writes) return false;
  if (before.encoder == now.encoder)
    // Dispatches that begin elsewhere may have parts of their own.
    return before.dispatch != now.dispatch && before.interval == now.interval && before.offset == now.offset;
  if (before.encoder->observed_at < now.encoder->committed_at) return false;
  return !now.encoder->before.count(before.encoder);
}

void note_access(Buffer& buffer, const Access& now, const std::string& kernel, uint32_t index) {
  for (const Access& before : buffer.accesses) {
    if (!conflicts(before, now)) continue;
    const bool one = before.encoder == now.encoder;
    violation(kernel + ": " + (now.writes ? "writes" : "reads") + " the buffer at index " +
              std::to_string(index) + ", which an earlier " + (one ? "dispatch" : "encoder") + " " +
              (before.writes ? "writes" : "reads") + ", with no " + (one ? "barrier" : "fence or event") +
              " between");
    break;
  }
  auto& all = buffer.accesses;
  for (size_t i = 0; i < all.size();) {
    const bool over = all[i].encoder->observed_at < now.encoder->committed_at ||
                      (now.writes && all[i].offset == now.offset && all[i].dispatch != now.dispatch);
    if (over) {
      all[i] = all.back();
      all.pop_back();
    } else
      i++;
  }
  all.push_back(now);
}

// The fault, or nothing.
std::string run_kernel(Run& r) {
  bool is_gone = r.pipeline->is_gone;
  for (const Run::Bound& each : r.bound) is_gone = is_gone || (each.buffer && each.buffer->is_gone);
  if (is_gone) return "what it is bound to was released";
  static char* scratch = nullptr;
  if (!scratch) scratch = new char[kBuffers * 4096 + 64];
  char* const aligned = scratch + 63 - reinterpret_cast<uintptr_t>(scratch + 63) % 64;
  lz::Dispatch d{};
  d.kernel = r.pipeline->kernel;
  d.checked = r.pipeline->is_checked;
  const Dim3 size{u32(r.group.width), u32(r.group.height), u32(r.group.depth)};
  const Dim3 grid{u32(r.grid.width), u32(r.grid.height), u32(r.grid.depth)};
  d.launch.group_size = size;
  const auto groups = [](uint64_t threads, uint64_t of) { return u32((threads + of - 1) / of); };
  d.launch.threads = r.in_threads ? grid : Dim3{grid.x * size.x, grid.y * size.y, grid.z * size.z};
  d.launch.groups =
      r.in_threads ? Dim3{groups(grid.x, size.x), groups(grid.y, size.y), groups(grid.z, size.z)} : grid;
  uint32_t offset = 0;
  for (uint32_t i = 0; i < kBuffers; i++) {
    d.launch.threadgroup_offset[i] = offset;
    offset += u32(r.memory[i]);
    Run::Bound& bound = r.bound[i];
    if (bound.buffer) {
      Block& b = *bound.buffer->block;
      d.bindings[i] = {b.data + bound.offset, b.length - bound.offset, b.reach ? b.reach - bound.offset : 0,
                       false};
    } else if (!bound.bytes.empty()) {
      char* const copy = aligned + i * 4096;
      std::memcpy(copy, bound.bytes.data(), bound.bytes.size());
      d.bindings[i] = {copy, bound.bytes.size(), 0, true};
    }
    d.launch.buffers[i] = d.bindings[i].data ? d.bindings[i].data : unbound_memory();
  }
  d.threadgroup_bytes = offset;
  const std::string error = lz::run(d);
  return error.empty() ? error : r.pipeline->declared.name + ": " + error;
}

// Runs a command buffer until it ends or waits for an event. Called with the lock.
void advance(Commands& c, std::unique_lock<std::mutex>& lock) {
  Gpu& g = gpu();
  UInteger interval = 0;
  while (!c.failure && c.next < c.steps.size() && !is_blocked(c)) {
    Step& step = c.steps[c.next];
    switch (step.kind) {
      case Step::kEncoder:
      case Step::kEnd:
      case Step::kBarrier:
        interval++;
        break;
      case Step::kWaitFence:
        if (static_cast<Fence*>(step.object)->queue == c.queue)
          add_works(*step.work, static_cast<Fence*>(step.object)->after);
        break;
      case Step::kUpdateFence:
        static_cast<Fence*>(step.object)->after = up_to(step.work);
        static_cast<Fence*>(step.object)->queue = c.queue;
        break;
      case Step::kSignal: {
        Event& event = *static_cast<Event*>(step.object);
        if (event.value >= step.value)
          violation("an event is set to " + std::to_string(step.value) + ", and was at " +
                    std::to_string(event.value));
        event.value = std::max(event.value, step.value);
        Works& ended = event.signals[step.value];
        for (size_t i = 0; i < c.next; i++)
          if (c.steps[i].kind == Step::kEncoder)
            for (const auto& each : up_to(c.steps[i].work)) ended.insert(each);
        g.changed.notify_all();
        break;
      }
      case Step::kWait: {
        Event& event = *static_cast<Event*>(step.object);
        const auto signal = event.signals.lower_bound(step.value);
        if (signal != event.signals.end() && step.value > event.known)
          for (size_t i = c.next; i < c.steps.size(); i++)
            if (c.steps[i].kind == Step::kEncoder) add_works(*c.steps[i].work, signal->second);
        break;
      }
      case Step::kRun: {
        // All up to the next barrier, the last one first.
        size_t end = c.next;
        while (end < c.steps.size() && c.steps[end].kind == Step::kRun) end++;
        bool is_serial = false;
        for (size_t i = 0; i < c.next; i++)
          if (c.steps[i].kind == Step::kEncoder) is_serial = c.steps[i].is_serial;
        for (size_t i = c.next; i < end; i++) {
          const uint64_t number = ++g.dispatches;
          if (is_serial) interval++;
          for (const Parameter& p : c.steps[i].run->pipeline->declared.buffers)
            if (Buffer* buffer = c.steps[i].run->bound[p.index].buffer)
              note_access(
                  *buffer,
                  {c.steps[i].work, interval, c.steps[i].run->bound[p.index].offset, number, p.is_written},
                  c.steps[i].run->pipeline->declared.name, p.index);
        }
        const size_t from = c.next;
        std::string problem;
        lock.unlock();
        for (size_t i = 0; i < end - from && problem.empty(); i++)
          problem = run_kernel(*c.steps[is_serial ? from + i : end - 1 - i].run);
        lock.lock();
        c.next = end - 1;
        if (!problem.empty()) c.failure = make<Error>(3, problem);
        break;
      }
    }
    c.next++;
  }
  if (is_blocked(c) || (!c.failure && c.next < c.steps.size())) return;
  c.state = c.failure ? 5 : 4;
  for (const Step& step : c.steps)
    if (step.kind == Step::kEncoder) step.work->before.clear();
  c.give_back();
  Queue* queue = c.queue;
  queue->committed.erase(queue->committed.begin());
  queue->unended--;
  if (queue->committed.empty()) std::erase(g.queues, queue);
  g.pending--;
  g.changed.notify_all();
  lock.unlock();
  release(&c);
  lock.lock();
}

void run_gpu() {
  Gpu& g = gpu();
  std::unique_lock<std::mutex> lock(g.mutex);
  for (;;) {
    Commands* ready = nullptr;
    if (g.waiting > 0 || g.pending > kPatience)
      for (Queue* queue : g.queues)
        if (!is_blocked(*queue->committed.front())) ready = queue->committed.front();
    if (ready)
      advance(*ready, lock);
    else
      g.changed.wait(lock);
  }
}

}  // namespace

std::mutex& gpu_mutex() { return gpu().mutex; }
uint64_t now() { return ++gpu().time; }

void gpu_take(Commands* commands) {
  Gpu& g = gpu();
  static std::once_flag once;
  std::call_once(once, [] { std::thread(run_gpu).detach(); });
  std::lock_guard<std::mutex> lock(g.mutex);
  retain(commands);
  commands->state = 2;
  commands->committed_at = now();
  for (Step& step : commands->steps)
    if (step.kind == Step::kEncoder) step.work->committed_at = now();
  Queue* queue = commands->queue;
  if (queue->committed.empty()) g.queues.push_back(queue);
  queue->committed.push_back(commands);
  g.pending++;
  g.changed.notify_all();
}

bool gpu_wait(const std::function<bool()>& done, uint64_t milliseconds) {
  Gpu& g = gpu();
  std::unique_lock<std::mutex> lock(g.mutex);
  g.waiting++;
  g.changed.notify_all();
  bool over = true;
  if (milliseconds == kNever)
    g.changed.wait(lock, done);
  else
    over = g.changed.wait_for(lock, std::chrono::milliseconds(milliseconds), done);
  g.waiting--;
  return over;
}

// Events

uint64_t Event::signaled() {
  std::lock_guard<std::mutex> lock(gpu_mutex());
  uint64_t oldest = kNever;
  for (const Queue* queue : gpu().queues) oldest = std::min(oldest, queue->committed.front()->committed_at);
  for (auto each = signals.begin(); each != signals.end() && each->first <= value;) {
    // Work committed before the host knew may still wait for it: only the signal orders that.
    bool is_over = true;
    for (const auto& work : each->second) {
      is_over = is_over && work->observed_at < oldest;
      if (work->observed_at == kNever) work->observed_at = now();
    }
    if (is_over) known = std::max(known, each->first);
    each = is_over ? signals.erase(each) : std::next(each);
  }
  return value;
}
void Event::set(uint64_t v) {
  std::lock_guard<std::mutex> lock(gpu_mutex());
  if (v < value)
    violation("setSignaledValue: goes back from " + std::to_string(value) + " to " + std::to_string(v));
  value = v;
  gpu().changed.notify_all();
}
bool Event::wait(uint64_t v, uint64_t milliseconds) {
  const bool over = gpu_wait([&] { return value >= v; }, milliseconds);
  if (over) signaled();
  return over;
}

}  // namespace lz::fake
