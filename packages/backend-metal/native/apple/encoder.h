// Writes commands into a command buffer. Resources are untracked, so that Metal orders nothing by itself:
// within an encoder dispatches may overlap up to a barrier, and each encoder waits for a fence that the one
// before updates.
#pragma once

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

// Opcodes, as gpu-kernels/src/runtime/command-stream.ts numbers them.
enum class Op : uint32_t {
  kPipeline = 1,
  kBuffer = 2,
  kBytes = 3,
  kThreadgroup = 4,
  kThreads = 5,
  kThreadgroups = 6,
  kBarrier = 7,
  kSignal = 8,
  kWait = 9,
  kUseStream = 11,
  kJoin = 12,
};

// The state that a stream has set for its dispatches, on any queue: records in its words.
struct State {
  const uint32_t* pipeline = nullptr;
  const uint32_t* bound[kBuffers] = {};
  const uint32_t* memory[kBuffers] = {};
};

// Events and the values that they get or wait for.
using Events = std::vector<std::pair<uint32_t, uint64_t>>;

// A command buffer and what is known of it.
struct Flight {
  uint64_t number;  // its submission
  Owned commands;
  uint64_t stamp;  // of its queue's event, once it is over
  Events waits;    // that nothing before in it ends
  Events signals;
};

class Encoder {
 public:
  // `is_fenced`: the fence was updated before.
  Encoder(Tables& tables, State& state, Id fence, bool is_fenced, Flight flight)
      : tables_(tables), state_(state), fence_(fence), is_fenced_(is_fenced), flight_(std::move(flight)) {}
  ~Encoder() { end(); }

  void record(Op op, const uint32_t* w, uint32_t size);
  // Ends the encoder: work of another queue may follow, and that of this one has an encoder of its own.
  void end();
  // Lets the work that follows wait until another queue's event has a value.
  void wait(Id event, uint64_t value);
  // The command buffer, whose end is that of all work before it too.
  Flight take();

 private:
  void begin();
  void bind(uint32_t index);
  void dispatch(const uint32_t* w, bool in_threads);

  Tables& tables_;
  State& state_;
  Id fence_;
  bool is_fenced_, has_work_ = false;
  Flight flight_;
  Id encoder_ = nullptr;  // the command buffer's
};

[[noreturn]] void malformed();

}  // namespace lz::apple
