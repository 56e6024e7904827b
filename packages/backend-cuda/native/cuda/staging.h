// Page-locked memory through which bytes go to the device and back: two halves, of which one is filled while
// the device reads the other.
#pragma once

#include <cstddef>
#include <string>

#include "cuda/driver.h"

namespace lz {

class Staging {
 public:
  Result open(const Driver* driver, size_t half);
  void close();

  size_t half() const { return half_; }
  // True if taking so many bytes turns to the other half.
  bool is_full(size_t nbytes) const;
  // Room for at most half() bytes, until the stream has passed what it does with them. Turns to the other
  // half when this one is full.
  Result take(size_t nbytes, Stream stream, char** data);
  // The halves themselves, for transfers that are waited for.
  char* at(int which) const { return data_ + size_t(which) * half_; }
  Event event(int which) const { return events_[which]; }

 private:
  const Driver* driver_ = nullptr;
  char* data_ = nullptr;
  size_t half_ = 0, used_ = 0;
  int now_ = 0;
  bool pending_[2] = {false, false};
  Event events_[2] = {nullptr, nullptr};
};

}  // namespace lz
