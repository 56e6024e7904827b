#include "tests/harness.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <map>
#include <numeric>

#include "kernels/elements.h"
#include "runtime/pieces.h"
#include "runtime/pool.h"
#include "runtime/registry.h"

namespace lazuli::test {

std::mt19937_64 rng(7);

int64_t uniform(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(rng); }
double uniform_real(double low, double high) {
  return std::uniform_real_distribution<double>(low, high)(rng);
}

int64_t total(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}
int64_t Array::size() const { return total(shape); }

int64_t Array::at(int64_t i) const {
  int64_t at = 0;
  for (size_t d = shape.size(); d-- > 0; i /= shape[d]) at += i % shape[d] * strides[d];
  return at;
}
int64_t Array::at(const Shape& index) const {
  return std::inner_product(index.begin(), index.end(), strides.begin(), int64_t{0});
}

static Value read(int32_t dtype, const void* from) {
  return dispatch(dtype, [&](auto tag) -> Value {
    using T = typename decltype(tag)::type;
    T value;
    std::memcpy(&value, from, sizeof value);
    if constexpr (is_complex<T>)
      return {value.real(), value.imag()};
    else
      return double(value);
  });
}
static void write(int32_t dtype, void* to, Value value) {
  dispatch(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T t;
    if constexpr (is_complex<T>)
      t = T(float(value.real()), float(value.imag()));
    else
      t = convert<T>(value.real());
    std::memcpy(to, &t, sizeof t);
  });
}

Value Array::get(int64_t i) const { return read(dtype, address(at(i))); }
Value Array::get(const Shape& index) const { return read(dtype, address(at(index))); }
void Array::set(int64_t i, Value value) const { write(dtype, address(at(i)), value); }

int64_t bits(double value) { return std::bit_cast<int64_t>(value); }
bool is_integer(int32_t dtype) { return dtype <= LZ_INT64; }
double epsilon(int32_t dtype) {
  switch (dtype) {
    case LZ_FLOAT16:
      return 0x1p-11;
    case LZ_BFLOAT16:
      return 0x1p-8;
    case LZ_FLOAT64:
      return 0x1p-53;
    case LZ_FLOAT32:
    case LZ_COMPLEX64:
      return 0x1p-24;
    default:
      return 0;
  }
}
Value round_to(int32_t dtype, Value value) {
  uint64_t bits[2];
  write(dtype, bits, value);
  return read(dtype, bits);
}

constexpr int64_t kGuard = 64;

Array zeros(int32_t dtype, const Shape& shape) {
  Array a;
  a.dtype = dtype;
  a.shape = shape;
  a.strides.resize(shape.size());
  int64_t step = 1;
  for (size_t d = shape.size(); d-- > 0; step *= shape[d]) a.strides[d] = step;
  a.offset = kGuard / itemsize(dtype);
  a.storage =
      std::make_shared<std::vector<char>>(size_t(2 * kGuard + a.size() * itemsize(dtype)), char(0x5a));
  if (a.size() > 0) std::memset(a.address(0), 0, size_t(a.size() * itemsize(dtype)));
  return a;
}

static bool guards_hold(const Array& a) {
  const auto& s = *a.storage;
  for (size_t i = 0; i < size_t(kGuard); i++) {
    if (s[i] != 0x5a || s[s.size() - 1 - i] != 0x5a) return false;
  }
  return true;
}

static Value random_value(int32_t dtype, double low, double high) {
  if (dtype == LZ_BOOL) return double(uniform(0, 1));
  if (dtype <= LZ_UINT64) return double(uniform(0, int64_t(std::abs(high))));
  if (is_integer(dtype)) return double(uniform(int64_t(low), int64_t(high)));
  const Value value(uniform_real(low, high), dtype == LZ_COMPLEX64 ? uniform_real(low, high) : 0);
  return round_to(dtype, value);
}

Array random_array(int32_t dtype, const Shape& shape, double low, double high) {
  Array a = zeros(dtype, shape);
  for (int64_t i = 0; i < a.size(); i++) a.set(i, random_value(dtype, low, high));
  return a;
}

Array random_layout(int32_t dtype, const Shape& shape, double low, double high, bool broadcasts) {
  const int n = int(shape.size());
  if (uniform(0, 3) == 0) return random_array(dtype, shape, low, high);
  std::vector<int> order(size_t(n), 0);
  std::iota(order.begin(), order.end(), 0);
  if (uniform(0, 1)) std::shuffle(order.begin(), order.end(), rng);
  // The base has the axes in `order`, each perhaps longer; the view steps over it.
  Shape base, step(size_t(n), 1);
  std::vector<bool> fixed(size_t(n), false);
  for (int d : order) {
    const int64_t kind = uniform(0, 7);
    if (kind == 0 && broadcasts) fixed[size_t(d)] = true;
    if (kind == 1) step[size_t(d)] = 2;
    if (kind == 2) step[size_t(d)] = -1;
    if (kind == 3) step[size_t(d)] = -3;
    base.push_back(fixed[size_t(d)] ? 1 : shape[size_t(d)] * std::abs(step[size_t(d)]));
  }
  Array a = random_array(dtype, base, low, high);
  Array view = a;
  view.shape = shape;
  view.strides.assign(size_t(n), 0);
  for (int i = 0; i < n; i++) {
    const size_t d = size_t(order[size_t(i)]);
    if (fixed[d]) continue;
    view.strides[d] = a.strides[size_t(i)] * step[d];
    if (step[d] < 0 && shape[d] > 0) view.offset -= view.strides[d] * (shape[d] - 1);
  }
  return view;
}

Array of(int32_t dtype, const Shape& shape, const std::vector<double>& values) {
  Array a = zeros(dtype, shape);
  for (int64_t i = 0; i < a.size(); i++) a.set(i, values[size_t(i)]);
  return a;
}

Shape random_shape(int min_ndim, int max_ndim, int64_t max_extent, int64_t min_extent) {
  Shape shape(size_t(uniform(min_ndim, max_ndim)), 0);
  for (auto& extent : shape) extent = uniform(min_extent, max_extent);
  return shape;
}

void for_each_index(const Shape& shape, const std::function<void(const Shape&)>& f) {
  const int64_t n = total(shape);
  Shape index(shape.size());
  for (int64_t i = 0; i < n; i++) {
    int64_t rest = i;
    for (size_t d = shape.size(); d-- > 0; rest /= shape[d]) index[d] = rest % shape[d];
    f(index);
  }
}

namespace {

struct Context : lazuli::KernelContext {
  std::vector<std::unique_ptr<char[]>> memory;
  std::string message;
  bool failed = false;
};

void* scratch(lz_context* ctx, size_t bytes) {
  auto& memory = static_cast<Context*>(ctx)->memory;
  // Exactly sized for memory checkers, and filled with what is NaN in every floating type.
  memory.emplace_back(new char[bytes + 64]);
  const auto address = (reinterpret_cast<uintptr_t>(memory.back().get()) + 63) & ~uintptr_t(63);
  std::memset(reinterpret_cast<void*>(address), 0xff, bytes < 4096 ? bytes : 4096);
  return reinterpret_cast<void*>(address);
}

void fail(lz_context* ctx, const char* format, ...) {
  char text[1024];
  va_list args;
  va_start(args, format);
  std::vsnprintf(text, sizeof text, format, args);
  va_end(args);
  static_cast<Context*>(ctx)->message = text;
  static_cast<Context*>(ctx)->failed = true;
}

// Chunks of random sizes in random order, on this thread.
void shuffled_for(lz_context*, int64_t n, int64_t grain, void (*fn)(void*, int64_t, int64_t), void* arg) {
  std::vector<std::pair<int64_t, int64_t>> chunks;
  for (int64_t begin = 0; begin < n;) {
    const int64_t end = std::min(n, begin + grain + uniform(0, grain));
    chunks.emplace_back(begin, end);
    begin = end;
  }
  std::shuffle(chunks.begin(), chunks.end(), rng);
  for (auto [begin, end] : chunks) fn(arg, begin, end);
}

void pool_for(lz_context*, int64_t n, int64_t grain, void (*fn)(void*, int64_t, int64_t), void* arg) {
  pool().run(n, grain, fn, arg);
}

lz_operand operand(const Array& a) {
  lz_operand o{};
  o.data = a.storage->data() + a.offset * itemsize(a.dtype);
  o.dtype = a.dtype;
  o.ndim = int32_t(a.shape.size());
  o.size = a.size();
  o.shape = a.shape.data();
  o.strides = a.strides.data();
  int64_t step = 1;
  bool contiguous = true;
  for (size_t d = a.shape.size(); d-- > 0; step *= a.shape[d]) contiguous &= a.strides[d] == step;
  o.flags = contiguous ? LZ_CONTIGUOUS : 0;
  return o;
}

lz_kernel find(const std::string& name) {
  static const auto names = registry().names();
  const auto it = std::find(names.begin(), names.end(), name);
  return it == names.end() ? nullptr : registry().find(uint32_t(it - names.begin()));
}

struct Call {
  Context context;
  std::vector<lz_operand> in, out;
  lz_call call{};
  Call(const std::vector<Array>& inputs, const std::vector<Array>& outputs,
       const std::vector<int64_t>& params) {
    context.parallel_for = shuffled_for;
    context.scratch = scratch;
    context.fail = fail;
    context.threads = 4;
    for (auto& a : inputs) in.push_back(operand(a));
    for (auto& a : outputs) out.push_back(operand(a));
    call = {int32_t(in.size()), int32_t(out.size()),    in.data(), out.data(),
            params.data(),      int64_t(params.size()), &context,  sizeof(lz_call)};
  }
};

int passed = 0, failed = 0;
std::string current;
std::map<std::string, void (*)()>& tests() {
  static std::map<std::string, void (*)()> all;
  return all;
}

}  // namespace

Outcome run(const std::string& kernel, const std::vector<Array>& inputs, const std::vector<Array>& outputs,
            const std::vector<int64_t>& params) {
  const lz_kernel fn = find(kernel);
  if (fn == nullptr) return {false, "no kernel " + kernel};
  Call call(inputs, outputs, params);
  const lz_status status = fn(&call.call);
  for (auto& out : outputs) check(guards_hold(out), kernel + " wrote outside its output");
  if (status == LZ_OK && call.context.failed) return {false, "returned LZ_OK after: " + call.context.message};
  if (status != LZ_OK && !call.context.failed) return {false, "failed without a message"};
  // The number of threads must not show in the result.
  if (status == LZ_OK) {
    Call serial(inputs, outputs, params);
    serial.context.threads = 1;
    std::vector<std::vector<char>> before;
    for (auto& out : outputs) before.push_back(*out.storage);
    fn(&serial.call);
    for (size_t i = 0; i < outputs.size(); i++)
      check(before[i] == *outputs[i].storage, kernel + " depends on the number of threads");
  }
  return {status == LZ_OK, call.context.message};
}

double time_us(const std::string& kernel, const std::vector<Array>& inputs, const std::vector<Array>& outputs,
               const std::vector<int64_t>& params, int threads) {
  const lz_kernel fn = find(kernel);
  if (fn == nullptr) return NAN;
  pool().set_threads(threads);
  Call call(inputs, outputs, params);
  call.context.threads = threads;
  call.context.parallel_for = pool_for;
  // Scratch comes from a cache, as it does in the runtime.
  static std::map<size_t, void*> cache;
  call.context.scratch = [](lz_context*, size_t bytes) {
    static char* arena = static_cast<char*>(std::aligned_alloc(64, size_t(1) << 29));
    static size_t used = 0;
    used = used + bytes > (size_t(1) << 29) ? 0 : used;
    char* at = arena + used;
    used = (used + bytes + 63) & ~size_t(63);
    if (used > (size_t(1) << 24)) used = 0;
    return static_cast<void*>(at);
  };
  using Clock = std::chrono::steady_clock;
  double best = 1e18, spent = 0;
  int repeat = 1;
  for (int round = 0; round < 2000 && spent < 0.3; round++) {
    const auto start = Clock::now();
    for (int i = 0; i < repeat; i++) fn(&call.call);
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    spent += seconds;
    best = std::min(best, seconds / repeat * 1e6);
    if (seconds < 20e-6) repeat *= 2;
  }
  return best;
}

void check(bool condition, const std::string& what) {
  if (condition) {
    passed++;
  } else if (failed++ < 40) {
    std::printf("FAILED %s: %s\n", current.c_str(), what.c_str());
  }
}
void check_ok(const Outcome& outcome, const std::string& what) {
  check(outcome.ok, what + ": " + outcome.message);
}
void check_fails(const Outcome& outcome, const std::string& message) {
  check(!outcome.ok && outcome.message == message,
        "expected the failure '" + message + "', got '" + outcome.message + "'");
}

bool close(Value got, Value want, double rtol, double atol) {
  const auto part = [&](double a, double b, double scale) {
    if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
    if (std::isinf(a) || std::isinf(b)) return a == b;
    return std::abs(a - b) <= atol + rtol * scale;
  };
  const double scale = std::isfinite(std::abs(want)) ? std::abs(want) : 0;
  return part(got.real(), want.real(), scale) && part(got.imag(), want.imag(), scale);
}

void check_close(const Array& got, const std::function<Value(const Shape&)>& want, double rtol, double atol,
                 const std::string& what) {
  for_each_index(got.shape, [&](const Shape& index) {
    const Value w = want(index), g = got.get(index);
    if (close(g, w, rtol, atol)) {
      passed++;
      return;
    }
    std::string position;
    for (auto i : index) position += std::to_string(i) + ",";
    char text[200];
    std::snprintf(text, sizeof text, " at (%s): got %.9g%+.9gi, want %.9g%+.9gi", position.c_str(), g.real(),
                  g.imag(), w.real(), w.imag());
    check(false, what + text);
  });
}

std::string describe(const Array& a) {
  std::string text = std::string(dtype_name(a.dtype)) + "[";
  for (size_t d = 0; d < a.shape.size(); d++)
    text += std::to_string(a.shape[d]) + ":" + std::to_string(a.strides[d]) + " ";
  return text + "]";
}

Registration::Registration(const char* name, void (*test)()) { tests()[name] = test; }

int run_all(int argc, char** argv) {
  for (auto& [name, test] : tests()) {
    const bool bench = name.rfind("bench_", 0) == 0;
    bool wanted = argc < 2 && !bench;
    for (int i = 1; i < argc; i++) {
      wanted |= name.find(argv[i]) != std::string::npos &&
                (!bench || std::string_view(argv[i]).starts_with("bench"));
    }
    if (!wanted) continue;
    current = name;
    rng.seed(7);
    test();
  }
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed ? 1 : 0;
}

}  // namespace lazuli::test

int main(int argc, char** argv) { return lazuli::test::run_all(argc, argv); }
