// Operations among processes that each have a GPU, by NCCL, opened when it is first asked for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cuda/driver.h"

namespace lz {

// One operation as a member has it. Elements that are only moved are counted in bytes.
struct Collective {
  enum Kind : int { kAllReduce, kAllGather, kSumScatter, kBroadcast, kAllToAll, kSend, kReceive };
  int communicator;
  int kind;
  int type;           // ncclDataType_t
  int reduction;      // ncclRedOp_t
  int peer;           // the root, the destination or the source
  uint32_t count[2];  // elements of the input, or of what is received; the lower half first
};
constexpr size_t kCollectiveWords = sizeof(Collective) / sizeof(int);

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

  // Connects this process with the others, which do the same, and waits for them.
  std::string join(const CollectiveId& id, int rank, int size, uint32_t* communicator);
  // Adds an operation to a stream. Returns what is wrong, or an empty string.
  std::string run(const Collective& work, DevicePointer in, DevicePointer out, Stream stream);
  // Ends what runs, however far it has come; the communicators are of no use afterwards.
  void abort();
  void close();

 private:
  struct Communicator {
    void* handle;
    int size;
  };
  std::vector<Communicator> all_;
};

}  // namespace lz
