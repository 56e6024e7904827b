// A few threads that share chunks of one range with the caller, who never waits for a thread that has not
// begun.
#pragma once

#include <cstdint>
#include <functional>

namespace lz {

class Pool {
 public:
  // Calls body(begin, end) for chunks of [0, count) on up to `threads` threads, the caller included.
  static void run(uint64_t count, uint64_t chunk, unsigned threads,
                  const std::function<void(uint64_t, uint64_t)>& body);
};

}  // namespace lz
