// Calls kernels as the runtime does, from C++: arrays of any layout, lz_call built by hand, results read back
// as complex<double>. Outputs lie between guard bytes, and work is cut into chunks of odd sizes, run out of
// order.
#ifndef LAZULI_TESTS_HARNESS_H
#define LAZULI_TESTS_HARNESS_H

#include <complex>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "runtime/dtype.h"

namespace lazuli::test {

using Value = std::complex<double>;
using Shape = std::vector<int64_t>;

extern std::mt19937_64 rng;
int64_t uniform(int64_t low, int64_t high);  // both included
double uniform_real(double low, double high);

struct Array {
  int32_t dtype = LZ_FLOAT32;
  Shape shape, strides;
  int64_t offset = 0;  // in elements
  std::shared_ptr<std::vector<char>> storage;

  int64_t size() const;
  char* address(int64_t element) const { return storage->data() + (offset + element) * itemsize(dtype); }
  // Position in memory of the i-th element in row-major order.
  int64_t at(int64_t i) const;
  int64_t at(const Shape& index) const;
  Value get(int64_t i) const;
  Value get(const Shape& index) const;
  void set(int64_t i, Value value) const;
  template <class T>
  T* data() const {
    return reinterpret_cast<T*>(address(0));
  }
};

Array zeros(int32_t dtype, const Shape& shape);
// Row-major, small values that are exact in the dtype.
Array random_array(int32_t dtype, const Shape& shape, double low = -4, double high = 4);
// The same values behind a permuted, sliced, reversed or broadcast layout (broadcasting changes the values).
Array random_layout(int32_t dtype, const Shape& shape, double low = -4, double high = 4,
                    bool broadcasts = true);
Array of(int32_t dtype, const Shape& shape, const std::vector<double>& values);
Shape random_shape(int min_ndim, int max_ndim, int64_t max_extent, int64_t min_extent = 1);
// Calls f for every index of a shape, in row-major order.
void for_each_index(const Shape& shape, const std::function<void(const Shape&)>& f);

int64_t bits(double value);
int64_t total(const Shape& shape);
Value round_to(int32_t dtype, Value value);
double epsilon(int32_t dtype);
bool is_integer(int32_t dtype);

struct Outcome {
  bool ok = false;
  std::string message;
};

// Runs a kernel. `outputs` are allocated by the caller with zeros().
Outcome run(const std::string& kernel, const std::vector<Array>& inputs, const std::vector<Array>& outputs,
            const std::vector<int64_t>& params = {});

// Best time of several runs on the real thread pool, in microseconds.
double time_us(const std::string& kernel, const std::vector<Array>& inputs, const std::vector<Array>& outputs,
               const std::vector<int64_t>& params, int threads);

void check(bool condition, const std::string& what);
void check_ok(const Outcome& outcome, const std::string& what);
void check_fails(const Outcome& outcome, const std::string& message);
// Equal within tolerances, NaN equal to NaN, infinities by equality.
bool close(Value got, Value want, double rtol, double atol);
void check_close(const Array& got, const std::function<Value(const Shape&)>& want, double rtol, double atol,
                 const std::string& what);
std::string describe(const Array& a);

struct Registration {
  Registration(const char* name, void (*test)());
};
// Defines a test that main.cc runs; a macro because it declares two things.
#define LZ_TEST(name)                                                         \
  static void name();                                                         \
  static const ::lazuli::test::Registration registration_##name(#name, name); \
  static void name()

}  // namespace lazuli::test

#endif
