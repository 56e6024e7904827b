#include "cuda/collectives.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <chrono>

namespace lz {

// Shared by the thread that connects and whoever waits for it.
struct Collectives::Joining {
  std::mutex guard;
  std::condition_variable changed;
  bool done = false, given_up = false;
  std::string problem;
  void* handle = nullptr;
  int size = 0;
};

namespace {

// ncclDataType_t
constexpr int kBytes = 0;

// So long work is waited for that is being handed over, before communicators are ended, which it may wait
// for.
constexpr std::chrono::milliseconds kWork{200};

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

std::string Collectives::begin_join(const CollectiveId& id, int rank, int size,
                                    std::function<std::string()> enter) {
  const Library* lib = library();
  if (!lib) return "NCCL has not been opened";
  joining_ = std::make_shared<Joining>();
  joining_->size = size;
  std::thread([lib, id, rank, size, enter = std::move(enter), joining = joining_] {
    void* handle = nullptr;
    std::string problem = enter();
    if (problem.empty())
      problem = outcome(*lib, "ncclCommInitRank", lib->CommInitRank(&handle, size, id, rank));
    std::lock_guard<std::mutex> lock(joining->guard);
    if (joining->given_up && handle) lib->CommAbort(handle);
    joining->handle = handle;
    joining->problem = std::move(problem);
    joining->done = true;
    joining->changed.notify_all();
  }).detach();
  return {};
}

std::string Collectives::end_join(int milliseconds, uint32_t* communicator, bool* done) {
  if (!joining_) return "nothing is being joined";
  std::unique_lock<std::mutex> lock(joining_->guard);
  // By the system's clock: glibc 2.28 cannot wait by the other.
  const auto until = std::chrono::system_clock::now() + std::chrono::milliseconds(milliseconds);
  *done = joining_->changed.wait_until(lock, until, [this] { return joining_->done; });
  if (!*done) return {};
  lock.unlock();
  const std::shared_ptr<Joining> joined = std::move(joining_);
  if (!joined->problem.empty()) return joined->problem;
  std::lock_guard<std::mutex> own(guard_);
  *communicator = uint32_t(all_.size());
  all_.push_back({joined->handle, joined->size});
  return {};
}

std::string Collectives::run(const Collective& w, Stream stream) {
  {
    std::lock_guard<std::mutex> lock(guard_);
    if (w.communicator < 0 || size_t(w.communicator) >= all_.size()) return "there is no such communicator";
    if (!all_[size_t(w.communicator)].handle) return "the group's communicator was ended";
  }
  return call(w, stream);
}

void Collectives::begin_work() {
  std::lock_guard<std::mutex> lock(guard_);
  is_working_ = true;
}

void Collectives::end_work() {
  std::lock_guard<std::mutex> lock(guard_);
  is_working_ = false;
  worked_.notify_all();
}

// NCCL runs the parts of a group together.
std::string Collectives::call(const Collective& w, Stream stream) {
  if (w.parts.size() == 1) return call(w, w.parts[0], stream);
  const Library* lib = library();
  std::string error = outcome(*lib, "ncclGroupStart", lib->GroupStart());
  if (!error.empty()) return error;
  for (const Collective::Part& part : w.parts)
    if (error.empty()) error = call(w, part, stream);
  const std::string end = outcome(*lib, "ncclGroupEnd", lib->GroupEnd());
  return error.empty() ? end : error;
}

std::string Collectives::call(const Collective& w, const Collective::Part& part, Stream stream) {
  const Library* lib = library();
  const auto [comm, size] = all_[size_t(w.communicator)];
  const size_t count = part.count[0] | size_t{part.count[1]} << 32;
  const auto* from = reinterpret_cast<const char*>(part.in);
  auto* to = reinterpret_cast<char*>(part.out);
  switch (w.kind) {
    case Collective::kAllReduce:
      return outcome(*lib, "ncclAllReduce",
                     lib->AllReduce(from, to, count, part.type, w.reduction, comm, stream));
    case Collective::kAllGather:
      return outcome(*lib, "ncclAllGather", lib->AllGather(from, to, count, part.type, comm, stream));
    case Collective::kSumScatter:
      return outcome(
          *lib, "ncclReduceScatter",
          lib->ReduceScatter(from, to, count / size_t(size), part.type, w.reduction, comm, stream));
    case Collective::kBroadcast:
      return outcome(*lib, "ncclBroadcast", lib->Broadcast(from, to, count, part.type, w.peer, comm, stream));
    case Collective::kAllToAll: {
      const size_t each = count / size_t(size);
      int status = lib->GroupStart();
      for (int r = 0; r < size && !status; r++) {
        status = lib->Send(from + size_t(r) * each, each, kBytes, r, comm, stream);
        if (!status) status = lib->Recv(to + size_t(r) * each, each, kBytes, r, comm, stream);
      }
      const int end = lib->GroupEnd();
      return outcome(*lib, "the exchange of parts", status ? status : end);
    }
    case Collective::kSend:
      return outcome(*lib, "ncclSend", lib->Send(from, count, part.type, w.peer, comm, stream));
    case Collective::kReceive:
      return outcome(*lib, "ncclRecv", lib->Recv(to, count, part.type, w.peer, comm, stream));
    default:
      return "the record is malformed";
  }
}

void Collectives::abort() {
  const Library* lib = library();
  if (joining_) {
    std::lock_guard<std::mutex> lock(joining_->guard);
    joining_->given_up = true;
    if (joining_->handle) lib->CommAbort(joining_->handle);
  }
  joining_.reset();
  abort_all();
}

// All at once: of what one runs, another one's may be behind. NCCL takes up to a second to free what they
// had.
void Collectives::abort_all() {
  const Library* lib = library();
  std::unique_lock<std::mutex> lock(guard_);
  // By the system's clock, as above.
  worked_.wait_until(lock, std::chrono::system_clock::now() + kWork, [this] { return !is_working_; });
  for (auto& each : all_) {
    if (each.handle) aborting_.emplace_back([lib, handle = each.handle] { lib->CommAbort(handle); });
    each.handle = nullptr;
  }
}

// One file at a time: that of a job that this process has left ends.
void Collectives::abort_by(int alarm) {
  stop_listening();
  if (pipe(stop_) != 0) {
    ::close(alarm);
    return;
  }
  for (const int fd : stop_) fcntl(fd, F_SETFD, FD_CLOEXEC);
  listener_ = std::thread([this, alarm] {
    pollfd fds[2] = {{alarm, POLLIN, 0}, {stop_[0], POLLIN, 0}};
    while (poll(fds, 2, -1) < 0) {
    }
    if (fds[0].revents & POLLIN) abort_all();
    ::close(alarm);
  });
}

void Collectives::stop_listening() {
  if (!listener_.joinable()) return;
  ::close(stop_[1]);
  listener_.join();
  ::close(stop_[0]);
}

void Collectives::close() {
  const Library* lib = library();
  stop_listening();
  for (std::thread& each : aborting_) each.join();
  aborting_.clear();
  for (auto& each : all_)
    if (each.handle) lib->CommDestroy(each.handle);
  all_.clear();
}

}  // namespace lz
