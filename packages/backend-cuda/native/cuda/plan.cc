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

bool is_launch(uint32_t op) { return op == 5 || op == 6 || op >= 32; }

}  // namespace

uint32_t Gpu::new_plan(const uint32_t* words, size_t count, uint32_t bindings) {
  auto plan = std::make_unique<Plan>();
  plan->words.assign(words, words + count);
  plan->words.resize(count + kSlack / 4);
  plan->count = count;
  plan->bindings = bindings;
  for (size_t at = 0; at < count && words[at] >> 8; at += words[at] >> 8)
    if (is_launch(words[at] & 0xff)) plan->launches++;
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
    for (const auto& instance : plan.instances) driver_->GraphExecDestroy(instance.exec);
    if (!plan.constants.empty()) driver_->StreamSynchronize(stream_);
    for (const auto& [bytes, pointer] : plan.constants) driver_->MemFree(pointer);
  }
  plans_[size_t(id)] = nullptr;
}

std::string Gpu::run_plan(const uint32_t* words, size_t count) {
  const uint32_t id = count > 0 ? words[0] : UINT32_MAX;
  if (id >= plans_.size() || !plans_[id]) return "there is no such plan";
  Plan& plan = *plans_[id];
  if (count != 1 + 3 * size_t{plan.bindings}) return "a plan is run with other bindings than it has";
  std::vector<DevicePointer> bound(plan.bindings);
  for (uint32_t i = 0; i < plan.bindings; i++) {
    const uint32_t* w = words + 1 + 3 * i;
    const Buffer* b = buffer(w[0]);
    if (!b) return "there is no such buffer";
    bound[i] = b->pointer + (w[1] | uint64_t{w[2]} << 32);
  }
  return run_plan(plan, bound);
}

std::string Gpu::run_plan(Plan& plan, const std::vector<DevicePointer>& bound) {
  plan.runs++;
  for (auto& instance : plan.instances)
    if (instance.bound == bound) {
      instance.used = plan.runs;
      const Result r = driver_->GraphLaunch(instance.exec, stream_);
      return r == kSuccess ? std::string() : failure("the launch of a graph", r);
    }
  if (!driver_->graphs || plan.launches < kFew || plan.runs == 1) {
    std::vector<Failed> failed;
    running_ = &plan;
    execute(plan.words.data(), plan.count, &plan, bound.data(), &failed);
    running_ = nullptr;
    return failed.empty() ? std::string() : failed[0].message;
  }
  Graph graph = nullptr;
  if (std::string error = capture(plan, bound.data(), &graph); !error.empty()) return error;
  Plan::Instance* instance = nullptr;
  Result r = kSuccess;
  if (plan.instances.size() == kInstances) {
    instance = &*std::min_element(plan.instances.begin(), plan.instances.end(),
                                  [](const auto& a, const auto& b) { return a.used < b.used; });
    UpdateInfo info{};
    if (driver_->GraphExecUpdate(instance->exec, graph, &info) != kSuccess) {
      driver_->GraphExecDestroy(instance->exec);
      plan.instances.erase(plan.instances.begin() + (instance - plan.instances.data()));
      instance = nullptr;
    }
  }
  if (!instance) {
    GraphExec exec = nullptr;
    r = driver_->GraphInstantiate(&exec, graph, 0);
    if (r == kSuccess) instance = &plan.instances.emplace_back(Plan::Instance{exec, {}, 0});
  }
  driver_->GraphDestroy(graph);
  if (r != kSuccess) return failure("a graph", r);
  instance->bound = bound;
  instance->used = plan.runs;
  r = driver_->GraphLaunch(instance->exec, stream_);
  return r == kSuccess ? std::string() : failure("the launch of a graph", r);
}

std::string Gpu::capture(Plan& plan, const DevicePointer* bound, Graph* graph) {
  if (const Result r = driver_->StreamBeginCapture(stream_, kCaptureRelaxed))
    return failure("cuStreamBeginCapture", r);
  std::vector<Failed> failed;
  running_ = &plan;
  execute(plan.words.data(), plan.count, &plan, bound, &failed);
  running_ = nullptr;
  const Result r = driver_->StreamEndCapture(stream_, graph);
  if (failed.empty() && r == kSuccess) return {};
  if (r == kSuccess) driver_->GraphDestroy(*graph);
  return failed.empty() ? failure("cuStreamEndCapture", r) : failed[0].message;
}

}  // namespace lz
