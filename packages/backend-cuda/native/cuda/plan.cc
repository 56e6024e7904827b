// Plans: commands that run many times. The first run launches them one by one; later ones launch a graph of
// the driver, captured from the very same calls, which is there for bindings that came before and is updated
// for others.
#include <algorithm>

#include "cuda/device.h"

namespace lz {
namespace {

// Fewer launches cost no more than a graph.
constexpr uint32_t kFew = 4;
// Graphs of a plan: results and what they are made of take turns in memory.
constexpr size_t kInstances = 4;

// Commands, as gpu-kernels writes them; those of libraries come after these.
enum : uint32_t { kBuffer = 2, kThreads = 5, kThreadgroups = 6, kLibrary = 32 };
// Launches that are told of other bindings rather than captured anew. Those of libraries never are.
constexpr size_t kMany = 16, kLibraryUse = size_t{1} << 32;

// Runs without a graph that served after which capturing more is not tried but from time to time: a launch
// by itself costs less than one that is captured.
constexpr size_t kMisses = 2 * kInstances, kTries = 64;

// Arrays of at most this many bytes are staged: core gives their memory back in groups, so that results of
// the next run seldom find it free. Then as kernels/stage.cu has it.
constexpr uint32_t kStaged = 1024, kCopies = 64, kStageThreads = 64;
constexpr size_t kStageAlign = 256;
struct Copy {
  DevicePointer from, to;
  uint64_t bytes;
};

bool is_launch(uint32_t op) { return op == kThreads || op == kThreadgroups || op >= kLibrary; }

}  // namespace

uint32_t Gpu::new_plan(const uint32_t* words, size_t count, const uint32_t* sizes, uint32_t bindings,
                       uint32_t inputs, uint32_t stage) {
  auto plan = std::make_unique<Plan>();
  plan->stage = stage;
  for (uint32_t i = 0; i < bindings; i++)
    if (sizes[i] > 0 && sizes[i] <= kStaged) plan->staged.push_back({i, i < inputs, sizes[i], 0});
  plan->words.assign(words, words + count);
  plan->words.resize(count + kSlack / 4);
  plan->count = count;
  plan->bindings = bindings;
  plan->in_libraries.resize(bindings);
  plan->uses.resize(bindings);
  std::vector<uint32_t> named;  // since the last launch
  for (size_t at = 0; at < count && words[at] >> 8; at += words[at] >> 8) {
    const uint32_t op = words[at] & 0xff;
    if (op == kBuffer && at + 2 < count && words[at + 2] < bindings) named.push_back(words[at + 2]);
    if (!is_launch(op)) continue;
    plan->launches++;
    for (const uint32_t binding : named) {
      plan->uses[binding]++;
      if (op >= kLibrary) plan->in_libraries[binding] = true;
    }
    named.clear();
  }
  uint32_t id = 0;
  while (id < plans_.size() && plans_[id]) id++;
  if (id == plans_.size()) plans_.emplace_back();
  plans_[id] = std::move(plan);
  return id;
}

// A graph that is running ends first.
void Gpu::release_plan(double id) {
  if (!(id >= 0 && id < double(plans_.size())) || !plans_[size_t(id)]) return;
  Plan& plan = *plans_[size_t(id)];
  if (enter().empty()) {
    for (const auto& instance : plan.instances) {
      driver_->GraphExecDestroy(instance.exec);
      driver_->GraphDestroy(instance.graph);
    }
    if (!plan.constants.empty() || plan.staging) synchronize(-1);
    if (plan.staging) driver_->MemFree(plan.staging);
    for (const auto& [bytes, pointer] : plan.constants) driver_->MemFree(pointer);
  }
  plans_[size_t(id)] = nullptr;
}

std::string Gpu::run_plan(const uint32_t* words, size_t count) {
  const uint32_t id = count > 0 ? words[0] : UINT32_MAX;
  if (id >= plans_.size() || !plans_[id]) return "there is no such plan";
  Plan& plan = *plans_[id];
  if (count != 1 + 3 * size_t{plan.bindings}) return "a plan is run with bindings other than its own";
  std::vector<DevicePointer> bound(plan.bindings);
  for (uint32_t i = 0; i < plan.bindings; i++) {
    const uint32_t* w = words + 1 + 3 * i;
    const Buffer* b = buffer(w[0]);
    if (!b) return "there is no such buffer";
    bound[i] = b->pointer + (w[1] | uint64_t{w[2]} << 32);
  }
  return run_plan(plan, bound);
}

std::string Gpu::prepare_staging(Plan& plan) {
  if (plan.staging || plan.staged.empty()) return {};
  size_t bytes = 0;
  for (auto& each : plan.staged) {
    each.at = bytes;
    bytes += (each.bytes + kStageAlign - 1) / kStageAlign * kStageAlign;
  }
  if (const Result r = driver_->MemAlloc(&plan.staging, bytes)) return failure("cuMemAlloc", r);
  for (auto& each : plan.staged) each.at += plan.staging;
  return {};
}

std::string Gpu::copy_staged(const Plan& plan, const std::vector<DevicePointer>& given, bool inputs) {
  Copy copies[kCopies];
  uint32_t count = 0;
  auto launch = [&]() -> Result {
    if (count == 0) return kSuccess;
    void* arguments[] = {copies};
    const Result r = driver_->LaunchKernel(kernels_[plan.stage].function, count, 1, 1, kStageThreads, 1, 1, 0,
                                           current_->stream, arguments, nullptr);
    count = 0;
    return r;
  };
  Result r = kSuccess;
  for (const auto& each : plan.staged) {
    if (each.is_input != inputs) continue;
    const DevicePointer own = given[each.binding];
    copies[count++] = {inputs ? own : each.at, inputs ? each.at : own, each.bytes};
    if (count == kCopies && (r = launch())) break;
  }
  if (r == kSuccess) r = launch();
  return r == kSuccess ? std::string() : failure("the launch", r);
}

std::string Gpu::run_plan(Plan& plan, const std::vector<DevicePointer>& given) {
  plan.runs++;
  if (!driver_->graphs || plan.launches < kFew || plan.runs == 1) {
    Run run{&plan, given.data()};
    return execute(run);
  }
  if (std::string error = prepare_staging(plan); !error.empty()) return error;
  std::vector<DevicePointer> bound = given;
  for (const auto& each : plan.staged) bound[each.binding] = each.at;
  Plan::Instance* instance = nullptr;
  // The graph of which the fewest launches read or write something else.
  std::vector<bool> changed;
  size_t fewest = SIZE_MAX;
  for (auto& each : plan.instances) {
    if (each.stream != current_->stream) continue;
    std::vector<bool> others(plan.bindings);
    size_t count = 0;
    for (uint32_t i = 0; i < plan.bindings; i++)
      if (each.bound[i] != bound[i]) {
        others[i] = true;
        count += plan.in_libraries[i] ? kLibraryUse : std::max(plan.uses[i], 1u);
      }
    if (count >= fewest) continue;
    fewest = count;
    changed = std::move(others);
    instance = &each;
  }
  const bool is_full = plan.instances.size() == kInstances;
  const bool is_missing = fewest >= kLibraryUse || (fewest > kMany && !is_full);
  plan.misses = is_missing ? plan.misses + 1 : 0;
  if (plan.misses > kMisses && plan.misses % kTries != 0) {
    Run run{&plan, given.data()};
    return execute(run);
  }
  if (is_missing) {
    instance = nullptr;
    Graph graph = nullptr;
    std::vector<GraphNode> nodes;
    if (std::string error = capture(plan, bound.data(), &graph, &nodes); !error.empty()) return error;
    if (is_full) {
      auto oldest = std::min_element(plan.instances.begin(), plan.instances.end(),
                                     [](const auto& a, const auto& b) { return a.used < b.used; });
      UpdateInfo info{};
      if (driver_->GraphExecUpdate(oldest->exec, graph, &info) == kSuccess) {
        // Its nodes are told of by the graph that it was made of.
        driver_->GraphDestroy(graph);
        instance = &*oldest;
        instance->stream = current_->stream;
      } else {
        driver_->GraphExecDestroy(oldest->exec);
        driver_->GraphDestroy(oldest->graph);
        plan.instances.erase(oldest);
      }
    }
    if (!instance) {
      GraphExec exec = nullptr;
      if (const Result r = driver_->GraphInstantiate(&exec, graph, 0)) {
        driver_->GraphDestroy(graph);
        return failure("a graph", r);
      }
      instance = &plan.instances.emplace_back(
          Plan::Instance{current_->stream, graph, exec, std::move(nodes), {}, 0});
    }
  } else if (fewest > 0) {
    Run run{&plan, bound.data(), nullptr, instance, &changed};
    if (std::string error = execute(run); !error.empty()) {
      // It may know some of these bindings and not others.
      instance->bound.assign(plan.bindings, 0);
      return error;
    }
  }
  instance->bound = std::move(bound);
  instance->used = plan.runs;
  // The staged arrays may still be under way on another stream.
  if (plan.queue && !plan.staged.empty())
    if (std::string error = join(*current_, *plan.queue); !error.empty()) return error;
  plan.queue = current_;
  if (std::string error = copy_staged(plan, given, true); !error.empty()) return error;
  if (const Result r = driver_->GraphLaunch(instance->exec, current_->stream))
    return failure("the launch of a graph", r);
  return copy_staged(plan, given, false);
}

std::string Gpu::execute(Run& run) {
  std::vector<Failed> failed;
  running_ = &run;
  execute(run.plan->words.data(), run.plan->count, &run, &failed);
  running_ = nullptr;
  return failed.empty() ? std::string() : failed[0].message;
}

std::string Gpu::capture(Plan& plan, const DevicePointer* bound, Graph* graph,
                         std::vector<GraphNode>* nodes) {
  if (const Result r = driver_->StreamBeginCapture(current_->stream, kCaptureRelaxed))
    return failure("cuStreamBeginCapture", r);
  Run run{&plan, bound, nodes};
  std::string error = execute(run);
  const Result r = driver_->StreamEndCapture(current_->stream, graph);
  if (error.empty() && r == kSuccess) return {};
  if (r == kSuccess) driver_->GraphDestroy(*graph);
  return error.empty() ? failure("cuStreamEndCapture", r) : error;
}

// The node that the last launch became: the one that the next would wait for.
std::string Gpu::note_node(Run& run) {
  run.launch++;
  if (!run.captured) return {};
  int status = 0;
  uint64_t id = 0;
  Graph graph = nullptr;
  const GraphNode* last = nullptr;
  size_t count = 0;
  if (const Result r = driver_->StreamGetCaptureInfo(current_->stream, &status, &id, &graph, &last, &count))
    return failure("cuStreamGetCaptureInfo", r);
  run.captured->push_back(count == 1 ? last[0] : nullptr);
  return {};
}

}  // namespace lz
