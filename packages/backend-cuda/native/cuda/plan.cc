// Plans: commands that run many times. The first run launches them one by one; later ones launch a graph of
// the driver, captured from the very same calls, which is there for bindings that came before and is updated
// for others.
#include <algorithm>

#include "cuda/device.h"

namespace lz {
namespace {

// Fewer launches cost no more than a graph.
constexpr uint32_t kFew = 4;
// Commands, as gpu-kernels writes them; those of libraries come after these.
enum : uint32_t { kBuffer = 2, kThreads = 5, kThreadgroups = 6, kUnless = 13, kLibrary = 32 };
// Kernel nodes that are updated for other bindings; with more, or with a library's, a graph is captured
// again.
constexpr size_t kMany = 16, kLibraryUse = size_t{1} << 32;

// After so many misses, a graph is captured in one of these runs only.
constexpr size_t kTries = 64;

// Arrays of at most this many bytes are staged: core gives their memory back in groups, so that results of
// the next run seldom find it free. Then as kernels/stage.cu has it.
constexpr uint32_t kStaged = 1024, kCopies = 64, kStageThreads = 64;
constexpr size_t kStageAlign = 256;
struct Copy {
  DevicePointer from, to;
  uint64_t bytes;
};

// The copies of one kernel.
struct Copies {
  Copy each[kCopies];
  uint32_t count;
};

std::vector<Copies> copies_of(const Plan& plan, const std::vector<DevicePointer>& given, bool inputs) {
  std::vector<Copies> all;
  for (const auto& [binding, in, out, bytes, at] : plan.staged) {
    if (!(inputs ? in : out)) continue;
    if (all.empty() || all.back().count == kCopies) all.emplace_back().count = 0;
    Copies& last = all.back();
    const DevicePointer own = given[binding];
    last.each[last.count++] = {inputs ? own : at, inputs ? at : own, bytes};
  }
  return all;
}

bool is_launch(uint32_t op) { return op == kThreads || op == kThreadgroups || op >= kLibrary; }

}  // namespace

uint32_t Gpu::new_plan(const uint32_t* words, size_t count, const uint32_t* sizes, uint32_t bindings,
                       uint32_t inputs, uint32_t outputs, uint32_t stage) {
  auto plan = std::make_unique<Plan>();
  plan->stage = stage;
  for (uint32_t i = 0; i < bindings; i++)
    if (sizes[i] > 0 && sizes[i] <= kStaged)
      plan->staged.push_back({i, i < inputs, i >= outputs, sizes[i], 0});
  plan->words.assign(words, words + count);
  plan->words.resize(count + kSlack / 4);
  plan->count = count;
  plan->bindings = bindings;
  plan->in_libraries.resize(bindings);
  plan->uses.resize(bindings);
  std::vector<uint32_t> named;  // since the last launch
  for (size_t at = 0; at < count && words[at] >> 8; at += words[at] >> 8) {
    const uint32_t op = words[at] & 0xff;
    if (op == kUnless && at + 2 < count && words[at + 1] < bindings && words[at + 2] < bindings)
      plan->pairs.emplace_back(words[at + 1], words[at + 2]);
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

std::string Gpu::copy_staged(Run& run, const std::vector<DevicePointer>& given, bool inputs) {
  for (Copies& copies : copies_of(*run.plan, given, inputs)) {
    void* arguments[] = {copies.each};
    const unsigned grid[3] = {copies.count, 1, 1}, block[3] = {kStageThreads, 1, 1};
    if (const Result r = launch(kernels_[run.plan->stage], grid, block, 0, arguments))
      return failure("the launch", r);
    if (std::string error = note_node(run, true); !error.empty()) return error;
  }
  return {};
}

std::string Gpu::move_staged(const Plan& plan, Plan::Instance& instance,
                             const std::vector<DevicePointer>& given) {
  if (instance.given == given) return {};
  // Some may know the new arrays and others not.
  instance.given.clear();
  size_t stage = 0;
  for (const bool inputs : {true, false})
    for (Copies& copies : copies_of(plan, given, inputs)) {
      void* arguments[] = {copies.each};
      const KernelNode node{kernels_[plan.stage].function,
                            {copies.count, 1, 1},
                            {kStageThreads, 1, 1},
                            0,
                            arguments,
                            nullptr,
                            nullptr,
                            nullptr};
      if (const Result r = driver_->GraphExecSetKernel(instance.exec, instance.stages[stage++], &node))
        return failure("the update of a graph", r);
    }
  instance.given = given;
  return {};
}

std::string Gpu::run_plan(Plan& plan, const std::vector<DevicePointer>& given) {
  Plan::Instance* instance = nullptr;
  if (std::string error = choose_graph(plan, given, &instance); !error.empty()) return error;
  if (instance) return launch_graph(plan, given, *instance);
  Run run{&plan, given.data()};
  return execute(run);
}

std::string Gpu::choose_graph(Plan& plan, const std::vector<DevicePointer>& given, Plan::Instance** chosen) {
  plan.runs++;
  if (!driver_->graphs || plan.launches < kFew || plan.runs == 1) return {};
  if (std::string error = prepare_staging(plan); !error.empty()) return error;
  std::vector<DevicePointer> bound = given;
  for (const auto& each : plan.staged) bound[each.binding] = each.at;
  std::vector<bool> in_place(plan.pairs.size());
  for (size_t i = 0; i < in_place.size(); i++)
    in_place[i] = bound[plan.pairs[i].first] == bound[plan.pairs[i].second];
  Plan::Instance* instance = nullptr;
  // The graph of which the fewest launches read or write something else.
  std::vector<bool> changed;
  size_t fewest = SIZE_MAX;
  for (auto& each : plan.instances) {
    if (each.stream != current_->stream || each.in_place != in_place) continue;
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
  const bool is_full = plan.instances.size() == Plan::kInstances;
  const bool is_missing = fewest >= kLibraryUse || (fewest > kMany && (!is_full || plan.is_repeat));
  plan.misses = is_missing ? plan.misses + 1 : 0;
  if (is_missing && plan.is_repeat && is_full) return {};
  if (plan.misses > Plan::kMisses && plan.misses % kTries != 0) return {};
  if (is_missing) {
    instance = nullptr;
    Plan::Instance made{current_->stream, nullptr, nullptr, {}, {}, {}, {}, in_place, 0};
    bool lacks_bytes = false;
    if (std::string error = capture(plan, given, bound, &made, &lacks_bytes); !error.empty())
      return lacks_bytes ? std::string() : error;
    if (is_full) {
      auto oldest = std::min_element(plan.instances.begin(), plan.instances.end(),
                                     [](const auto& a, const auto& b) { return a.used < b.used; });
      UpdateInfo info{};
      // With other work left out its launches would be other nodes.
      if (oldest->in_place == in_place &&
          driver_->GraphExecUpdate(oldest->exec, made.graph, &info) == kSuccess) {
        // Its nodes are told of by the graph that it was made of.
        driver_->GraphDestroy(made.graph);
        instance = &*oldest;
        instance->stream = current_->stream;
      } else {
        driver_->GraphExecDestroy(oldest->exec);
        driver_->GraphDestroy(oldest->graph);
        plan.instances.erase(oldest);
      }
    }
    if (!instance) {
      if (const Result r = driver_->GraphInstantiate(&made.exec, made.graph, 0)) {
        driver_->GraphDestroy(made.graph);
        return failure("a graph", r);
      }
      instance = &plan.instances.emplace_back(std::move(made));
    }
    instance->given = given;
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
  *chosen = instance;
  return {};
}

std::string Gpu::launch_graph(Plan& plan, const std::vector<DevicePointer>& given, Plan::Instance& instance) {
  // The staged arrays may still be under way on another stream.
  if (plan.queue && !plan.staged.empty())
    if (std::string error = join(*current_, *plan.queue); !error.empty()) return error;
  plan.queue = current_;
  if (std::string error = move_staged(plan, instance, given); !error.empty()) return error;
  const Result r = driver_->GraphLaunch(instance.exec, current_->stream);
  if (r == kSuccess && !plan.staged.empty()) staged_runs_++;
  return r == kSuccess ? std::string() : failure("the launch of a graph", r);
}

void Gpu::execute(Run& run, std::vector<Failed>* failed) {
  running_ = &run;
  execute(run.plan->words.data(), run.plan->count, &run, failed);
  running_ = nullptr;
}

std::string Gpu::execute(Run& run) {
  std::vector<Failed> failed;
  execute(run, &failed);
  return failed.empty() ? std::string() : failed[0].message;
}

std::string Gpu::capture(Plan& plan, const std::vector<DevicePointer>& given,
                         const std::vector<DevicePointer>& bound, Plan::Instance* made, bool* lacks_bytes) {
  if (const Result r = driver_->StreamBeginCapture(current_->stream, kCaptureRelaxed))
    return failure("cuStreamBeginCapture", r);
  Run run{&plan, bound.data(), &made->stages};
  auto stage = [&](bool inputs) {
    running_ = &run;
    run.captured = &made->stages;
    std::string error = copy_staged(run, given, inputs);
    running_ = nullptr;
    return error;
  };
  std::string error = stage(true);
  run.captured = &made->nodes;
  if (error.empty()) error = execute(run);
  if (error.empty()) error = stage(false);
  const Result r = driver_->StreamEndCapture(current_->stream, &made->graph);
  if (error.empty() && r == kSuccess) return {};
  if (r == kSuccess) driver_->GraphDestroy(made->graph);
  *lacks_bytes = run.lacks_bytes;
  return error.empty() ? failure("cuStreamEndCapture", r) : error;
}

// The node that the last launch became: the one that the next would wait for.
std::string Gpu::note_node(Run& run, bool is_kernel) {
  run.launch++;
  if (!run.captured) return {};
  run.follows_kernel = is_kernel;
  int status = 0;
  uint64_t id = 0;
  Graph graph = nullptr;
  const GraphNode* last = nullptr;
  const void* edges = nullptr;
  size_t count = 0;
  const Stream stream = current_->stream;
  const Result r = driver_->ahead
                       ? driver_->StreamGetCaptureEdges(stream, &status, &id, &graph, &last, &edges, &count)
                       : driver_->StreamGetCaptureInfo(stream, &status, &id, &graph, &last, &count);
  if (r) return failure("cuStreamGetCaptureInfo", r);
  run.captured->push_back(count == 1 ? last[0] : nullptr);
  return {};
}

}  // namespace lz
