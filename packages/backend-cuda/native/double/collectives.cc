// A double of NCCL: processes exchange data through a file that all map, on the double's streams. Every
// operation is made of messages between two members. LAZULI_CUDA_DOUBLE=collective fails each of them,
// joining-kill and joining-stop end or stop the process when it joins the others.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "double/elements.h"

#define LZ_EXPORT extern "C" __attribute__((visibility("default")))

// Adds work to a stream of the double of the driver: called until it gives 1.
extern "C" int lzDoublePoll(void* stream, int (*run)(void*), void (*drop)(void*), void* data);

namespace {

constexpr size_t kMost = 1 << 20;  // bytes of a message
constexpr int kMembers = 8;
enum : int { kInternalError = 3, kInvalidArgument = 4 };

enum class Call { reduce, scatter, gather, broadcast, message };

struct Mailbox {
  std::atomic<uint32_t> posted, taken;
  Call call;
  size_t bytes;
  char data[kMost];
};
struct Shared {
  std::atomic<uint32_t> joined;
  Mailbox boxes[kMembers][kMembers];  // by sender and receiver
};
struct Id {
  char name[128];
};
struct Communicator {
  Shared* shared;
  int rank, size;
  std::atomic<bool> aborted{false};  // of another thread than the one that polls
};

struct Message {
  bool out;
  int peer;
  char* data;
  size_t bytes;
  Call call;
};
struct Operation {
  Communicator* communicator;
  std::vector<Message> messages;
  std::vector<std::vector<char>> copies;
  std::function<void()> finish = [] {};
  std::vector<bool> done;
  // Of a group: its operations, one after another.
  std::vector<std::unique_ptr<Operation>> parts;
  size_t at = 0;
};

// True once a message is posted or taken. One of another operation is never taken.
bool pass(Communicator& c, const Message& m) {
  Mailbox& box = m.out ? c.shared->boxes[c.rank][m.peer] : c.shared->boxes[m.peer][c.rank];
  const bool full = box.posted.load() != box.taken.load();
  if (full == m.out) return false;
  if (m.out) {
    std::memcpy(box.data, m.data, m.bytes);
    box.call = m.call;
    box.bytes = m.bytes;
    box.posted++;
  } else {
    if (box.call != m.call || box.bytes != m.bytes) return false;
    std::memcpy(m.data, box.data, m.bytes);
    box.taken++;
  }
  return true;
}

// Graphs run an operation many times: each begins anew.
int step(void* data) {
  auto& o = *static_cast<Operation*>(data);
  if (o.communicator->aborted) return 1;
  for (; o.at < o.parts.size(); o.at++)
    if (step(o.parts[o.at].get()) == 0) return 0;
  o.at = 0;
  o.done.resize(o.messages.size());
  bool all = true;
  for (size_t i = 0; i < o.messages.size(); i++) {
    if (!o.done[i]) o.done[i] = pass(*o.communicator, o.messages[i]);
    all = all && o.done[i];
  }
  if (!all) return 0;
  o.done.clear();
  o.finish();
  return 1;
}

// Open groups, one within the other; their messages, which are one operation, and their other operations.
int groups = 0;
std::unique_ptr<Operation> exchanged;
std::vector<std::unique_ptr<Operation>> grouped;
void* group_stream = nullptr;

int start(std::unique_ptr<Operation> o, void* stream) {
  if (lz::asked("collective")) return kInternalError;
  for (const Message& m : o->messages)
    if (m.bytes > kMost) return kInvalidArgument;
  if (groups > 0) {
    grouped.push_back(std::move(o));
    group_stream = stream;
    return 0;
  }
  return lzDoublePoll(stream, step, [](void* data) { delete static_cast<Operation*>(data); }, o.release());
}

std::unique_ptr<Operation> operation(Communicator* c) {
  auto o = std::make_unique<Operation>();
  o->communicator = c;
  return o;
}

size_t width_of(int type) {
  static const size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return sizes[type];
}

template <class T>
void combine(T* to, const T* from, size_t n, int op) {
  for (size_t i = 0; i < n; i++)
    to[i] = op == 0 ? T(to[i] + from[i]) : op == 2 ? std::max(to[i], from[i]) : std::min(to[i], from[i]);
}
void combine(char* to, const char* from, size_t n, int type, int op) {
  const auto as = [&](auto zero) {
    using T = decltype(zero);
    combine(reinterpret_cast<T*>(to), reinterpret_cast<const T*>(from), n, op);
  };
  switch (type) {
    case 0:
      return as(int8_t{});
    case 1:
      return as(uint8_t{});
    case 2:
      return as(int32_t{});
    case 3:
      return as(uint32_t{});
    case 4:
      return as(int64_t{});
    case 5:
      return as(uint64_t{});
    case 7:
      return as(float{});
    case 8:
      return as(double{});
    default:
      // Halves, by the numbers that elements.h has for them.
      for (size_t i = 0; i < n; i++) {
        const int its = type == 6 ? 2 : 14;
        lz::write(to, its, int64_t(i), lz::read(to, its, int64_t(i)) + lz::read(from, its, int64_t(i)));
      }
  }
}

// Sends `from + r · step` to every other member and adds up what they send, this member's own included.
int reduce(const void* from, size_t step, void* to, size_t count, int type, int op, Communicator* c,
           void* stream) {
  auto o = operation(c);
  const size_t bytes = count * width_of(type);
  o->copies.resize(size_t(c->size));
  auto* at = static_cast<char*>(const_cast<void*>(from));
  for (int r = 0; r < c->size; r++) {
    if (r == c->rank) continue;
    o->copies[size_t(r)].resize(bytes);
    const Call call = step ? Call::scatter : Call::reduce;
    o->messages.push_back({true, r, at + size_t(r) * step, bytes, call});
    o->messages.push_back({false, r, o->copies[size_t(r)].data(), bytes, call});
  }
  Operation* its = o.get();
  o->finish = [=] {
    std::vector<char> sum;
    const char* own = at + size_t(c->rank) * step;
    for (int r = 0; r < c->size; r++) {
      const char* part = r == c->rank ? own : its->copies[size_t(r)].data();
      if (r == 0)
        sum.assign(part, part + bytes);
      else
        combine(sum.data(), part, count, type, op);
    }
    std::memcpy(to, sum.data(), bytes);
  };
  return start(std::move(o), stream);
}

Message message(Call call, bool out, const void* data, size_t bytes, int peer) {
  return {out, peer, static_cast<char*>(const_cast<void*>(data)), bytes, call};
}

int point_to_point(const Message& m, Communicator* c, void* stream) {
  if (groups == 0) {
    auto o = operation(c);
    o->messages.push_back(m);
    return start(std::move(o), stream);
  }
  if (!exchanged) exchanged = operation(c);
  group_stream = stream;
  exchanged->messages.push_back(m);
  return 0;
}

}  // namespace

LZ_EXPORT const char* ncclGetErrorString(int) { return "from the test double"; }
LZ_EXPORT int ncclGetUniqueId(Id* id) {
  static int count = 0;
  std::snprintf(id->name, sizeof id->name, "/lazuli-double-%d-%d", int(getpid()), count++);
  return 0;
}
LZ_EXPORT int ncclCommInitRank(void** made, int size, Id id, int rank) {
  if (size > kMembers) return kInvalidArgument;
  if (lz::asked("joining-kill")) raise(SIGKILL);
  if (lz::asked("joining-stop")) raise(SIGSTOP);
  const int file = shm_open(id.name, O_RDWR | O_CREAT, 0600);
  if (file < 0 || ftruncate(file, sizeof(Shared)) != 0) return kInternalError;
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (memory == MAP_FAILED) return kInternalError;
  // Where a member never comes the name goes with this process.
  static Id left;
  left = id;
  std::atexit([] { shm_unlink(left.name); });
  auto* shared = static_cast<Shared*>(memory);
  shared->joined++;
  for (int waits = 0; shared->joined < uint32_t(size); waits++) {
    if (waits > 30'000) return kInternalError;
    usleep(1000);
  }
  shm_unlink(id.name);
  *made = new Communicator{shared, rank, size};
  return 0;
}
LZ_EXPORT int ncclCommAbort(void* c) {
  static_cast<Communicator*>(c)->aborted = true;
  return 0;
}
LZ_EXPORT int ncclCommDestroy(void* c) { return ncclCommAbort(c); }
LZ_EXPORT int ncclAllReduce(const void* from, void* to, size_t count, int type, int op, void* c,
                            void* stream) {
  return reduce(from, 0, to, count, type, op, static_cast<Communicator*>(c), stream);
}
LZ_EXPORT int ncclReduceScatter(const void* from, void* to, size_t count, int type, int op, void* c,
                                void* stream) {
  return reduce(from, count * width_of(type), to, count, type, op, static_cast<Communicator*>(c), stream);
}
LZ_EXPORT int ncclGroupStart() {
  groups++;
  return 0;
}
LZ_EXPORT int ncclGroupEnd() {
  if (groups == 0) return kInvalidArgument;
  if (--groups > 0) return 0;
  if (exchanged) grouped.push_back(std::move(exchanged));
  if (grouped.empty()) return 0;
  auto o = operation(grouped[0]->communicator);
  o->parts = std::move(grouped);
  grouped.clear();
  return start(std::move(o), group_stream);
}
LZ_EXPORT int ncclSend(const void* from, size_t count, int type, int peer, void* c, void* stream) {
  return point_to_point(message(Call::message, true, from, count * width_of(type), peer),
                        static_cast<Communicator*>(c), stream);
}
LZ_EXPORT int ncclRecv(void* to, size_t count, int type, int peer, void* c, void* stream) {
  return point_to_point(message(Call::message, false, to, count * width_of(type), peer),
                        static_cast<Communicator*>(c), stream);
}
LZ_EXPORT int ncclAllGather(const void* from, void* to, size_t count, int type, void* c, void* stream) {
  auto* comm = static_cast<Communicator*>(c);
  const size_t bytes = count * width_of(type);
  auto o = operation(comm);
  for (int r = 0; r < comm->size; r++) {
    o->messages.push_back(message(Call::gather, true, from, bytes, r));
    o->messages.push_back(message(Call::gather, false, static_cast<char*>(to) + size_t(r) * bytes, bytes, r));
  }
  return start(std::move(o), stream);
}
LZ_EXPORT int ncclBroadcast(const void* from, void* to, size_t count, int type, int root, void* c,
                            void* stream) {
  auto* comm = static_cast<Communicator*>(c);
  const size_t bytes = count * width_of(type);
  auto o = operation(comm);
  for (int r = 0; r < comm->size && comm->rank == root; r++)
    o->messages.push_back(message(Call::broadcast, true, from, bytes, r));
  o->messages.push_back(message(Call::broadcast, false, to, bytes, root));
  return start(std::move(o), stream);
}
