// A repeated command stream becomes a plan. Its bindings are the buffers that the stream names, or those of
// their parts that are arrays of their own; addresses are looked up for every run.
#include "cuda/repeats.h"

#include <algorithm>

#include "cuda/device.h"

namespace lz {
namespace {

// Runs of a stream before its graph is made, which takes as long as about ten runs.
constexpr uint32_t kOften = 4;
// Streams with fewer launches gain nothing from a graph, and streams with more words are not hashed.
constexpr uint32_t kFew = 8;
constexpr size_t kMostWords = 1 << 14;
// Limits of known streams and of plans, and the runs after which an unused plan may be replaced.
constexpr size_t kMostKnown = 4096, kMostPlans = 64;
constexpr double kStale = 4096;

constexpr uint32_t kMostBindings = Repeats::kSlots / 2;

enum : uint32_t { kPipeline = 1, kBuffer, kBytes, kThreadgroup, kThreads, kThreadgroups, kBarrier };

}  // namespace

uint32_t Repeats::number_of(uint64_t key, DevicePointer at, uint32_t bytes) {
  for (uint32_t i = uint32_t((key * 0x9e3779b97f4a7c15u) >> 32);; i++) {
    Slot& slot = slots[i % kSlots];
    if (slot.stamp == stamp && slot.key == key) return slot.number;
    if (slot.stamp == stamp) continue;
    if (bound.size() == kMostBindings) return kNone;
    slot = {key, stamp, uint32_t(bound.size())};
    bound.push_back(at);
    sizes.push_back(bytes);
    return slot.number;
  }
}

uint64_t Repeats::hash() const {
  uint64_t h = words.size();
  for (const auto* each : {&words, &sizes})
    for (size_t i = 0; i < each->size(); i += 2) {
      const uint64_t pair = (*each)[i] | (i + 1 < each->size() ? uint64_t{(*each)[i + 1]} << 32 : 0);
      h = (h ^ pair) * 0x9e3779b97f4a7c15u;
      h ^= h >> 29;
    }
  return h;
}

bool Gpu::name_bindings(const uint32_t* words, size_t count) {
  Repeats& r = repeats_;
  if (++r.stamp == 0) {
    std::fill(r.slots.begin(), r.slots.end(), Repeats::Slot{});
    r.stamp = 1;
  }
  r.bound.clear();
  r.sizes.clear();
  r.words.assign(words, words + count);
  uint32_t launches = 0;
  for (size_t at = 0, size = 0; at < count; at += size) {
    uint32_t* w = r.words.data() + at;
    size = w[0] >> 8;
    const uint32_t op = w[0] & 0xff;
    if (size == 0 || at + size > count || op < kPipeline || op > kBarrier) return false;
    launches += op == kThreads || op == kThreadgroups;
    if (op != kBuffer) continue;
    if (size < 5) return false;
    const Buffer* b = buffer(w[2]);
    if (!b) return false;
    const uint64_t offset = w[3] | uint64_t{w[4]} << 32, part = b->part ? offset / b->part : 0;
    if (part > UINT32_MAX) return false;
    const DevicePointer begin = b->part * part;
    w[2] = r.number_of(uint64_t{w[2]} << 32 | part, b->pointer + begin, b->part);
    if (w[2] == Repeats::kNone) return false;
    w[3] = uint32_t(offset - begin);
    w[4] = uint32_t((offset - begin) >> 32);
  }
  return launches >= kFew;
}

void Gpu::forget_repeat(uint64_t hash) {
  Repeats& r = repeats_;
  Repeats::Known& known = r.known[hash];
  release_plan(known.plan);
  known = {};
  r.planned.erase(std::find(r.planned.begin(), r.planned.end(), hash));
}

Plan* Gpu::plan_of_repeat(Repeats::Known& known, uint64_t hash) {
  Repeats& r = repeats_;
  if (known.plan == Repeats::kNone) {
    if (known.times < kOften) return nullptr;
    r.wants_stage = r.stage == Repeats::kNone;
    if (r.wants_stage) return nullptr;
    if (r.planned.size() == kMostPlans) {
      auto oldest = std::min_element(r.planned.begin(), r.planned.end(), [&](uint64_t a, uint64_t b) {
        return r.known[a].used < r.known[b].used;
      });
      if (r.known[*oldest].used + kStale > runs_) return nullptr;
      forget_repeat(*oldest);
    }
    const uint32_t bindings = uint32_t(r.bound.size());
    known.plan = new_plan(r.words.data(), r.words.size(), r.sizes.data(), bindings, bindings, 0, r.stage);
    plans_[known.plan]->is_repeat = true;
    known.sizes = r.sizes;
    r.planned.push_back(hash);
  }
  Plan& plan = *plans_[known.plan];
  // Hashes may collide.
  const bool is_same = plan.count == r.words.size() && known.sizes == r.sizes &&
                       std::equal(r.words.begin(), r.words.end(), plan.words.begin());
  return is_same ? &plan : nullptr;
}

bool Gpu::run_again(const uint32_t* words, size_t count, std::vector<Failed>* failed) {
  Repeats& r = repeats_;
  // With several queues a stream also has commands that order them.
  if (r.is_off || !driver_->graphs || queues_.size() > 1 || count > kMostWords) return false;
  if (!name_bindings(words, count)) return false;
  if (r.known.size() >= kMostKnown)
    std::erase_if(r.known, [](const auto& each) { return each.second.plan == Repeats::kNone; });
  const uint64_t hash = r.hash();
  Repeats::Known& known = r.known[hash];
  known.times++;
  known.used = runs_;
  Plan* plan = known.is_refused ? nullptr : plan_of_repeat(known, hash);
  if (!plan) return false;
  Plan::Instance* instance = nullptr;
  std::string error = choose_graph(*plan, r.bound, &instance);
  if (error.empty() && instance) error = launch_graph(*plan, r.bound, *instance);
  if (error.empty() && !instance && plan->misses <= Plan::kMisses) {
    Run run{plan, r.bound.data()};
    execute(run, failed);
    return true;
  }
  if (error.empty() && instance) return true;
  // Run command by command, so that a failure is attributed to its command. Also for a plan that no graph
  // serves any more, because its large arrays lie elsewhere in every run.
  forget_repeat(hash);
  known.is_refused = true;
  return false;
}

}  // namespace lz
