#include "host/fiber.h"

#include <sys/mman.h>

#if defined(LAZULI_UCONTEXT) || (!defined(__x86_64__) && !defined(__aarch64__))
#define USE_UCONTEXT 1
#include <ucontext.h>
#endif

namespace lz {
namespace {

constexpr size_t kPage = 4096;
constexpr u32 kBatch = 32;  // stacks mapped at once

}  // namespace

#if defined(USE_UCONTEXT)

// Elsewhere the C library's contexts, some 250 ns a switch: each stack keeps its context, and the pointer
// names it.
namespace {
struct Saved {
  ucontext_t context;
};
}  // namespace
void switch_stack(void** from, void* to) {
  Saved here;
  *from = &here;
  swapcontext(&here.context, &static_cast<Saved*>(to)->context);
}
void prepare(Fiber* fiber, void (*entry)()) {
  const uintptr_t base = reinterpret_cast<uintptr_t>(fiber) & ~(uintptr_t{kStackBytes} - 1);
  Saved* saved = reinterpret_cast<Saved*>(fiber) - 1;
  getcontext(&saved->context);
  saved->context.uc_stack.ss_sp = reinterpret_cast<void*>(base + kPage);
  saved->context.uc_stack.ss_size = (reinterpret_cast<uintptr_t>(saved) & ~uintptr_t{15}) - base - kPage;
  saved->context.uc_link = nullptr;
  makecontext(&saved->context, entry, 0);
  fiber->stack = saved;
}

#elif defined(__x86_64__)

// System V: rbx, rbp and r12 to r15 belong to the caller.
asm(R"(
.text
.p2align 4
.globl lazuli_metal_switch
.hidden lazuli_metal_switch
.type lazuli_metal_switch, @function
lazuli_metal_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size lazuli_metal_switch, .-lazuli_metal_switch
)");
extern "C" void lazuli_metal_switch(void** from, void* to);
void switch_stack(void** from, void* to) { lazuli_metal_switch(from, to); }

void prepare(Fiber* fiber, void (*entry)()) {
  void** frame = reinterpret_cast<void**>(fiber) - 8;
  for (int i = 0; i < 6; i++) frame[i] = nullptr;
  frame[6] = reinterpret_cast<void*>(entry);
  frame[7] = nullptr;  // where entry would return to; leaves the stack aligned as after a call
  fiber->stack = frame;
}

#elif defined(__aarch64__)

// AAPCS64: x19 to x30 and the low halves of v8 to v15 belong to the caller.
asm(R"(
.text
.p2align 4
.globl lazuli_metal_switch
.hidden lazuli_metal_switch
.type lazuli_metal_switch, %function
lazuli_metal_switch:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x2, sp
  str x2, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size lazuli_metal_switch, .-lazuli_metal_switch
)");
extern "C" void lazuli_metal_switch(void** from, void* to);
void switch_stack(void** from, void* to) { lazuli_metal_switch(from, to); }

void prepare(Fiber* fiber, void (*entry)()) {
  void** frame = reinterpret_cast<void**>(fiber) - 20;
  for (int i = 0; i < 20; i++) frame[i] = nullptr;
  frame[11] = reinterpret_cast<void*>(entry);  // x30, the return address
  fiber->stack = frame;
}

#endif

Stacks::~Stacks() {
  for (const auto& [start, size] : regions_) munmap(start, size);
}

bool Stacks::contains(uintptr_t address) const {
  for (const auto& [start, size] : regions_)
    if (address - reinterpret_cast<uintptr_t>(start) < size) return true;
  return false;
}

Fiber* Stacks::fiber(u32 index) {
  while (fibers_.size() <= index) {
    const size_t size = (kBatch + 1) * kStackBytes;
    void* start =
        mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED) return nullptr;
    regions_.emplace_back(start, size);
    const uintptr_t first =
        (reinterpret_cast<uintptr_t>(start) + kStackBytes - 1) & ~(uintptr_t{kStackBytes} - 1);
    for (u32 i = 0; i < kBatch; i++) {
      const uintptr_t base = first + i * kStackBytes;
      // A stack that overflows must not run into the fiber below.
      mprotect(reinterpret_cast<void*>(base), kPage, PROT_NONE);
      fibers_.push_back(fiber_of(base));
    }
  }
  return fibers_[index];
}

}  // namespace lz
