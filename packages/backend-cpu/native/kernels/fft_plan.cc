#include "kernels/fft_plan.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <mutex>
#include <numbers>
#include <unordered_map>

namespace lazuli {
namespace {

using Complex = std::complex<double>;

// exp(−2πik/n), each the product of two of about 2√n numbers that are computed.
class Roots {
 public:
  explicit Roots(int64_t n) : n_(n) {
    while (int64_t{1} << (2 * shift_) < n) shift_++;
    const int64_t fine = int64_t{1} << shift_;
    for (int64_t k = 0; k < fine; k++) fine_.push_back(compute(k));
    for (int64_t k = 0; k < n; k += fine) coarse_.push_back(compute(k));
  }
  Complex operator()(int64_t k) const {
    const Complex a = coarse_[size_t(k >> shift_)], b = fine_[size_t(k & ((int64_t{1} << shift_) - 1))];
    return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
  }

 private:
  // With the angle brought below π/4, so that quarter turns come out exact.
  Complex compute(int64_t k) const {
    const int64_t quarter = int64_t(((unsigned __int128)(8) * uint64_t(k) / uint64_t(n_) + 1) / 2);
    const double turn = (4 * double(k) - double(quarter) * double(n_)) / (4 * double(n_));
    const double angle = 2 * std::numbers::pi * turn;
    const double c = std::cos(angle), s = std::sin(angle);
    switch (quarter & 3) {
      case 0:
        return {c, -s};
      case 1:
        return {-s, -c};
      case 2:
        return {-c, s};
      default:
        return {s, c};
    }
  }
  int64_t n_;
  int shift_ = 0;
  std::vector<Complex> fine_, coarse_;
};

// exp(−πi k²/n).
class Chirp {
 public:
  explicit Chirp(int64_t n) : n_(n), roots_(2 * n) {}
  Complex operator()(int64_t k) const {
    return roots_(int64_t((unsigned __int128)(uint64_t(k)) * uint64_t(k) % uint64_t(2 * n_)));
  }

 private:
  int64_t n_;
  Roots roots_;
};

bool is_smooth(int64_t n) {
  for (int64_t p = 2; p <= kFftLargestRadix; p++) {
    while (n % p == 0) n /= p;
  }
  return n == 1;
}

// A length of small factors for a convolution of 2n − 1.
int64_t padded_length(int64_t n) {
  int64_t best = INT64_MAX;
  for (int64_t odd : {1, 3, 5, 9, 15}) {
    int64_t m = odd;
    while (m < 2 * n - 1) m *= 2;
    best = std::min(best, m);
  }
  return best;
}

std::vector<int> radices(int64_t n) {
  std::vector<int> list;
  int twos = 0;
  for (; n % 2 == 0; n /= 2) twos++;
  // Eights, as many as leave no two but a lone one.
  for (; twos > 4 || twos == 3; twos -= 3) list.push_back(8);
  for (; twos > 1; twos -= 2) list.push_back(4);
  if (twos == 1) list.push_back(2);
  for (int p = 3; n > 1; p += 2) {
    for (; n % p == 0; n /= p) list.push_back(p);
  }
  return list;
}

// A rough price of a transform in lanes, in vector instructions.
double price(int64_t n) {
  if (!is_smooth(n)) return 2.2 * price(padded_length(n)) + 20 * double(n);
  double each = 12;  // in and out
  for (int r : radices(n)) each += r == 8 ? 12 : r == 4 ? 9 : r <= 7 ? 5.0 + r : 10.0 + r;
  return each * double(n) + 150;
}
constexpr double kNanoseconds = 0.3;  // of a vector instruction

int64_t groups(int64_t n, int64_t lanes) { return (n + lanes - 1) / lanes; }

// A line's price when it is split, and the rows that make it least; infinite for a prime.
struct Split {
  double price = HUGE_VAL;
  int64_t rows = 1;
};
Split best_split(int64_t n, int64_t lanes) {
  Split best;
  for (int64_t divisor = 2; divisor * divisor <= n; divisor++) {
    if (n % divisor) continue;
    for (int64_t rows : {divisor, n / divisor}) {
      const int64_t columns = n / rows;
      const double cost =
          double(groups(columns, lanes)) * price(rows) + double(groups(rows, lanes)) * price(columns);
      if (cost < best.price) best = {cost, rows};
    }
  }
  return best;
}

// The cheapest way for a number of lines up to that of lanes, and its price a line.
template <class T>
struct Choice {
  typename FftPlan<T>::Way way;
};
template <class T>
Choice<T> choose(int64_t n, int64_t count, bool scattered) {
  using Way = typename FftPlan<T>::Way;
  const int64_t lanes = fft_table(T()).lanes;
  const int64_t length = is_smooth(n) ? n : padded_length(n);
  const double bytes = double(length) * double(lanes) * 4 * sizeof(T);
  // By the level of the cache that work fits in.
  const double far = bytes < 0x1p19 ? 1 : bytes < 0x1p20 ? 1.3 : bytes < 0x1p24 ? 3 : 20;
  const double lines = far * price(n) / double(count);
  // Numbers that lie apart are moved one by one where a line is alone.
  const double moves = scattered ? 16 * double(n) : 0;
  const double split = best_split(n, lanes).price + moves;
  const double convolution =
      is_smooth(n) ? HUGE_VAL : 2 * best_split(length, lanes).price + 4 * double(length) + moves;
  if (lines <= split && lines <= convolution) return {Way::lines};
  return {split <= convolution ? Way::split : Way::convolution};
}

template <class T>
void push(std::vector<T>& to, Complex value) {
  to.push_back(T(value.real()));
  to.push_back(T(value.imag()));
}

// The transform of conj(chirp), wrapped around m, divided by m.
template <class T>
std::vector<T> filter_of(const Chirp& chirp, int64_t n, int64_t m) {
  const auto plan = fft_plan<double>(m, 1);
  std::vector<double> memory(size_t(2 * m + plan->work() + 8));
  double* z = memory.data();
  while (reinterpret_cast<uintptr_t>(z) % 64) z++;
  for (int64_t k = 0; k < n; k++) {
    const Complex c = std::conj(chirp(k));
    for (int64_t at : {k, (m - k) % m}) {
      z[2 * at] = c.real();
      z[2 * at + 1] = c.imag();
    }
  }
  const int64_t start = 0;
  double* work = z + 2 * m;
  while (reinterpret_cast<uintptr_t>(work) % 64) work++;
  plan->run({z, &start, 2, false, false}, {z, &start, 2, false, false}, 1, 1.0 / double(m), work);
  return std::vector<T>(z, z + 2 * m);
}

template <class T>
std::vector<T> chirp_of(const Chirp& chirp, int64_t n) {
  std::vector<T> table;
  for (int64_t k = 0; k < n; k++) push(table, chirp(k));
  return table;
}

template <class T>
size_t bytes_of(const std::vector<T>& table) {
  return table.capacity() * sizeof(T);
}

int64_t aligned(int64_t values) { return (values + 15) / 16 * 16; }

// Plans by key; all are dropped when they hold too much, and live on where they are in use.
template <class V>
class Cache {
 public:
  template <class Make, class Bytes>
  std::shared_ptr<const V> get(int64_t key, Make make, Bytes bytes) {
    {
      const std::lock_guard lock(mutex_);
      if (const auto found = map_.find(key); found != map_.end()) return found->second;
    }
    std::shared_ptr<const V> made = make();
    const std::lock_guard lock(mutex_);
    if (held_ + bytes(*made) > kLimit) {
      map_.clear();
      held_ = 0;
    }
    const auto [at, is_new] = map_.emplace(key, made);
    if (is_new) held_ += bytes(*made);
    return at->second;
  }

 private:
  static constexpr size_t kLimit = size_t{64} << 20;
  std::mutex mutex_;
  std::unordered_map<int64_t, std::shared_ptr<const V>> map_;
  size_t held_ = 0;
};
// Never destroyed: pool threads outlive static objects.
template <class V>
Cache<V>& cache() {
  static auto* it = new Cache<V>;
  return *it;
}

}  // namespace

template <class T>
const T* FftLinePlan<T>::keep(std::vector<T> table) {
  tables_.push_back(std::move(table));
  return tables_.back().data();
}

template <class T>
FftLinePlan<T>::FftLinePlan(int64_t n) {
  line_.n = n;
  if (!is_smooth(n)) {
    const Chirp chirp(n);
    inner_ = std::make_unique<FftLinePlan>(padded_length(n));
    line_.inner = &inner_->line();
    line_.chirp = keep(chirp_of<T>(chirp, n));
    line_.filter = keep(filter_of<T>(chirp, n, inner_->line().n));
    return;
  }
  const Roots roots(n);
  int64_t left = n;
  for (int r : radices(n)) {
    const int64_t apart = n / left, m = left / r;
    std::vector<T> twiddles;
    for (int64_t p = 0; p < m; p++) {
      for (int64_t k = 1; k < r; k++) push(twiddles, roots(p * k * apart));
    }
    line_.radix[line_.stages] = r;
    line_.twiddles[line_.stages] = keep(std::move(twiddles));
    if (r > 7 && r != 8) {
      std::vector<T> circle;
      for (int64_t j = 0; j < r; j++) circle.push_back(T(roots(j * (n / r)).real()));
      for (int64_t j = 0; j < r; j++) circle.push_back(T(-roots(j * (n / r)).imag()));
      line_.roots[line_.stages] = keep(std::move(circle));
    }
    line_.stages++;
    left = m;
  }
}

template <class T>
size_t FftLinePlan<T>::bytes() const {
  size_t sum = sizeof(*this) + (inner_ ? inner_->bytes() : 0);
  for (const auto& table : tables_) sum += bytes_of(table);
  return sum;
}

template <class T>
FftPlan<T>::FftPlan(int64_t n, Way way) : n_(n), way_(way) {
  const int64_t lanes = fft_table(T()).lanes;
  if (way == Way::lines) {
    first_ = std::make_unique<FftLinePlan<T>>(n);
    cost_ = kNanoseconds * price(n);
  } else if (way == Way::split) {
    const Split split = best_split(n, lanes);
    const int64_t rows = split.rows, columns = n / rows;
    cost_ = kNanoseconds * split.price;
    first_ = std::make_unique<FftLinePlan<T>>(rows);
    second_ = std::make_unique<FftLinePlan<T>>(columns);
    const Roots roots(n);
    twist_.resize(size_t(groups(columns, lanes) * rows * 2 * lanes));
    for (int64_t column = 0; column < columns; column++) {
      T* at = twist_.data() + column / lanes * rows * 2 * lanes + column % lanes;
      for (int64_t row = 0; row < rows; row++, at += 2 * lanes) {
        const Complex w = roots(row * column);
        at[0] = T(w.real());
        at[lanes] = T(w.imag());
      }
    }
  } else {
    const int64_t m = padded_length(n);
    const Chirp chirp(n);
    inner_ = fft_plan<T>(m, 1);
    cost_ = 2 * inner_->cost() + 2 * double(n);
    chirp_ = chirp_of<T>(chirp, n);
    filter_ = filter_of<T>(chirp, n, m);
  }
}

template <class T>
int64_t FftPlan<T>::block() const {
  return way_ == Way::lines ? fft_table(T()).lanes : 1;
}
template <class T>
int64_t FftPlan<T>::crew_work() const {
  if (way_ == Way::convolution) return inner_->crew_work();
  const int64_t longest = std::max(first_->line().length(), second_ ? second_->line().length() : 0);
  return (4 * longest + 2 * kFftGap) * fft_table(T()).lanes;
}
template <class T>
int64_t FftPlan<T>::work() const {
  if (way_ == Way::convolution) return aligned(2 * padded_length(n_)) + inner_->work();
  return crew_work() + (way_ == Way::split ? aligned(2 * n_) : 0);
}
template <class T>
size_t FftPlan<T>::bytes() const {
  return sizeof(*this) + (first_ ? first_->bytes() : 0) + (second_ ? second_->bytes() : 0) +
         bytes_of(twist_) + bytes_of(chirp_) + bytes_of(filter_);
}

template <class T>
void FftPlan<T>::run(const FftSide<const T>& in, const FftSide<T>& out, int64_t count, T scale, T* work,
                     const FftCrew<T>* crew) const {
  if (way_ == Way::lines) return fft_table(T()).lines(first_->line(), in, out, count, scale, nullptr, work);
  if (way_ == Way::split) return run_split(in, out, scale, work, crew);
  run_convolution(in, out, scale, work, crew);
}

// With k = k₁ + rows·k₂ and j = j₁·columns + j₂: y[k] = Σ_j₂ exp(−2πi j₂k₂/columns) · exp(−2πi j₂k₁/n) · Σ_j₁
// x[j] exp(−2πi j₁k₁/rows).
template <class T>
void FftPlan<T>::run_split(const FftSide<const T>& in, const FftSide<T>& out, T scale, T* work,
                           const FftCrew<T>* crew) const {
  constexpr int64_t kMaxLanes = 64;
  const auto& table = fft_table(T());
  const int64_t lanes = table.lanes, rows = first_->line().n, columns = second_->line().n;
  T* middle = work;
  const auto each = [&](int64_t n, double cost, const auto& f) {
    if (crew)
      (*crew)(n, cost, f);
    else
      f(0, n, work + aligned(2 * n_));
  };
  each(groups(columns, lanes), kNanoseconds * price(rows), [&](int64_t begin, int64_t end, T* mine) {
    int64_t from[kMaxLanes], to[kMaxLanes];
    for (int64_t group = begin; group < end; group++) {
      for (int64_t l = 0; l < lanes; l++) {
        from[l] = in.offsets[0] + (group * lanes + l) * in.step;
        to[l] = (group * lanes + l) * 2 * rows;
      }
      table.lines(first_->line(), {in.data, from, in.step * columns, in.step == 2, in.swap},
                  {middle, to, 2, false, false}, std::min(lanes, columns - group * lanes), T(1),
                  twist_.data() + group * rows * 2 * lanes, mine);
    }
  });
  each(groups(rows, lanes), kNanoseconds * price(columns), [&](int64_t begin, int64_t end, T* mine) {
    int64_t from[kMaxLanes], to[kMaxLanes];
    for (int64_t group = begin; group < end; group++) {
      for (int64_t l = 0; l < lanes; l++) {
        from[l] = (group * lanes + l) * 2;
        to[l] = out.offsets[0] + (group * lanes + l) * out.step;
      }
      table.lines(second_->line(), {middle, from, 2 * rows, true, false},
                  {out.data, to, out.step * rows, out.step == 2, out.swap},
                  std::min(lanes, rows - group * lanes), scale, nullptr, mine);
    }
  });
}

template <class T>
void FftPlan<T>::run_convolution(const FftSide<const T>& in, const FftSide<T>& out, T scale, T* work,
                                 const FftCrew<T>* crew) const {
  const auto& table = fft_table(T());
  const int64_t m = int64_t(filter_.size()) / 2, start = 0;
  T *z = work, *rest = work + aligned(2 * m);
  const T* x = in.data + in.offsets[0];
  for (int64_t i = 0; i < n_; i++, x += in.step) {
    z[2 * i] = x[in.swap];
    z[2 * i + 1] = x[!in.swap];
  }
  table.multiply(z, chirp_.data(), z, n_);
  std::fill(z + 2 * n_, z + 2 * m, T(0));
  inner_->run({z, &start, 2, false, false}, {z, &start, 2, false, false}, 1, T(1), rest, crew);
  table.multiply(z, filter_.data(), z, m);
  inner_->run({z, &start, 2, false, true}, {z, &start, 2, false, true}, 1, scale, rest, crew);
  table.multiply(z, chirp_.data(), z, n_);
  T* y = out.data + out.offsets[0];
  for (int64_t i = 0; i < n_; i++, y += out.step) {
    y[out.swap] = z[2 * i];
    y[!out.swap] = z[2 * i + 1];
  }
}

template <class T>
std::shared_ptr<const FftPlan<T>> fft_plan(int64_t n, int64_t count, bool scattered) {
  const int64_t lanes = std::min(count, fft_table(T()).lanes);
  const auto make = [&] { return std::make_shared<const Choice<T>>(choose<T>(n, lanes, scattered)); };
  const int64_t key = 128 * n + 2 * (lanes - 1) + scattered;
  const auto way = cache<Choice<T>>().get(key, make, [](const Choice<T>&) { return size_t{64}; })->way;
  return cache<FftPlan<T>>().get(
      4 * n + int64_t(way), [&] { return std::make_shared<const FftPlan<T>>(n, way); },
      [](const FftPlan<T>& plan) { return plan.bytes(); });
}

template <class T>
std::shared_ptr<const std::vector<T>> fft_half_roots(int64_t h) {
  const auto make = [&] {
    const Roots roots(2 * h);
    std::vector<T> table;
    for (int64_t k = 0; k <= h / 2; k++) table.push_back(T(roots(k).real()));
    for (int64_t k = 0; k <= h / 2; k++) table.push_back(T(roots(k).imag()));
    return std::make_shared<const std::vector<T>>(std::move(table));
  };
  return cache<std::vector<T>>().get(h, make, bytes_of<T>);
}

template class FftPlan<float>;
template class FftPlan<double>;
template std::shared_ptr<const FftPlan<float>> fft_plan(int64_t, int64_t, bool);
template std::shared_ptr<const FftPlan<double>> fft_plan(int64_t, int64_t, bool);
template std::shared_ptr<const std::vector<float>> fft_half_roots(int64_t);
template std::shared_ptr<const std::vector<double>> fft_half_roots(int64_t);

}  // namespace lazuli
