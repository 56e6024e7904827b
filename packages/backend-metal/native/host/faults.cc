#include "host/faults.h"

#include <ucontext.h>

#include <csignal>
#include <cstdlib>
#include <mutex>

#include "host/watchdog.h"

namespace lz {
namespace {

constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
struct sigaction before[4];

uintptr_t instruction_of(void* context) {
  const ucontext_t* c = static_cast<ucontext_t*>(context);
#if defined(__x86_64__)
  return static_cast<uintptr_t>(c->uc_mcontext.gregs[REG_RIP]);
#elif defined(__aarch64__)
  return static_cast<uintptr_t>(c->uc_mcontext.pc);
#else
  return 0;
#endif
}

// A dispatch's time is over: it is left where it executes a kernel, and interrupted again elsewhere.
void interrupt(int signal, siginfo_t* info, void* context) {
  Guard* guard = current_guard();
  if (!guard || !is_kernel_code(instruction_of(context))) return;
  guard->fault = {signal, 0};
  siglongjmp(guard->jump, 1);
}

void handle(int signal, siginfo_t* info, void* context) {
  if (Guard* guard = current_guard()) {
    guard->fault = {signal, reinterpret_cast<uintptr_t>(info->si_addr)};
    siglongjmp(guard->jump, 1);
  }
  // Not ours: whoever was here before decides.
  for (int i = 0; i < 4; i++) {
    if (kSignals[i] != signal) continue;
    const struct sigaction& old = before[i];
    if (old.sa_flags & SA_SIGINFO) return old.sa_sigaction(signal, info, context);
    if (old.sa_handler != SIG_DFL && old.sa_handler != SIG_IGN) return old.sa_handler(signal);
    sigaction(signal, &old, nullptr);  // the instruction faults again, with the default action
    return;
  }
}

}  // namespace

Guard*& current_guard() {
  static thread_local Guard* guard = nullptr;
  return guard;
}

void watch_faults() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action{};
    action.sa_sigaction = handle;
    // The signal must not stay blocked after the jump.
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    for (int i = 0; i < 4; i++) sigaction(kSignals[i], &action, &before[i]);
    action.sa_sigaction = interrupt;
    sigaction(kTimeSignal, &action, nullptr);
  });
  static thread_local bool ready = false;
  if (ready) return;
  ready = true;
  stack_t now;
  if (sigaltstack(nullptr, &now) == 0 && !(now.ss_flags & SS_DISABLE)) return;
  constexpr size_t kBytes = 64 * 1024;
  stack_t stack{};
  stack.ss_sp = std::malloc(kBytes);  // for as long as the thread lives
  stack.ss_size = kBytes;
  if (stack.ss_sp) sigaltstack(&stack, nullptr);
}

}  // namespace lz
