// The processors that a thread may run on, in a form that goes over connections, and shares of them.
#ifndef LAZULI_DISTRIBUTED_PROCESSORS_H
#define LAZULI_DISTRIBUTED_PROCESSORS_H

#include <cstdint>

namespace lazuli::dist {

// A bit each; of machines with more, the first.
struct Processors {
  uint64_t words[16];

  void set(int processor) { words[processor / 64] |= uint64_t(1) << processor % 64; }
  bool has(int processor) const { return words[processor / 64] >> processor % 64 & 1; }
  void add(const Processors& others);
  int count() const;
  static constexpr int kMost = 16 * 64;
};

// Those of the calling thread.
Processors own_processors();

// Keeps the calling thread, and the threads and processes that it starts, on one of so many equal shares of
// the processors that it had at the first call; the whole, as the only share, gives all back. Processors that
// share a core or a package come together. False where there are too few, or the system has no such wishes.
bool keep_on_share(int share, int shares);

}  // namespace lazuli::dist

#endif
