// MPI, where its library is there when the program runs.
#include <lazuli/kernel.h>

#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>

#include "collectives/mpi.h"

namespace lazuli::dist {
namespace {

// The elements that MPI knows no type of, and reductions that it knows for none of ours.
template <int dtype, Reduction reduction>
void combine(void* in, void* inout, int* count, MpiHandle*) {
  reduce(reduction, dtype, inout, in, inout, *count);
}

// A thread for calls that cannot be given up: whoever waits for them can.
class Caller {
 public:
  Caller() : thread_([this] { work(); }) { thread_.detach(); }
  struct Task {
    std::function<int()> call;
    int result = 0;
    bool done = false;
  };
  std::shared_ptr<Task> start(std::function<int()> call) {
    auto task = std::make_shared<Task>();
    task->call = std::move(call);
    std::lock_guard lock(guard_);
    next_ = task;
    changed_.notify_all();
    return task;
  }
  bool wait(const std::shared_ptr<Task>& task, Clock::duration time) {
    std::unique_lock lock(guard_);
    // By the system's clock: glibc 2.28 cannot wait by the other.
    const auto until = std::chrono::system_clock::now() + time;
    return changed_.wait_until(lock, until, [&] { return task->done; });
  }

 private:
  void work() {
    for (;;) {
      std::unique_lock lock(guard_);
      changed_.wait(lock, [this] { return next_ != nullptr; });
      const auto task = std::move(next_);
      next_ = nullptr;
      lock.unlock();
      const int result = task->call();
      lock.lock();
      task->result = result;
      task->done = true;
      changed_.notify_all();
    }
  }
  std::mutex guard_;
  std::condition_variable changed_;
  std::shared_ptr<Task> next_;
  std::thread thread_;
};

// MPI counts elements in an int.
constexpr int64_t kMost = int64_t(1) << 30;
// Among so many members at most, arrays of up to so many bytes take longer by MPI's own algorithms: messages
// carry their labels, and need no thread that waits.
constexpr int kFew = 16;
constexpr int64_t kSmall = 1024 * 1024;

// Operations among hosts, by MPI's own algorithms, which know the network.
class Mpi : public Transport {
 public:
  // `mixes`: arrays of up to kSmall bytes go by messages, and so do the labels of all others.
  Mpi(const Group& group, std::shared_ptr<MpiMeans> means, bool mixes)
      : Mpi(group, means->comm, make_mpi_exchange(group, means, true), mixes) {}
  const char* name() const override { return "mpi"; }

  void run(Group& group, const Work& work, uint64_t sequence) override {
    const MpiLibrary& mpi = *mpi_library();
    const bool is_small = mixes_ && work.count * int64_t(size_of(work.dtype)) <= kSmall;
    if (work.kind == Kind::send || work.kind == Kind::recv || work.count > kMost || is_small)
      return messages_->run(group, work, sequence);
    const MpiHandle type = type_of(work.dtype), comm = comm_;
    const int count = int(work.count), part = count / group.size();
    switch (work.kind) {
      case Kind::allReduce: {
        const MpiHandle op = reduction_of(work);
        return call(group, work, sequence,
                    [=, &mpi] { return mpi.allreduce(work.in, work.out, count, type, op, comm); });
      }
      case Kind::allGather:
        return call(group, work, sequence,
                    [=, &mpi] { return mpi.allgather(work.in, count, type, work.out, count, type, comm); });
      case Kind::sumScatter: {
        const MpiHandle op = reduction_of(work);
        return call(group, work, sequence,
                    [=, &mpi] { return mpi.reduce_scatter_block(work.in, work.out, part, type, op, comm); });
      }
      case Kind::allToAll:
        return call(group, work, sequence,
                    [=, &mpi] { return mpi.alltoall(work.in, part, type, work.out, part, type, comm); });
      case Kind::broadcast:
        if (group.rank() == work.peer && work.count > 0)
          std::memcpy(work.out, work.in, size_t(work.count) * size_of(work.dtype));
        return call(group, work, sequence,
                    [=, &mpi] { return mpi.bcast(work.out, count, type, work.peer, comm); });
      default:
        return call(group, work, sequence, [=, &mpi] { return mpi.barrier(comm); });
    }
  }

 private:
  Mpi(const Group& group, MpiHandle comm, std::unique_ptr<Exchange> exchange, bool mixes)
      : exchange_(*exchange),
        messages_(make_direct(group, "mpi", std::move(exchange))),
        comm_(comm),
        mixes_(mixes) {}

  // Calls MPI once all members are known to be in the same operation, which MPI does not ask about.
  void call(Group& group, const Work& work, uint64_t sequence, std::function<int()> body) {
    if (!mixes_) return call_compared(group, work, sequence, std::move(body));
    exchange_.begin(group, work, sequence);
    exchange_.meet();
    call_mpi(group, std::move(body));
  }

  // The largest and the smallest label are equal where all do the same. Otherwise they tell each other
  // theirs.
  void call_compared(Group& group, const Work& work, uint64_t sequence, std::function<int()> body) {
    constexpr size_t kWords = sizeof(Label) / sizeof(uint64_t);
    struct Labels {
      uint64_t mine[2 * kWords], greatest[2 * kWords];
      std::vector<Label> all;
    };
    static_assert(sizeof(Label) % sizeof(uint64_t) == 0);
    // MPI's thread may hold it for longer than this one waits.
    const auto labels = std::make_shared<Labels>();
    const Label label = label_of(work, group.id(), sequence);
    std::memcpy(labels->mine, &label, sizeof label);
    for (size_t i = 0; i < kWords; i++) labels->mine[kWords + i] = ~labels->mine[i];
    call_mpi(group, [labels, body = std::move(body), comm = comm_, n = size_t(group.size())] {
      const MpiLibrary& mpi = *mpi_library();
      const MpiHandle words = mpi.types[LZ_UINT64], most = mpi.reductions[int(Reduction::max)];
      if (const int code = mpi.allreduce(labels->mine, labels->greatest, int(2 * kWords), words, most, comm))
        return code;
      bool same = true;
      for (size_t i = 0; i < kWords; i++) same = same && labels->greatest[i] == ~labels->greatest[kWords + i];
      if (same) return body();
      labels->all.resize(n);
      return mpi.allgather(labels->mine, sizeof(Label), mpi.byte, labels->all.data(), sizeof(Label), mpi.byte,
                           comm);
    });
    for (size_t r = 0; r < labels->all.size(); r++)
      if (!(labels->all[r] == label))
        group.world().fail(
            Failure(group.world_rank(int(r)), difference(labels->all[r], label, group.world().rank())));
  }

  MpiHandle type_of(int dtype) {
    MpiLibrary& mpi = *mpi_library();
    if (!mpi.types[dtype]) {
      mpi.check(mpi.type_contiguous(int(size_of(dtype)), mpi.byte, &mpi.types[dtype]));
      mpi.check(mpi.type_commit(&mpi.types[dtype]));
    }
    return mpi.types[dtype];
  }

  template <int dtype>
  static MpiFunction function_of(Reduction reduction) {
    switch (reduction) {
      case Reduction::sum:
        return combine<dtype, Reduction::sum>;
      case Reduction::max:
        return combine<dtype, Reduction::max>;
      default:
        return combine<dtype, Reduction::min>;
    }
  }

  static MpiHandle reduction_of(const Work& work) {
    MpiLibrary& mpi = *mpi_library();
    const int which = int(work.reduction);
    const bool floats = work.dtype == LZ_FLOAT32 || work.dtype == LZ_FLOAT64;
    // MPI's own maximum loses NaN.
    const bool own = work.dtype == LZ_BOOL || work.dtype == LZ_FLOAT16 || work.dtype == LZ_BFLOAT16 ||
                     (work.dtype == LZ_COMPLEX64 && which > 0) || (floats && which > 0);
    if (!own) return mpi.reductions[which];
    static MpiHandle made[14][3] = {};
    MpiHandle& op = made[work.dtype][which];
    if (op) return op;
    MpiFunction function = nullptr;
    switch (work.dtype) {
      case LZ_BOOL:
        function = function_of<LZ_BOOL>(work.reduction);
        break;
      case LZ_FLOAT16:
        function = function_of<LZ_FLOAT16>(work.reduction);
        break;
      case LZ_BFLOAT16:
        function = function_of<LZ_BFLOAT16>(work.reduction);
        break;
      case LZ_FLOAT32:
        function = function_of<LZ_FLOAT32>(work.reduction);
        break;
      case LZ_FLOAT64:
        function = function_of<LZ_FLOAT64>(work.reduction);
        break;
      default:
        function = function_of<LZ_COMPLEX64>(work.reduction);
    }
    mpi.check(mpi.op_create(function, 1, &op));
    return op;
  }

  Exchange& exchange_;  // of `messages_`
  std::unique_ptr<Transport> messages_;
  const MpiHandle comm_;
  const bool mixes_;
};

bool started = false;
// All members of the job, apart from what else the process does with MPI.
MpiHandle everybody = nullptr;

// The means of groups, by their members: on all of these in the same order.
struct Known {
  MpiMeans means;
  bool taken = true;  // by a group
};
using AllKnown = std::map<std::vector<int>, std::vector<Known*>>;
std::mutex known_guard;
// Leaked, as groups may end when the process does.
AllKnown& all_known() {
  static auto* it = new AllKnown;
  return *it;
}

// The way that LAZULI_MPI asks for: "memory", "messages", "collectives", which are MPI's own algorithms, or
// "mixed", which takes messages for small arrays. On one host MPI's own algorithms are slower than both
// others, and need a thread that waits for them.
std::string way_of(const Group& group) {
  const char* asked = std::getenv("LAZULI_MPI");
  // The package warns of anything else.
  for (const char* choice : {"memory", "messages", "collectives", "mixed"})
    if (asked && std::strcmp(asked, choice) == 0) return choice;
  return group.members_here() == group.size() ? "memory" : "mixed";
}

}  // namespace

void call_mpi(const Group& group, std::function<int()> call) {
  static Caller* caller = new Caller;
  World& world = group.world();
  const Instant since = world.now();
  const auto task = caller->start(std::move(call));
  while (!caller->wait(task, std::chrono::milliseconds(20))) world.check_members(since, group.members());
  mpi_library()->check(task->result);
}

bool mpi_is_there() { return mpi_library() != nullptr; }

bool runs_mpi() { return started; }

void finish_mpi(bool are_all_there) {
  if (started && are_all_there) {
    free_mpi_memory();
    mpi_library()->finalize();
  }
  started = false;
  everybody = nullptr;
  std::lock_guard lock(known_guard);
  all_known().clear();
}

namespace {

// False where MPI has other processes than the job.
bool join_mpi(const World& world) {
  MpiLibrary& mpi = *mpi_library();
  int before = 0;
  mpi.initialized(&before);
  if (!before) {
    // With UCX, Open MPI would overwrite the code of munmap and the like while V8's threads may be in it.
    setenv("OMPI_MCA_memory", "^patcher", 0);
    int level = 0;
    constexpr int kSerialized = 2;
    if (mpi.init_thread(nullptr, nullptr, kSerialized, &level) != 0) return false;
    started = true;
  }
  int rank = -1, size = 0;
  mpi.comm_rank(mpi.world, &rank);
  mpi.comm_size(mpi.world, &size);
  if (size != world.size() || rank != world.rank() || mpi.comm_dup(mpi.world, &everybody) != 0) return false;
  mpi.comm_set_errhandler(everybody, mpi.errors_return);
  return true;
}

MpiHandle make_communicator(const Group& group) {
  // The call may outlast this function, if a rank is gone.
  const auto made = std::make_shared<MpiHandle>(nullptr);
  std::lock_guard turn(group.world().turn);
  call_mpi(group, [made, members = group.members(), from = everybody] {
    const MpiLibrary& mpi = *mpi_library();
    MpiHandle all = nullptr, part = nullptr;
    if (const int code = mpi.comm_group(from, &all)) return code;
    if (const int code = mpi.group_incl(all, int(members.size()), members.data(), &part)) return code;
    const int code = mpi.comm_create_group(from, part, 0, made.get());
    if (code == 0) mpi.comm_set_errhandler(*made, mpi.errors_return);
    mpi.group_free(&part);
    mpi.group_free(&all);
    return code;
  });
  return *made;
}

// Those of a group of the same members that is closed on all of them, or new ones.
std::shared_ptr<MpiMeans> means_of(Group& group) {
  int32_t count, index = 0;
  Known* found = nullptr;
  {
    std::lock_guard lock(known_guard);
    const auto& known = all_known()[group.members()];
    count = int32_t(known.size());
    while (index < count && known[size_t(index)]->taken) index++;
    if (index < count) found = known[size_t(index)];
  }
  if (count > 0) {
    const std::string all = group.gather(std::string(reinterpret_cast<const char*>(&index), sizeof index));
    for (int r = 0; r < group.size(); r++)
      if (std::memcmp(all.data() + sizeof index * size_t(r), &index, sizeof index) != 0) found = nullptr;
  }
  if (found) {
    found->means.uses++;
  } else {
    found = new Known;
    found->means.comm = make_communicator(group);
    std::lock_guard lock(known_guard);
    all_known()[group.members()].push_back(found);
  }
  std::lock_guard lock(known_guard);
  found->taken = true;
  return {&found->means, [found](MpiMeans*) {
            std::lock_guard lock(known_guard);
            found->taken = false;
          }};
}

}  // namespace

std::unique_ptr<Transport> make_mpi(Group& group) {
  if (!mpi_library() || (!everybody && !join_mpi(group.world()))) return nullptr;
  const std::string way = way_of(group);
  const auto means = means_of(group);
  if (way == "collectives" || way == "mixed") {
    const bool mixes = way == "mixed" && group.size() <= kFew;
    return std::make_unique<Mpi>(group, means, mixes);
  }
  auto messages =
      make_direct(group, "mpi", make_mpi_exchange(group, means, group.members_here() < group.size()));
  if (way != "memory") return messages;
  if (!means->asked) {
    means->memories = share_mpi_memory(group, means->comm);
    means->asked = true;
  } else if (!means->memories.empty()) {
    std::memset(means->memories[size_t(group.rank())].get(), 0, shared_memory_size());
    // Nobody uses it before all have come so far.
    agree(group, true);
  }
  if (means->memories.empty()) return messages;
  return make_shared_memory(group, "mpi", std::move(messages), means->memories);
}

}  // namespace lazuli::dist
