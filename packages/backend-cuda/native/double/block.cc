#include "double/block.h"

#include <cstdint>
#include <cstring>
#include <vector>

#include "host/fiber.h"

namespace lz {
namespace {

constexpr unsigned kWarp = 32;

struct Lane {
  enum State { kReady, kExchange, kBarrier, kDone } state = kReady;
  Fiber* fiber = nullptr;
  LzExchange kind{};
  const void* site = nullptr;
  unsigned mask = 0, value = 0, result = 0;
  int from = 0;
};

// The block at hand: there is one at a time.
struct Running {
  const LzKernel* kernel = nullptr;
  LzHost* host = nullptr;
  void** arguments = nullptr;
  unsigned lanes = 0, now = 0;
  bool reversed = false;
  Lane lane[kMaxThreads];
  void* scheduler = nullptr;
  std::string error;
} running;
Stacks stacks;

void leave(Lane::State state) {
  Lane& mine = running.lane[running.now];
  mine.state = state;
  switch_stack(&mine.fiber->stack, running.scheduler);
}

void thread_main() {
  running.kernel->call(running.arguments);
  leave(Lane::kDone);
}

void barrier() { leave(Lane::kBarrier); }

unsigned exchange(LzExchange kind, const void* site, unsigned mask, unsigned value, int from) {
  Lane& mine = running.lane[running.now];
  mine.kind = kind;
  mine.site = site;
  mine.mask = mask;
  mine.value = value;
  mine.from = from;
  leave(Lane::kExchange);
  return mine.result;
}

void resume(unsigned index) {
  Lane& lane = running.lane[index];
  const uint3 size = running.host->block_size;
  running.host->thread = {index % size.x, index / size.x % size.y, index / (size.x * size.y)};
  running.now = index;
  switch_stack(&running.scheduler, lane.fiber->stack);
}

// Lanes that wait at one instruction exchange: those at the lowest address first, as if the others
// waited for them. Where they say with whom they exchange, that counts instead: a compiler for the CPU may
// have made two instructions of one.
void resolve(Lane* warp, unsigned width) {
  const Lane* first = nullptr;
  for (unsigned i = 0; i < width; i++)
    if (warp[i].state == Lane::kExchange && (!first || warp[i].site < first->site)) first = &warp[i];
  const void* site = first->site;
  const LzExchange kind = first->kind;
  const unsigned mask = first->mask;
  unsigned taking = 0, votes = 0, values[kWarp] = {};
  for (unsigned i = 0; i < width; i++) {
    const Lane& lane = warp[i];
    if (lane.state != Lane::kExchange || lane.kind != kind) continue;
    if (kind == LzExchange::kMask ? lane.site != site : lane.mask != mask) continue;
    taking |= 1u << i;
    values[i] = lane.value;
    if (lane.value) votes |= 1u << i;
  }
  for (unsigned i = 0; i < width; i++) {
    if (!(taking >> i & 1)) continue;
    Lane& lane = warp[i];
    const unsigned from = unsigned(lane.from) % kWarp;
    switch (kind) {
      case LzExchange::kMask:
        lane.result = taking;
        break;
      case LzExchange::kBallot:
        lane.result = votes & lane.mask;
        break;
      case LzExchange::kShuffle:
        // Of a lane that takes no part there is no value to be had.
        lane.result = taking >> from & 1 ? values[from] : 0xdeadbeefu;
        break;
      case LzExchange::kMeet:
        break;
    }
    lane.state = Lane::kReady;
  }
}

// Number i of n, from the first on or from the last.
unsigned in_order(unsigned i, unsigned n) { return running.reversed ? n - 1 - i : i; }

void run_block() {
  Running& r = running;
  for (unsigned i = 0; i < r.lanes; i++) {
    r.lane[i].state = Lane::kReady;
    r.lane[i].fiber = stacks.fiber(i);
    prepare(r.lane[i].fiber, thread_main);
  }
  for (;;) {
    unsigned done = 0, waiting = 0;
    const unsigned warps = (r.lanes + kWarp - 1) / kWarp;
    for (unsigned w = 0; w < warps; w++) {
      const unsigned begin = in_order(w, warps) * kWarp;
      Lane* warp = r.lane + begin;
      const unsigned width = r.lanes - begin < kWarp ? r.lanes - begin : kWarp;
      for (;;) {
        unsigned exchanging = 0;
        for (unsigned k = 0; k < width; k++) {
          const unsigned i = in_order(k, width);
          if (warp[i].state == Lane::kReady) resume(begin + i);
          exchanging += warp[i].state == Lane::kExchange;
        }
        if (exchanging == 0) break;
        resolve(warp, width);
      }
      for (unsigned i = 0; i < width; i++) {
        done += warp[i].state == Lane::kDone;
        waiting += warp[i].state == Lane::kBarrier;
      }
    }
    if (done == r.lanes) return;
    // Threads that have returned are not waited for.
    if (done + waiting == r.lanes)
      for (unsigned i = 0; i < r.lanes; i++)
        if (r.lane[i].state == Lane::kBarrier) r.lane[i].state = Lane::kReady;
  }
}

}  // namespace

void prepare_host(LzHost* host) {
  host->barrier = barrier;
  host->exchange = exchange;
}

std::string run_grid(const LzKernel& kernel, LzHost* host, const Block& launch, void** arguments) {
  Running& r = running;
  r.kernel = &kernel;
  r.host = host;
  r.arguments = arguments;
  r.reversed = launch.reversed;
  r.lanes = launch.size.x * launch.size.y * launch.size.z;
  if (r.lanes > unsigned(kernel.max_threads)) return "the block has too many threads";
  std::vector<uint4> shared(launch.dynamic_shared / sizeof(uint4) + 1);
  host->block_size = launch.size;
  host->grid_size = launch.grid;
  host->shared = shared.data();
  for (unsigned z = 0; z < launch.grid.z; z++)
    for (unsigned y = 0; y < launch.grid.y; y++)
      for (unsigned x = 0; x < launch.grid.x; x++) {
        host->block = {in_order(x, launch.grid.x), in_order(y, launch.grid.y), in_order(z, launch.grid.z)};
        // NaN, so that a read before a write shows.
        std::memset(static_cast<void*>(shared.data()), 0xff, shared.size() * sizeof(uint4));
        run_block();
      }
  return {};
}

}  // namespace lz
