// Graphs of operations that cuDNN runs as one: attention and its derivative. Opened when they are first asked
// for.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "cuda/driver.h"

namespace lz {

// Opens the library. Returns what is wrong, or an empty string.
std::string open_operation_graphs(const std::vector<std::string>& candidates, std::string* path,
                                  size_t* version);

class OperationGraphs {
 public:
  OperationGraphs() = default;
  OperationGraphs(const OperationGraphs&) = delete;

  // Prepares a graph from its words, which src/operation-graph.ts writes. Returns what is wrong: the library
  // may have no engine for it.
  std::string prepare(const int64_t* words, size_t count, Stream stream, uint32_t* id);
  // Adds a run to a stream, over the arrays in their order.
  std::string run(const Driver& driver, uint32_t id, const std::vector<DevicePointer>& at, Stream stream);
  size_t arrays(uint32_t id) const { return id < prepared_.size() ? prepared_[id].arrays.size() : 0; }
  void close(const Driver& driver);

 private:
  struct Scalar {
    int64_t id;
    uint64_t bits;
  };
  struct Prepared {
    void* plan = nullptr;
    size_t workspace = 0;
    std::vector<int64_t> arrays;
    std::vector<Scalar> scalars;
  };
  struct Descriptors;
  std::string build(const int64_t* words, size_t count, Descriptors* all, Prepared* made);
  std::string plan(void* heuristics, Descriptors* all, Prepared* made);

  void* handle_ = nullptr;
  Stream stream_ = nullptr;  // of the handle
  // Those of each stream. The last one serves; graphs of the driver that were captured use those before.
  struct Workspaces {
    std::vector<DevicePointer> all;
    size_t size = 0;
  };
  std::unordered_map<Stream, Workspaces> workspaces_;
  std::vector<Prepared> prepared_;
};

}  // namespace lz
