// The parameters of a call, read from its words in the order of the primitive's schema. Structures that read
// them by name are generated from schemas: `lazuli-kernel params` of @lazuli/kernel-build writes them
// for any package.
#ifndef LAZULI_PARAMS_H
#define LAZULI_PARAMS_H

#include <lazuli/kernel.h>

#include <cstring>
#include <string_view>

namespace lazuli {

// Thrown after lz_context::fail was called: the message is already with the runtime. A kernel's function
// catches it and returns LZ_FAILED.
struct Failed {};

// Integers where a call has them; valid while the kernel runs.
class Integers {
 public:
  Integers() = default;
  Integers(const int64_t* first, size_t count) : first_(first), count_(count) {}
  const int64_t* data() const { return first_; }
  size_t size() const { return count_; }
  bool empty() const { return count_ == 0; }
  const int64_t* begin() const { return first_; }
  const int64_t* end() const { return first_ + count_; }
  int64_t operator[](size_t i) const { return first_[i]; }

 private:
  const int64_t* first_ = nullptr;
  size_t count_ = 0;
};

// Floating-point numbers where a call has them.
class Numbers {
 public:
  Numbers() = default;
  explicit Numbers(Integers words) : words_(words) {}
  size_t size() const { return words_.size(); }
  double operator[](size_t i) const {
    double value;
    std::memcpy(&value, words_.data() + i, 8);
    return value;
  }

 private:
  Integers words_;
};

class Params {
 public:
  explicit Params(const lz_call& call) : call_(call), next_(call.params), end_(call.params + call.n_params) {}
  int64_t integer() {
    if (next_ == end_) refuse();
    return *next_++;
  }
  bool boolean() { return integer() != 0; }
  double number() {
    const int64_t word = integer();
    double value;
    std::memcpy(&value, &word, 8);
    return value;
  }
  Integers integers() {
    const int64_t count = integer();
    if (count < 0 || count > end_ - next_) refuse();
    const int64_t* first = next_;
    next_ += count;
    return {first, static_cast<size_t>(count)};
  }
  Numbers numbers() { return Numbers(integers()); }
  std::string_view text() {
    const int64_t bytes = integer();
    if (bytes < 0 || bytes > 8 * (end_ - next_)) refuse();
    const auto* first = reinterpret_cast<const char*>(next_);
    next_ += (bytes + 7) / 8;
    return {first, static_cast<size_t>(bytes)};
  }

 private:
  [[noreturn]] void refuse() const {
    call_.ctx->fail(call_.ctx, "a kernel was called with too few parameters");
    throw Failed{};
  }

  const lz_call& call_;
  const int64_t* next_;
  const int64_t* end_;
};

}  // namespace lazuli

#endif
