// Operations among processes that each have a GPU, by NCCL, opened when it is first asked for.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "cuda/driver.h"

namespace lz {

// One operation as a member has it, on one array or several. Elements that are only moved are counted in
// bytes.
struct Collective {
  enum Kind : int { kAllReduce, kAllGather, kSumScatter, kBroadcast, kAllToAll, kSend, kReceive };
  struct Part {
    int type;           // ncclDataType_t
    uint32_t count[2];  // elements of the input, or of what is received; the lower half first
    DevicePointer in, out;
  };
  int communicator;
  int kind;
  int reduction;  // ncclRedOp_t
  int peer;       // the root, the destination or the source
  std::vector<Part> parts;
};
// Words of an operation before those of its parts, and of a part.
constexpr uint32_t kCollectiveWords = 4, kPartWords = 3;

// Members find each other by these bytes, which one of them makes.
struct CollectiveId {
  char bytes[128];
};

// Opens the library. Returns what is wrong, or an empty string.
std::string open_collectives(const std::vector<std::string>& candidates, std::string* path);
std::string new_collective_id(CollectiveId* id);

class Collectives {
 public:
  Collectives() = default;
  Collectives(const Collectives&) = delete;
  ~Collectives() { close(); }

  // Begins to connect this process with the others, which do the same. NCCL's call does not return where one
  // of them is gone, so it is made on a thread, in which `enter` is called first.
  std::string begin_join(const CollectiveId& id, int rank, int size, std::function<std::string()> enter);
  // Waits so long for it; `done` tells if it has ended.
  std::string end_join(int milliseconds, uint32_t* communicator, bool* done);
  // Adds an operation to a stream. Returns what is wrong, or an empty string.
  std::string run(const Collective& work, Stream stream);
  // Around work that is handed over, with graphs of such operations: they are ended behind it.
  void begin_work();
  void end_work();
  // Ends what runs, however far it has come, and gives up joining; the communicators are of no use
  // afterwards. Does not wait for that.
  void abort();
  // Does so too once a file can be read from, also while this thread waits in the driver for what would not
  // end. It is closed here. The last one given counts.
  void abort_by(int alarm);
  void close();

 private:
  struct Communicator {
    void* handle;
    int size;
  };
  void abort_all();
  void stop_listening();
  std::string call(const Collective& work, Stream stream);
  std::string call(const Collective& work, const Collective::Part& part, Stream stream);
  std::vector<Communicator> all_;
  std::mutex guard_;  // of those
  bool is_working_ = false;
  std::condition_variable worked_;
  std::vector<std::thread> aborting_;
  std::thread listener_;
  int stop_[2] = {-1, -1};
  struct Joining;
  std::shared_ptr<Joining> joining_;
};

}  // namespace lz
