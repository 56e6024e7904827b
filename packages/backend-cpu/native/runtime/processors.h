// The processors that this process may use, and which of them its threads are on. Elsewhere than on Linux
// threads cannot be moved: nothing happens, and nothing is known.
#ifndef LAZULI_RUNTIME_PROCESSORS_H
#define LAZULI_RUNTIME_PROCESSORS_H

#include <chrono>
#include <optional>

namespace lazuli {

// The processors that this process may use now.
int processors();
// True if there are so few that it matters which of them a thread is on.
inline constexpr int kFewProcessors = 8;
bool few_processors();
// The calling thread's processor; -1 where that is not known, or not one that it could be kept off.
int current_processor();

// The kernel's number of the calling thread.
int thread_id();
// Lets a thread run on all processors but one, or on all where that is -1.
void keep_off(int thread, int processor);
// Moves a thread to a processor, and keeps it there. False where it cannot be.
bool keep_on(int thread, int processor);
// The processor time that a thread has used; nothing where the kernel does not tell.
std::optional<std::chrono::nanoseconds> used_time(int thread);

}  // namespace lazuli

#endif
