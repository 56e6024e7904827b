#include "runtime/processors.h"

#if defined(__linux__)
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#endif

#include <algorithm>
#include <thread>

namespace lazuli {

#if defined(__linux__)
namespace {

// At the process's start: parts of its pool are kept on fewer.
const cpu_set_t& allowed() {
  static const cpu_set_t set = [] {
    cpu_set_t now;
    if (sched_getaffinity(0, sizeof now, &now) != 0) CPU_ZERO(&now);
    return now;
  }();
  return set;
}

}  // namespace

int processors() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, int(std::thread::hardware_concurrency()));
}

bool few_processors() {
  static const int count = CPU_COUNT(&allowed());
  return count > 1 && count <= kFewProcessors;
}

int current_processor() {
  const int here = sched_getcpu();
  return here >= 0 && CPU_ISSET(here, &allowed()) ? here : -1;
}

int thread_id() { return int(syscall(SYS_gettid)); }

void keep_off(int thread, int processor) {
  cpu_set_t others = allowed();
  if (processor >= 0) CPU_CLR(processor, &others);
  sched_setaffinity(thread, sizeof others, &others);
}

bool keep_on(int thread, int processor) {
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(processor, &only);
  return sched_setaffinity(thread, sizeof only, &only) == 0;
}

std::optional<std::chrono::nanoseconds> used_time(int thread) {
  // As pthread_getcpuclockid() makes it of a thread's number.
  const auto clock = clockid_t(~unsigned(thread) << 3 | 6);
  timespec time{};
  if (clock_gettime(clock, &time) != 0) return std::nullopt;
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}
#else
int processors() { return std::max(1, int(std::thread::hardware_concurrency())); }
bool few_processors() { return false; }
int current_processor() { return -1; }
int thread_id() { return 0; }
void keep_off(int, int) {}
bool keep_on(int, int) { return false; }
std::optional<std::chrono::nanoseconds> used_time(int) { return std::nullopt; }
#endif

}  // namespace lazuli
