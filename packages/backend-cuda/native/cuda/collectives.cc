#include "cuda/collectives.h"

namespace lz {
namespace {

// ncclDataType_t
constexpr int kBytes = 0;

#define LZ_COLLECTIVE_CALLS(X)                                                               \
  X(GetUniqueId, "ncclGetUniqueId", CollectiveId*)                                           \
  X(CommInitRank, "ncclCommInitRank", void**, int, CollectiveId, int)                        \
  X(CommDestroy, "ncclCommDestroy", void*)                                                   \
  X(CommAbort, "ncclCommAbort", void*)                                                       \
  X(AllReduce, "ncclAllReduce", const void*, void*, size_t, int, int, void*, Stream)         \
  X(AllGather, "ncclAllGather", const void*, void*, size_t, int, void*, Stream)              \
  X(ReduceScatter, "ncclReduceScatter", const void*, void*, size_t, int, int, void*, Stream) \
  X(Broadcast, "ncclBroadcast", const void*, void*, size_t, int, int, void*, Stream)         \
  X(Send, "ncclSend", const void*, size_t, int, int, void*, Stream)                          \
  X(Recv, "ncclRecv", void*, size_t, int, int, void*, Stream)                                \
  X(GroupStart, "ncclGroupStart")                                                            \
  X(GroupEnd, "ncclGroupEnd")

struct Library {
#define LZ_MEMBER(name, symbol, ...) int (*name)(__VA_ARGS__) = nullptr;
  LZ_COLLECTIVE_CALLS(LZ_MEMBER)
#undef LZ_MEMBER
  const char* (*GetErrorString)(int) = nullptr;
  std::string path;
};

OpenedLibrary<Library> opened;

const Library* library() { return opened.get(); }

std::string outcome(const Library& lib, const char* what, int status) {
  return status ? std::string(what) + " failed: " + lib.GetErrorString(status) : std::string();
}

}  // namespace

std::string open_collectives(const std::vector<std::string>& candidates, std::string* path) {
  return opened.open(candidates, path, [](Library& table, Symbols& symbols) {
#define LZ_BIND(name, symbol, ...) symbols.bind(table.name, symbol);
    LZ_COLLECTIVE_CALLS(LZ_BIND)
#undef LZ_BIND
    symbols.bind(table.GetErrorString, "ncclGetErrorString");
  });
}

std::string new_collective_id(CollectiveId* id) {
  const Library* lib = library();
  return lib ? outcome(*lib, "ncclGetUniqueId", lib->GetUniqueId(id)) : "NCCL has not been opened";
}

std::string Collectives::join(const CollectiveId& id, int rank, int size, uint32_t* communicator) {
  const Library* lib = library();
  if (!lib) return "NCCL has not been opened";
  void* handle = nullptr;
  if (const int status = lib->CommInitRank(&handle, size, id, rank))
    return outcome(*lib, "ncclCommInitRank", status);
  *communicator = uint32_t(all_.size());
  all_.push_back({handle, size});
  return {};
}

std::string Collectives::run(const Collective& w, DevicePointer in, DevicePointer out, Stream stream) {
  const Library* lib = library();
  if (!lib || w.communicator < 0 || size_t(w.communicator) >= all_.size())
    return "there is no such communicator";
  const auto [comm, size] = all_[size_t(w.communicator)];
  if (!comm) return "the group's communicator was ended";
  const size_t count = w.count[0] | size_t{w.count[1]} << 32;
  const auto* from = reinterpret_cast<const char*>(in);
  auto* to = reinterpret_cast<char*>(out);
  switch (w.kind) {
    case Collective::kAllReduce:
      return outcome(*lib, "ncclAllReduce",
                     lib->AllReduce(from, to, count, w.type, w.reduction, comm, stream));
    case Collective::kAllGather:
      return outcome(*lib, "ncclAllGather", lib->AllGather(from, to, count, w.type, comm, stream));
    case Collective::kSumScatter:
      return outcome(*lib, "ncclReduceScatter",
                     lib->ReduceScatter(from, to, count / size_t(size), w.type, w.reduction, comm, stream));
    case Collective::kBroadcast:
      return outcome(*lib, "ncclBroadcast", lib->Broadcast(from, to, count, w.type, w.peer, comm, stream));
    case Collective::kAllToAll: {
      const size_t part = count / size_t(size);
      int status = lib->GroupStart();
      for (int r = 0; r < size && !status; r++) {
        status = lib->Send(from + size_t(r) * part, part, kBytes, r, comm, stream);
        if (!status) status = lib->Recv(to + size_t(r) * part, part, kBytes, r, comm, stream);
      }
      const int end = lib->GroupEnd();
      return outcome(*lib, "the exchange of parts", status ? status : end);
    }
    case Collective::kSend:
      return outcome(*lib, "ncclSend", lib->Send(from, count, w.type, w.peer, comm, stream));
    case Collective::kReceive:
      return outcome(*lib, "ncclRecv", lib->Recv(to, count, w.type, w.peer, comm, stream));
    default:
      return "the record is malformed";
  }
}

void Collectives::abort() {
  const Library* lib = library();
  for (auto& each : all_) {
    if (each.handle) lib->CommAbort(each.handle);
    each.handle = nullptr;
  }
}

void Collectives::close() {
  const Library* lib = library();
  for (auto& each : all_)
    if (each.handle) lib->CommDestroy(each.handle);
  all_.clear();
}

}  // namespace lz
