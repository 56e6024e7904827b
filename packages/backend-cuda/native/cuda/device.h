// One GPU as an isolate uses it: the device's primary context, which is the process's, and a stream, buffers
// and kernels of the isolate's own. Calls return what is wrong as text, or nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cuda/collectives.h"
#include "cuda/convolutions.h"
#include "cuda/driver.h"
#include "cuda/factorizations.h"
#include "cuda/operation_graphs.h"
#include "cuda/products.h"
#include "cuda/repeats.h"
#include "cuda/staging.h"
#include "cuda/transforms.h"

namespace lz {

struct Facts {
  std::string name;
  int driver = 0;  // CUDA's version: 1000 × major + 10 × minor
  int major = 0, minor = 0;
  int processors = 0, warp = 0, max_threads = 0, max_shared = 0;
  size_t memory = 0;
};

// The facts of every GPU that the driver shows. Takes none of them into use.
std::string list_devices(const Driver& driver, std::vector<Facts>* all);

struct Buffer {
  DevicePointer pointer = 0;
  size_t length = 0;
  uint32_t part = 0;  // bytes of the parts that are arrays of their own; 0 where it is one
};

// The source of a kernel's parameter.
enum class Source : int {
  kPointer = 0,  // the address of a buffer, or of bytes that are uploaded
  kValue = 1,    // the bytes themselves
  kGrid =
      2,  // words: the grid's threads and groups along three axes, and whether blocks are numbered through
  kThreadgroup = 3,  // one: where a memory length set by the host begins
};
struct Parameter {
  Source source;
  uint32_t index;
};

struct Kernel {
  std::string name;
  Function function = nullptr;
  std::vector<Parameter> parameters;
  int max_threads = 0;
  int dynamic_shared = 0;   // what it may have by now
  bool takes_grid = false;  // so that blocks may be numbered through
  bool waits = false;       // for earlier work by itself, so that it may be launched before that ends
};

constexpr uint32_t kBuffers = 31;  // buffer indices of a kernel
constexpr size_t kSlack = 4096;

struct Queue;

// Commands whose buffers are numbers of bindings, and graphs of the driver that run them for bindings which
// came before.
struct Plan {
  // Graphs of a plan: inputs and results alternate between a few buffers.
  static constexpr size_t kInstances = 4;
  // Runs in a row that no graph serves, after which no more are captured: a plain launch costs less than a
  // captured one.
  static constexpr size_t kMisses = 2 * kInstances;
  struct Instance {
    Stream stream;  // whose libraries' memory it uses
    Graph graph;    // that `exec` was made of, whose nodes name those of `exec` in updates
    GraphExec exec;
    std::vector<GraphNode> nodes;   // by launch; null for what a library adds
    std::vector<GraphNode> stages;  // of copies of staged arrays: in, then out
    std::vector<DevicePointer> bound;
    std::vector<DevicePointer> given;  // as the copies have them
    std::vector<bool> in_place;        // by pair: both at one place
    uint64_t used;                     // the run that used it last
  };
  // Bindings at one place between which nothing is copied.
  std::vector<std::pair<uint32_t, uint32_t>> pairs;
  std::vector<uint32_t> words;  // kSlack bytes longer than `count`
  size_t count = 0;
  uint32_t bindings = 0, launches = 0;
  std::vector<bool> in_libraries;  // bindings that libraries read or write
  std::vector<uint32_t> uses;      // by binding: the launches that it concerns
  uint64_t runs = 0;
  size_t misses = 0;       // runs in a row for which no graph served
  bool is_repeat = false;  // of an eager loop: many changes are launched rather than told of
  // Small arrays, which lie elsewhere at each run: graphs know them by their place in memory of the plan's
  // own, and a kernel copies them in and out.
  struct Staged {
    uint32_t binding;
    bool in, out;
    uint32_t bytes;
    DevicePointer at;
  };
  std::vector<Staged> staged;
  DevicePointer staging = 0;
  uint32_t stage = 0;      // the kernel
  Queue* queue = nullptr;  // that ran it last
  std::vector<Instance> instances;
  // Bytes that kernels want in memory, by where they are in the words.
  std::vector<std::pair<const char*, DevicePointer>> constants;
};

// A run of a plan's commands: on the stream, or into a graph, or only for kernels that some bindings concern.
struct Run {
  Plan* plan;
  const DevicePointer* bound;
  std::vector<GraphNode>* captured = nullptr;  // takes the nodes that launches become
  const Plan::Instance* updated = nullptr;     // the graph whose kernels are told of other bindings
  const std::vector<bool>* changed = nullptr;  // which these are
  size_t launch = 0;
  bool follows_kernel = false;  // the last node is a kernel of ours
  bool lacks_bytes = false;     // that kernels want in memory
};

// A stream of the driver, and what libraries have for it: their memory is that of one stream's work.
struct Queue {
  Stream stream = nullptr;
  Event event = nullptr;
  Products products;
  Convolutions convolutions;
  Transforms transforms;
  Factorizations factorizations;
};

struct Failed {
  size_t word;
  std::string message;
};

class Gpu {
 public:
  Gpu() = default;
  Gpu(const Gpu&) = delete;
  ~Gpu();

  std::string open(const Driver* driver, int ordinal, Facts* facts);
  bool is_open() const { return stream_ != nullptr; }

  // Memory, in the order of the first stream. kOutOfMemory leaves `error` saying how much there is.
  // With `part` it is for arrays of so many bytes each.
  Result allocate(size_t nbytes, uint32_t part, uint32_t* id, std::string* error);
  void release(uint32_t id);
  const Buffer* buffer(double id) const;
  // With `is_done` beside what runs: the work that makes the bytes is known to be done.
  std::string read(const Buffer& from, size_t offset, char* into, size_t nbytes, bool is_done);
  std::string write(const Buffer& to, size_t offset, const char* from, size_t nbytes);
  std::string memory(size_t* free, size_t* total);

  std::string load(const char* code, uint32_t* module);
  std::string kernel(uint32_t module, const std::string& name, std::vector<Parameter> parameters, bool waits,
                     uint32_t* id);
  const Kernel& kernel(uint32_t id) const { return kernels_[id]; }

  // Launches what a stream of commands asks for; nothing is waited for. kSlack bytes behind the words must be
  // readable: a launch reads bytes up to the next power of two.
  std::vector<Failed> run(const uint32_t* words, size_t count);
  // Keeps commands for later; a command runs them. Bindings are as many as `sizes`: the bytes of arrays that
  // lie in one piece, and 0 for others. The first `inputs` are read, those from `outputs` on are written.
  // `stage` is the kernel that copies small ones.
  uint32_t new_plan(const uint32_t* words, size_t count, const uint32_t* sizes, uint32_t bindings,
                    uint32_t inputs, uint32_t outputs, uint32_t stage);
  // True once a stream has repeated so often that it would run as a graph, which needs `stage`.
  bool wants_stage() const { return repeats_.wants_stage; }
  // Gives repeated streams the kernel that copies small arrays; kNone lets them run as they are for good.
  void give_stage(uint32_t stage) {
    repeats_.stage = stage;
    repeats_.wants_stage = false;
    repeats_.is_off = stage == Repeats::kNone;
  }
  // Runs as graphs whose small arrays that kernel copied.
  double staged_runs() const { return staged_runs_; }
  void release_plan(double id);
  // Waits for a stream, or for all of them.
  std::string synchronize(double stream);
  bool convolvable(const Convolution& work) {
    return enter().empty() && queues_[0]->convolutions.takes(work, stream_);
  }
  // The same for so long; `done` tells that nothing is left to wait for.
  std::string synchronize(double stream, int milliseconds, bool* done);
  // Events behind what was launched on the first stream, which are used again once they are freed.
  std::string new_mark(uint32_t* id);
  // Waits for so long, without end where that is negative.
  Result look_at_mark(double id, int milliseconds);
  void free_mark(double id);
  std::string begin_join(const CollectiveId& id, int rank, int size);
  std::string end_join(int milliseconds, uint32_t* communicator, bool* done) {
    return collectives_.end_join(milliseconds, communicator, done);
  }
  // The commands without a result, of the work that has been waited for.
  std::vector<Verdicts::Failed> verdicts() {
    verdicts_.conclude();
    return verdicts_.take();
  }
  void abort_collectives() { collectives_.abort(); }
  void abort_collectives_by(int alarm) { collectives_.abort_by(alarm); }
  std::string prepare_graph(const int64_t* graph, size_t count, uint32_t* id) {
    if (std::string error = enter(); !error.empty()) return error;
    return operation_graphs_.prepare(graph, count, stream_, id);
  }
  DevicePointer address(const Buffer& b) const { return b.pointer; }

 private:
  struct Binding {
    DevicePointer pointer = 0;    // of a buffer, or of bytes once they are uploaded
    const char* bytes = nullptr;  // in the command stream
    size_t length = 0;
    uint32_t number = UINT32_MAX;  // of a plan's binding
  };
  std::string upload(Binding& binding);
  // Runs commands; those of a plan name its bindings.
  void execute(const uint32_t* words, size_t count, Run* run, std::vector<Failed>* failed);
  std::string run_plan(const uint32_t* words, size_t count);
  std::string run_plan(Plan& plan, const std::vector<DevicePointer>& given);
  // The graph that serves these bindings; null where launches one by one cost less.
  std::string choose_graph(Plan& plan, const std::vector<DevicePointer>& given, Plan::Instance** chosen);
  std::string launch_graph(Plan& plan, const std::vector<DevicePointer>& given, Plan::Instance& instance);
  // Runs a repeated stream as a graph; false if it is to be run command by command.
  bool run_again(const uint32_t* words, size_t count, std::vector<Failed>* failed);
  // Writes a stream with numbered bindings into `repeats_`; false if it has more than launches of kernels.
  bool name_bindings(const uint32_t* words, size_t count);
  void forget_repeat(uint64_t hash);
  // The plan of the stream in `repeats_`; null until it has repeated often enough.
  Plan* plan_of_repeat(Repeats::Known& known, uint64_t hash);
  // Allocates the memory of staged arrays.
  std::string prepare_staging(Plan& plan);
  // Adds the kernels that copy them in or out.
  std::string copy_staged(Run& run, const std::vector<DevicePointer>& given, bool inputs);
  // Updates a graph's copies of staged arrays with the arrays' addresses.
  std::string move_staged(const Plan& plan, Plan::Instance& instance,
                          const std::vector<DevicePointer>& given);
  std::string execute(Run& run);
  void execute(Run& run, std::vector<Failed>* failed);
  // A graph of what a plan does with these bindings; `lacks_bytes` tells that a run without a graph goes
  // first.
  std::string capture(Plan& plan, const std::vector<DevicePointer>& given,
                      const std::vector<DevicePointer>& bound, Plan::Instance* made, bool* lacks_bytes);
  std::string note_node(Run& run, bool is_kernel = false);
  // The same for a launch that is left out.
  void leave_out(Run& run) {
    run.launch++;
    if (run.captured) run.captured->push_back(nullptr);
  }
  Result launch(const Kernel& kernel, const unsigned* grid, const unsigned* block, unsigned shared,
                void** arguments);
  std::string product(const Binding* bindings, const uint32_t* words, uint32_t count);
  std::string convolution(const Binding* bindings, const uint32_t* words, uint32_t count);
  std::string transform(const Binding* bindings, const uint32_t* words, uint32_t count);
  // `at` is where the command begins.
  std::string factorization(const Binding* bindings, const uint32_t* words, uint32_t count, size_t at);
  std::string collective(const Binding* bindings, const uint32_t* words, uint32_t count, const Queue& queue);
  std::string conclusion(Result result);
  std::string operation_graph(const Binding* bindings, const uint32_t* words, uint32_t count);
  std::string launch(Kernel& kernel, Binding* bindings, const uint32_t* shared, const uint32_t* grid,
                     bool in_threads);
  // Text for a failure. One that leaves the context without use is remembered: nothing works from then on.
  std::string failure(const char* what, Result result);
  std::string enter();
  // Makes later commands those of a stream, which is made if need be.
  std::string use_stream(uint32_t index);
  std::string new_queue(std::unique_ptr<Queue>* queue);
  // Lets what comes next on a stream wait for what another one has been given.
  std::string join(Queue& waiting, Queue& awaited);
  // Lets work beside the current stream begin behind what that has been given.
  std::string fork();
  // Notes where numbered work beside it ends.
  std::string end_beside(uint32_t number);
  std::string await(Event event);

  const Driver* driver_ = nullptr;
  Device device_ = 0;
  Context context_ = nullptr;
  Stream stream_ = nullptr;  // the first: of memory and transfers
  std::vector<std::unique_ptr<Queue>> queues_;
  Queue* current_ = nullptr;
  std::unique_ptr<Queue> beside_;   // of parts of plans; a plan ends behind them
  std::vector<Event> ends_beside_;  // by number of such a part
  Stream reads_ = nullptr;          // of what is read beside the work; made when first needed
  std::vector<Event> marks_;
  std::vector<uint32_t> free_marks_;
  bool pools_ = false;
  int max_shared_ = 0;
  std::string lost_;
  std::vector<Buffer> buffers_;
  std::vector<uint32_t> free_;
  std::vector<Module> modules_;
  std::vector<Kernel> kernels_;
  std::vector<std::unique_ptr<Plan>> plans_;
  Repeats repeats_;
  Run* running_ = nullptr;
  double runs_ = 0, staged_runs_ = 0;
  Verdicts verdicts_;
  Collectives collectives_;
  OperationGraphs operation_graphs_;
  Staging uploads_, downloads_, arguments_;
  DevicePointer mirror_ = 0;  // of arguments_, on the device
};

}  // namespace lz
