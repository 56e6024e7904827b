// A queue of the GPU: streams of commands become command buffers, of which several may be under way.
//
// Resources are untracked, so that Metal orders nothing by itself: within an encoder dispatches may overlap
// up to a barrier, and each encoder waits for a fence that the one before updates.
#pragma once

#include <deque>

#include "apple/objc.h"

namespace lz::apple {

constexpr uint32_t kBuffers = 31;

struct Buffer {
  Owned object;
  size_t length = 0;
  char* data = nullptr;
  uint64_t last_use = 0;  // a submission
  bool wired = false;
};

// A counter that orders queues.
struct Event {
  Owned object;
  uint64_t promised = 0;  // the greatest value that committed work will set
};

// The objects that the numbers in a stream stand for.
struct Tables {
  std::vector<Buffer> buffers;
  std::vector<Owned> pipelines;
  std::vector<Event> events;
};

// Events and the values that they get or wait for.
using Events = std::vector<std::pair<uint32_t, uint64_t>>;

class Queue {
 public:
  // Waiting ends with a failure after `time_limit` seconds, or never if that is 0.
  Queue(Id device, Tables& tables, const double& time_limit);

  Id object() const { return queue_; }
  // Hands words over as submission `number`. A failure leaves nothing of them behind.
  void commit(uint64_t number, const uint32_t* words, size_t count);
  // Waits for all submissions up to one.
  void drain(uint64_t number);
  // Then gives what was wrong with it, once.
  std::string wait(uint64_t number);
  // True where all submissions up to one have ended, so that what they use may go.
  bool done(uint64_t number) const;

 private:
  struct Flight {
    uint64_t number;
    Owned commands;
    uint64_t stamp;  // of ended_, once it is over
    Events waits;    // that nothing before in it ends
    Events signals;
  };
  class Encoder;

  std::string conclude(const Flight& flight);
  void land();
  bool waits_in_vain(const Flight& flight, bool set_them);

  Tables& tables_;
  const double& time_limit_;
  Owned queue_, fence_, ended_;
  bool fence_is_used_ = false;
  uint64_t stamps_ = 0;
  std::deque<Flight> flying_;
  std::vector<std::pair<uint64_t, std::string>> failures_;
  std::string lost_;  // why nothing can run any more
  uint64_t last_ = 0;
};

}  // namespace lz::apple
