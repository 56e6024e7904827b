// Symbols that GCC's and the system's static libraries ask of a glibc newer than 2.28, for addons that must
// do without it. They are hidden: nothing outside the addon sees them.

#include <link.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

namespace {

/** The answer to the unwinder, about one address; laid out as glibc 2.35 declares struct dl_find_object. */
struct FoundObject {
  unsigned long long flags;
  void* start;
  void* end;
  struct link_map* link_map;
  void* eh_frame;
  unsigned long long reserved[7];
};

struct Search {
  uintptr_t address;
  FoundObject* result;
};

int look_at(struct dl_phdr_info* info, size_t, void* data) {
  auto* search = static_cast<Search*>(data);
  bool holds = false;
  uintptr_t start = UINTPTR_MAX, end = 0;
  void* eh_frame = nullptr;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const auto& header = info->dlpi_phdr[i];
    const uintptr_t from = info->dlpi_addr + header.p_vaddr;
    if (header.p_type == PT_GNU_EH_FRAME) eh_frame = reinterpret_cast<void*>(from);
    if (header.p_type != PT_LOAD) continue;
    const uintptr_t to = from + header.p_memsz;
    if (from < start) start = from;
    if (to > end) end = to;
    if (search->address >= from && search->address < to) holds = true;
  }
  if (!holds || !eh_frame) return 0;
  *search->result = {};
  search->result->start = reinterpret_cast<void*>(start);
  search->result->end = reinterpret_cast<void*>(end);
  search->result->eh_frame = eh_frame;
  return 1;
}

}  // namespace

#define LAZULI_HIDDEN __attribute__((visibility("hidden")))
extern "C" {

// 2.35
LAZULI_HIDDEN int lazuli_find_object(void* address, FoundObject* result) __asm__("_dl_find_object");
int lazuli_find_object(void* address, FoundObject* result) {
  Search search{reinterpret_cast<uintptr_t>(address), result};
  return dl_iterate_phdr(look_at, &search) ? 0 : -1;
}

// 2.32; false is right in every program.
extern LAZULI_HIDDEN char lazuli_single_threaded __asm__("__libc_single_threaded");
char lazuli_single_threaded = 0;

// 2.36
LAZULI_HIDDEN uint32_t lazuli_arc4random() __asm__("arc4random");
uint32_t lazuli_arc4random() {
  uint32_t value;
  if (getentropy(&value, sizeof value) != 0) abort();
  return value;
}

// 2.29 and 2.35 have functions that do not set errno; the older ones of these names do, at a cost of a
// quarter. Those that older versions of <math.h> chose for -ffinite-math-only do not set it either, and are
// right for all arguments.
#define LAZULI_FUNCTION(type, name, parameters, arguments)    \
  type __##name##_finite parameters;                          \
  LAZULI_HIDDEN type lazuli_##name parameters __asm__(#name); \
  type lazuli_##name parameters { return __##name##_finite arguments; }
LAZULI_FUNCTION(double, exp, (double x), (x))
LAZULI_FUNCTION(double, log, (double x), (x))
LAZULI_FUNCTION(double, log2, (double x), (x))
LAZULI_FUNCTION(double, pow, (double x, double y), (x, y))
LAZULI_FUNCTION(float, hypotf, (float x, float y), (x, y))

}  // extern "C"
