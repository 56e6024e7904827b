// MPI, where its library is there when the program runs: Open MPI's, whose constants are symbols and need no
// headers.
#include <dlfcn.h>
#include <lazuli/kernel.h>
#include <sched.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <functional>

#include "collectives/group.h"

namespace lazuli::dist {
namespace {

using Handle = void*;
using UserFunction = void (*)(void* in, void* inout, int* count, Handle* type);

// Room for Open MPI's; messages are not asked about.
struct MpiStatus {
  int fields[8];
};

struct Library {
  void* opened = nullptr;
  int (*initialized)(int*);
  int (*init_thread)(int*, char***, int, int*);
  int (*finalize)();
  int (*comm_rank)(Handle, int*);
  int (*comm_size)(Handle, int*);
  int (*comm_dup)(Handle, Handle*);
  int (*comm_set_errhandler)(Handle, Handle);
  int (*error_string)(int, char*, int*);
  int (*op_create)(UserFunction, int, Handle*);
  int (*type_contiguous)(int, Handle, Handle*);
  int (*type_commit)(Handle*);
  int (*test)(Handle*, int*, MpiStatus*);
  int (*iallreduce)(const void*, void*, int, Handle, Handle, Handle, Handle*);
  int (*allreduce)(const void*, void*, int, Handle, Handle, Handle);
  int (*allgather)(const void*, int, Handle, void*, int, Handle, Handle);
  int (*reduce_scatter_block)(const void*, void*, int, Handle, Handle, Handle);
  int (*alltoall)(const void*, int, Handle, void*, int, Handle, Handle);
  int (*bcast)(void*, int, Handle, int, Handle);
  int (*barrier)(Handle);
  Handle world, errors_return, byte;
  Handle types[14], reductions[3];

  template <class F>
  bool find(F& function, const char* name) {
    function = reinterpret_cast<F>(dlsym(opened, name));
    return function != nullptr;
  }

  bool open() {
    for (const char* name : {"libmpi.so.40", "libmpi.so", "libmpi.40.dylib", "libmpi.dylib"})
      if ((opened = dlopen(name, RTLD_NOW | RTLD_GLOBAL))) break;
    if (!opened) return false;
    static const char* const names[] = {nullptr,  "uint8_t", "uint16_t", "uint32_t",       "uint64_t",
                                        "int8_t", "int16_t", "int32_t",  "int64_t",        nullptr,
                                        "float",  nullptr,   "double",   "c_float_complex"};
    bool there = find(initialized, "MPI_Initialized") && find(init_thread, "MPI_Init_thread") &&
                 find(finalize, "MPI_Finalize") && find(comm_rank, "MPI_Comm_rank") &&
                 find(comm_size, "MPI_Comm_size") && find(comm_dup, "MPI_Comm_dup") &&
                 find(comm_set_errhandler, "MPI_Comm_set_errhandler") &&
                 find(error_string, "MPI_Error_string") && find(op_create, "MPI_Op_create") &&
                 find(type_contiguous, "MPI_Type_contiguous") && find(type_commit, "MPI_Type_commit") &&
                 find(test, "MPI_Test") && find(iallreduce, "MPI_Iallreduce") &&
                 find(allreduce, "MPI_Allreduce") && find(allgather, "MPI_Allgather") &&
                 find(reduce_scatter_block, "MPI_Reduce_scatter_block") && find(alltoall, "MPI_Alltoall") &&
                 find(bcast, "MPI_Bcast") && find(barrier, "MPI_Barrier") &&
                 find(world, "ompi_mpi_comm_world") && find(errors_return, "ompi_mpi_errors_return") &&
                 find(byte, "ompi_mpi_byte") && find(reductions[0], "ompi_mpi_op_sum") &&
                 find(reductions[1], "ompi_mpi_op_max") && find(reductions[2], "ompi_mpi_op_min");
    for (int i = 0; i < 14; i++) {
      types[i] = nullptr;
      if (names[i]) there = there && find(types[i], (std::string("ompi_mpi_") + names[i]).c_str());
    }
    return there;
  }
};

// Leaked, like what is loaded.
Library* library() {
  static Library* it = [] {
    auto* made = new Library;
    if (made->open()) return made;
    delete made;
    return static_cast<Library*>(nullptr);
  }();
  return it;
}

bool started = false;

// The elements that MPI knows no type of, and reductions that it knows for none of ours.
template <int dtype, Reduction reduction>
void combine(void* in, void* inout, int* count, Handle*) {
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
// Up to so many bytes a call is begun and asked about, which no other thread need know of.
constexpr size_t kSmall = 32 * 1024;

class Mpi : public Transport {
 public:
  Mpi(const Group& group, Handle comm) : messages_(make_ring(group)), comm_(comm) {}
  const char* name() const override { return "mpi"; }

  void run(Group& group, const Work& work, uint64_t sequence) override {
    const Library& mpi = *library();
    if (work.kind == Kind::send || work.kind == Kind::recv || work.count > kMost)
      return messages_->run(group, work, sequence);
    const Handle type = type_of(work.dtype);
    const int count = int(work.count), part = count / group.size();
    switch (work.kind) {
      case Kind::allReduce: {
        const Handle op = reduction_of(work);
        if (size_t(work.count) * size_of(work.dtype) <= kSmall) {
          Handle request = nullptr;
          check(mpi.iallreduce(work.in, work.out, count, type, op, comm_, &request));
          return poll(group, request);
        }
        return call(group, [=, &mpi, comm = comm_] {
          return mpi.allreduce(work.in, work.out, count, type, op, comm);
        });
      }
      case Kind::allGather:
        return call(group, [=, &mpi, comm = comm_] {
          return mpi.allgather(work.in, count, type, work.out, count, type, comm);
        });
      case Kind::sumScatter: {
        const Handle op = reduction_of(work);
        return call(group, [=, &mpi, comm = comm_] {
          return mpi.reduce_scatter_block(work.in, work.out, part, type, op, comm);
        });
      }
      case Kind::allToAll:
        return call(group, [=, &mpi, comm = comm_] {
          return mpi.alltoall(work.in, part, type, work.out, part, type, comm);
        });
      case Kind::broadcast:
        if (group.rank() == work.peer && work.count > 0)
          std::memcpy(work.out, work.in, size_t(work.count) * size_of(work.dtype));
        return call(group,
                    [=, &mpi, comm = comm_] { return mpi.bcast(work.out, count, type, work.peer, comm); });
      default:
        return call(group, [&mpi, comm = comm_] { return mpi.barrier(comm); });
    }
  }

 private:
  static void check(int code) {
    if (code == 0) return;
    char text[512] = "";
    int length = 0;
    library()->error_string(code, text, &length);
    throw std::runtime_error(std::string("MPI failed: ") + text);
  }

  static void poll(Group& group, Handle request) {
    const Instant since = Clock::now();
    for (int turn = 0;; turn++) {
      int done = 0;
      MpiStatus status;
      check(library()->test(&request, &done, &status));
      if (done) return;
      if (turn % 64 == 63) sched_yield();
      if (turn % 4096 == 4095) group.world().check_all(since);
    }
  }

  void call(Group& group, std::function<int()> body) {
    static Caller* caller = new Caller;
    const Instant since = Clock::now();
    const auto task = caller->start(std::move(body));
    while (!caller->wait(task, std::chrono::milliseconds(20))) group.world().check_all(since);
    check(task->result);
  }

  Handle type_of(int dtype) {
    Library& mpi = *library();
    if (!mpi.types[dtype]) {
      check(mpi.type_contiguous(int(size_of(dtype)), mpi.byte, &mpi.types[dtype]));
      check(mpi.type_commit(&mpi.types[dtype]));
    }
    return mpi.types[dtype];
  }

  template <int dtype>
  static UserFunction function_of(Reduction reduction) {
    switch (reduction) {
      case Reduction::sum:
        return combine<dtype, Reduction::sum>;
      case Reduction::max:
        return combine<dtype, Reduction::max>;
      default:
        return combine<dtype, Reduction::min>;
    }
  }

  static Handle reduction_of(const Work& work) {
    Library& mpi = *library();
    const int which = int(work.reduction);
    const bool floats = work.dtype == LZ_FLOAT32 || work.dtype == LZ_FLOAT64;
    // MPI's own maximum loses NaN.
    const bool own = work.dtype == LZ_BOOL || work.dtype == LZ_FLOAT16 || work.dtype == LZ_BFLOAT16 ||
                     (work.dtype == LZ_COMPLEX64 && which > 0) || (floats && which > 0);
    if (!own) return mpi.reductions[which];
    static Handle made[14][3] = {};
    Handle& op = made[work.dtype][which];
    if (op) return op;
    UserFunction function = nullptr;
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
    check(mpi.op_create(function, 1, &op));
    return op;
  }

  std::unique_ptr<Transport> messages_;
  Handle comm_;
};

}  // namespace

bool mpi_is_there() { return library() != nullptr; }

void finish_mpi(bool failed) {
  // With ranks that are gone it would wait for them.
  if (started && !failed) library()->finalize();
  started = false;
}

std::unique_ptr<Transport> make_mpi(Group& group) {
  Library* mpi = library();
  if (!mpi) return nullptr;
  int before = 0;
  mpi->initialized(&before);
  if (!before) {
    int level = 0;
    constexpr int kSerialized = 2;
    if (mpi->init_thread(nullptr, nullptr, kSerialized, &level) != 0) return nullptr;
    started = true;
  }
  int rank = -1, size = 0;
  mpi->comm_rank(mpi->world, &rank);
  mpi->comm_size(mpi->world, &size);
  if (size != group.size() || rank != group.rank()) return nullptr;
  Handle comm = nullptr;
  if (mpi->comm_dup(mpi->world, &comm) != 0) return nullptr;
  mpi->comm_set_errhandler(comm, mpi->errors_return);
  return std::make_unique<Mpi>(group, comm);
}

}  // namespace lazuli::dist
