// A queue of the GPU: streams of commands become command buffers, of which several may be under way.
#pragma once

#include <deque>
#include <functional>
#include <memory>

#include "apple/encoder.h"

namespace lz::apple {

class Queue {
 public:
  // Waiting ends with a failure after `time_limit` seconds, or never if that is 0. `release_others` calls
  // release_waiting of all queues.
  Queue(Id device, Tables& tables, const double& time_limit, std::function<void()> release_others);

  Id object() const { return queue_; }
  // A command buffer of submission `number`. It goes unless it is committed.
  std::unique_ptr<Encoder> begin(uint64_t number, State& state);
  // One that began here, the last one.
  void commit(Encoder& encoder);
  // An event, and the value that it has once all that was committed has ended.
  Id ended() const { return ended_; }
  uint64_t last() const { return stamps_; }
  // Ends the waiting of other queues for work that has failed.
  void release_waiting();
  // Waits for all submissions up to one.
  void drain(uint64_t number);
  // Then gives what was wrong with it, once.
  std::string wait(uint64_t number);
  // True where all submissions up to one have ended, so that what they use may go.
  bool done(uint64_t number) const;

 private:
  std::string conclude(const Flight& flight);
  void land();
  bool waits_in_vain(const Flight& flight, bool set_them);

  Tables& tables_;
  const double& time_limit_;
  std::function<void()> release_others_;
  Owned queue_, fence_, ended_;
  uint64_t stamps_ = 0;
  std::deque<Flight> flying_;
  std::vector<std::pair<uint64_t, std::string>> failures_;
  std::string lost_;  // why nothing can run any more
};

}  // namespace lz::apple
