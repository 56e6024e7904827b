#include "host/watchdog.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "host/executor.h"
#include "host/faults.h"

namespace lz {
namespace {

constexpr int kThreads = 256;
constexpr auto kInterval = std::chrono::milliseconds(250);

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::atomic<double> limit{300};

// A thread that runs a dispatch, and since when; 0 where the entry is free.
struct Watched {
  std::atomic<double> since{0};
  pthread_t thread;
};
Watched threads[kThreads];
std::atomic<int> running{0};
std::atomic<bool> watching{false};
// A watched thread must not end while it is interrupted.
std::mutex mutex;

void watch() {
  for (int idle = 0; idle < 8;) {
    std::this_thread::sleep_for(kInterval);
    idle = running.load() > 0 ? 0 : idle + 1;
    const double most = limit.load(), time = now();
    if (most <= 0) continue;
    std::lock_guard<std::mutex> lock(mutex);
    for (Watched& each : threads) {
      const double since = each.since.load();
      if (since > 0 && time - since > most) pthread_kill(each.thread, kTimeSignal);
    }
  }
  watching = false;
}

struct Code {
  uintptr_t begin, end;
};
constexpr int kMaxCode = 1 << 16;
Code code[kMaxCode];
std::atomic<int> codes{0};

}  // namespace

double time_limit() { return limit; }
void set_time_limit(double seconds) { limit = seconds; }

Watch::Watch() : entry_(-1) {
  if (limit.load(std::memory_order_relaxed) <= 0) return;
  for (int i = 0; i < kThreads; i++) {
    double free = 0;
    if (threads[i].since.load(std::memory_order_relaxed) != 0 ||
        !threads[i].since.compare_exchange_strong(free, -1))
      continue;
    threads[i].thread = pthread_self();
    threads[i].since = now();
    entry_ = i;
    break;
  }
  if (entry_ < 0) return;
  running++;
  if (!watching.exchange(true)) std::thread(watch).detach();
}

Watch::~Watch() {
  if (entry_ < 0) return;
  running--;
  if (limit.load(std::memory_order_relaxed) < now() - threads[entry_].since.load()) {
    // The watcher may be about to interrupt this thread.
    std::lock_guard<std::mutex> lock(mutex);
    threads[entry_].since = 0;
  } else
    threads[entry_].since = 0;
}

void add_kernel_code(const void* in_library) {
  Dl_info info;
  if (!dladdr(in_library, &info)) return;
  struct Find {
    uintptr_t base;
    Code found;
  } find{reinterpret_cast<uintptr_t>(info.dli_fbase), {0, 0}};
  dl_iterate_phdr(
      [](dl_phdr_info* library, size_t, void* data) {
        Find* f = static_cast<Find*>(data);
        if (library->dlpi_addr != f->base) return 0;
        for (int i = 0; i < library->dlpi_phnum; i++) {
          const auto& part = library->dlpi_phdr[i];
          if (part.p_type == PT_LOAD && (part.p_flags & PF_X))
            f->found = {f->base + part.p_vaddr, f->base + part.p_vaddr + part.p_memsz};
        }
        return 1;
      },
      &find);
  static std::mutex adding;
  std::lock_guard<std::mutex> lock(adding);
  const int count = codes;
  if (!find.found.begin || count == kMaxCode) return;
  for (int i = 0; i < count; i++)
    if (code[i].begin == find.found.begin) return;
  code[count] = find.found;
  codes = count + 1;
}

bool is_kernel_code(uintptr_t instruction) {
  const int count = codes;
  for (int i = 0; i < count; i++)
    if (instruction >= code[i].begin && instruction < code[i].end) return true;
  return false;
}

}  // namespace lz
