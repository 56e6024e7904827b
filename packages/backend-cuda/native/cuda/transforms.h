// Fourier transforms by cuFFT, opened when it is first asked for.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "cuda/driver.h"

namespace lz {

// Transforms of a batch of row-major arrays, over all of their axes. Without a factor.
struct Transform {
  int type;     // cufftType
  int inverse;  // of complex numbers alone
  int axes;     // 1 to 3
  int batch;
  int sizes[3];  // of the real or the whole array
};
constexpr size_t kTransformWords = sizeof(Transform) / sizeof(int);

// Opens the library. Returns what is wrong, or an empty string.
std::string open_transforms(const std::vector<std::string>& candidates, std::string* path);

class Transforms {
 public:
  Transforms() = default;
  Transforms(const Transforms&) = delete;

  // Adds one to a stream. The input of one to real numbers is written over. Returns what is wrong, or an
  // empty string.
  std::string run(const Driver& driver, const Transform& work, DevicePointer from, DevicePointer to,
                  Stream stream);
  void close(const Driver& driver);

 private:
  struct Prepared {
    int handle;
    size_t workspace;
  };
  std::string prepare(const Transform& work, Stream stream, Prepared* made);

  std::unordered_map<std::string, Prepared> prepared_;
  // The last one serves; graphs that were captured use those before.
  std::vector<DevicePointer> workspaces_;
  size_t workspace_size_ = 0;
};

}  // namespace lz
