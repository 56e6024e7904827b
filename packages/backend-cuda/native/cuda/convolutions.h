// Convolutions and their gradients by cuDNN, opened when it is first asked for.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "cuda/driver.h"

namespace lz {

// A convolution of images with a kernel into results, or one of its gradients. Sizes are in the order batch,
// channels, spatial axes; strides in elements, where an array may lie in any order. The kernel is packed:
// output channels, spatial axes, channels of a group.
struct Convolution {
  enum Form : int { kForward = 0, kImages = 1, kKernel = 2 };
  int form;  // the array that is made: results, images or the kernel
  int type;  // cudnnDataType_t of all arrays
  int math;  // cudnnMathType_t
  int axes;  // spatial ones, 2 or 3
  int groups;
  int ordered;  // 1 for the same bits at every run
  int images[5], image_steps[5];
  int kernel[5];
  int results[5], result_steps[5];
  int padding[3], stride[3], dilation[3];
};
// Integers of a record, in the order of the members.
constexpr size_t kConvolutionWords = sizeof(Convolution) / sizeof(int);

// Opens the library. Returns what is wrong, or an empty string.
std::string open_convolutions(const std::vector<std::string>& candidates, std::string* path);

class Convolutions {
 public:
  Convolutions() = default;
  Convolutions(const Convolutions&) = delete;

  // Tells that the library has an algorithm for it.
  bool takes(const Convolution& work, Stream stream);
  // Adds one to a stream, over the images, the kernel and the results. Returns what is wrong, or an empty
  // string.
  std::string run(const Driver& driver, const Convolution& work, const DevicePointer (&at)[3], Stream stream);
  void close(const Driver& driver);

 private:
  struct Prepared {
    void *images = nullptr, *kernel = nullptr, *results = nullptr, *convolution = nullptr;
    int algorithm = 0;
    size_t workspace = 0;
  };
  std::string find(const Convolution& work, Stream stream, const Prepared** found);
  std::string prepare(const Convolution& work, Prepared* made);

  void* handle_ = nullptr;
  // The last one serves.
  std::vector<DevicePointer> workspaces_;
  size_t workspace_size_ = 0;
  std::unordered_map<std::string, Prepared> prepared_;
};

}  // namespace lz
