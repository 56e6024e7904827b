// The command stream: 32-bit words that gpu-kernels/src/runtime/command-stream.ts writes, and what they are
// about.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "host/memory.h"
#include "lazuli/metal_host.h"

namespace lz {

// A record begins with its opcode in the low byte and its length in words, itself included, above.
enum class Op : uint32_t {
  kPipeline = 1,      // kernel
  kBuffer = 2,        // index, buffer, byte offset (two words)
  kBytes = 3,         // index, byte count, bytes
  kThreadgroup = 4,   // index, byte count
  kThreads = 5,       // grid in threads (three words), threadgroup (three words)
  kThreadgroups = 6,  // grid in threadgroups, threadgroup
  kBarrier = 7,
  kSignal = 8,  // event, value
  kWait = 9,    // event, value
};

struct Failed {
  size_t word;  // where the record starts
  std::string message;
};

// The objects that the numbers in a stream stand for.
struct Tables {
  std::vector<Block*> buffers;
  std::vector<const Kernel*> kernels;
  std::unordered_set<const Kernel*> checked;
  std::unordered_map<uint32_t, uint32_t> events;
};

// Runs the records one after another. A failed one does not stop those that follow.
std::vector<Failed> run_stream(Tables& tables, const uint32_t* words, size_t count);

}  // namespace lz
