// matmul and addmm. Transposes and row strides go to GEMM as flags and leading dimensions; only layouts that
// it cannot express are copied. Batch axes that b does not have become rows of one GEMM. The half types are
// computed in float32 and widened where they are packed or, for a single row, in registers. Integers go
// through a plain loop.
//
// Work is cut into tiles of rows and columns of the result, never along K. In BLAS an element's sum may
// depend on the tile, so there the size alone decides; results never depend on the number of threads.
#include <cmath>
#include <limits>
#include <mutex>

#include "kernels/blas.h"
#include "kernels/epilogue.h"
#include "kernels/families.h"
#include "kernels/gemm.h"
#include "kernels/half_columns.h"
#include "kernels/source.h"
#include "simd/halves.h"

namespace lazuli {
namespace {

// A matrix as BLAS sees it: stored by rows, or its transpose is; the distance between rows of what is stored.
struct Order {
  bool known = false, transposed = false;
  int64_t ld = 1;
};

Order order_of(int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride) {
  if ((column_stride == 1 || columns == 1) && (rows == 1 || row_stride >= std::max<int64_t>(columns, 1))) {
    return {true, false, rows == 1 ? std::max<int64_t>(columns, 1) : row_stride};
  }
  if ((row_stride == 1 || rows == 1) && (columns == 1 || column_stride >= std::max<int64_t>(rows, 1))) {
    return {true, true, columns == 1 ? std::max<int64_t>(rows, 1) : column_stride};
  }
  return {};
}

// True if a row or a column that is all of a matrix has gaps: BLAS adds up what it copies first in another
// order.
bool has_gaps(const Source& x) {
  const int r = x.ndim - 2, c = x.ndim - 1;
  return (x.shape[r] == 1 && x.shape[c] > 1 && x.strides[c] != 1) ||
         (x.shape[c] == 1 && x.shape[r] > 1 && x.strides[r] != 1);
}

Order order_of(const Source& x) {
  const int r = x.ndim - 2, c = x.ndim - 1;
  return order_of(x.shape[r], x.shape[c], x.strides[r], x.strides[c]);
}

struct Problem {
  Source a, b;
  int64_t m, n, k;
  Order a_order, b_order;
  // Axes of the batch with the strides of a, b and the result; `m` above includes what was merged into rows.
  Layout<3> batch;
};

// Batch axes and rows, merged where a's rows continue from one batch element to the next and b is the same
// for both.
void lay_out(const lz_operand& out, Problem& p) {
  const int last = out.ndim - 2;
  const auto axes = [&](bool with_rows) {
    Layout<3> layout;
    int64_t step[kMaxDims];
    row_major(out.shape, out.ndim, step);
    for (int d = 0; d < last; d++) layout.push(out.shape[d], {p.a.strides[d], p.b.strides[d], step[d]});
    if (with_rows) layout.push(p.m, {p.a.strides[last], 0, p.n});
    layout.collapse();
    return layout;
  };
  if (!p.a_order.transposed) {
    Layout<3> merged = axes(true);
    const int rows = merged.ndim - 1;
    if (rows >= 0 && merged.strides[1][rows] == 0 && merged.strides[0][rows] >= p.k &&
        merged.strides[2][rows] == p.n) {
      p.m = merged.shape[rows];
      p.a_order.ld = std::max<int64_t>(merged.strides[0][rows], 1);
      merged.ndim--;
      p.batch = merged;
      return;
    }
  }
  p.batch = axes(false);
}

struct Tiles {
  int64_t m, n;
};

// Up to a few milliseconds of work, pieces of at least 60 µs, of whole rows where that can be: what two
// threads write then lies apart, and neither's prefetching takes lines from the other. (On two cores,
// 1024×512×128: two halves of the rows 190 GFLOP/s, two halves of the columns 110.)
Tiles tile_small(const Problem& p, int64_t side, double total) {
  const double pieces = total < 120'000 ? 1 : std::max(2.0, total / 200'000);
  Tiles t{p.m, p.n};
  int64_t count = 1;
  for (; count * 2 <= pieces; count *= 2) {
    if (t.m >= side) {
      t.m = (t.m / 2 + 15) / 16 * 16;
    } else if (t.n >= 2 * side && (count == 1 || t.n >= 8 * side)) {
      t.n = (t.n / 2 + 15) / 16 * 16;
    } else {
      break;
    }
  }
  return t;
}

// Cuts the side along which pieces are contiguous in memory, unless it is four times shorter: a tile of
// strided columns costs more to pack. `side` is the smallest length worth cutting to, `price` that of a
// multiplication in nanoseconds.
Tiles tile(const Problem& p, int64_t side, double price) {
  constexpr int64_t kMost = 1 << 30;
  const double total = double(p.m) * double(p.n) * double(p.k) * price;
  if (total < 3e6 && std::min(p.m, p.n) > 1 && std::max(p.m, p.n) <= kMost) return tile_small(p, side, total);
  const double pieces = std::min(32.0, total / 150000);
  Tiles t{p.m, p.n};
  const auto count = [&] { return double((p.m + t.m - 1) / t.m) * double((p.n + t.n - 1) / t.n); };
  for (;;) {
    const bool rows = t.m * (p.a_order.transposed ? 1 : 4) >= t.n * (p.b_order.transposed ? 4 : 1);
    int64_t& chosen = (rows && t.m >= 2 * side) || t.n < 2 * side ? t.m : t.n;
    if (std::max(t.m, t.n) <= kMost && (chosen < 2 * side || count() * 2 > pieces)) return t;
    chosen = ((chosen + 1) / 2 + 15) / 16 * 16;
  }
}

template <class T>
inline constexpr double price_of = std::is_same_v<T, float>    ? 0.02
                                   : std::is_same_v<T, double> ? 0.04
                                                               : 0.08;

// out = alpha · a @ b + beta · out
template <class T>
void multiply(const lz_call& call, const Problem& p, T alpha, T beta, T* out, Epilogue epilogue) {
  const bool vector = p.m == 1 || p.n == 1;
  const double price = vector ? 0.1 * sizeof(T) : price_of<T>;
  const Tiles t = tile(p, vector ? 1024 : 128, price);
  const int64_t rows = (p.m + t.m - 1) / t.m, columns = (p.n + t.n - 1) / t.n;
  const T* a = static_cast<const T*>(p.a.data);
  const T* b = static_cast<const T*>(p.b.data);
  const auto [ta, lda] = std::pair(p.a_order.transposed, p.a_order.ld);
  const auto [tb, ldb] = std::pair(p.b_order.transposed, p.b_order.ld);
  const double each =
      200 + double(std::min(t.m, p.m)) * double(std::min(t.n, p.n)) * (double(p.k) * price + epilogue.cost());
  parallel(call, p.batch.size() * rows * columns, each, [&](int64_t begin, int64_t end) {
    Cursor<3> cursor(p.batch, p.batch.ndim, begin / (rows * columns));
    for (int64_t at = begin; at < end; at++) {
      if (at > begin && at % (rows * columns) == 0) cursor.next();
      const int64_t i = at / columns % rows * t.m, j = at % columns * t.n;
      const int64_t m = std::min(t.m, p.m - i), n = std::min(t.n, p.n - j);
      const T* x = a + cursor.offset[0] + (ta ? i : i * lda);
      const T* y = b + cursor.offset[1] + (tb ? j * ldb : j);
      T* z = out + cursor.offset[2] + i * p.n + j;
      if (p.m == 1) {
        blas::gemv(!tb, tb ? n : p.k, tb ? p.k : n, alpha, y, ldb, x, ta ? lda : 1, beta, z, 1);
      } else if (p.n == 1) {
        blas::gemv(ta, ta ? p.k : m, ta ? m : p.k, alpha, x, lda, y, tb ? 1 : ldb, beta, z, 1);
      } else {
        blas::gemm(ta, tb, m, n, p.k, alpha, x, lda, y, ldb, beta, z, p.n);
      }
      epilogue(cursor.offset[2] / p.n + i, m, j, n);
    }
  });
}

// Nanoseconds of a thread's share, below which threads pack for themselves. (512³ on 16 threads of a Xeon
// with AVX-512: 0.28 ms shared, 0.18 apart; 1024³ 1.52 and 1.66; on 2 threads both are faster shared.)
constexpr double kPackedApart = 4e5;
// Nanoseconds of a part, above which what the next one meets is fetched.
constexpr double kPricedAhead = 4e3;
// Columns of a part of few rows, at least.
constexpr int64_t kLeastRun = 128;

// out = alpha · a @ b + beta · out by this package's GEMM, for operands of float32 and the half types; in a
// half type too where `narrow` is not null.
void multiply_floats(const lz_call& call, const Problem& p, float alpha, float beta, GemmAddend addend,
                     float* out, char* narrow, int32_t narrow_dtype, Epilogue epilogue) {
  const auto problem = [&](const Cursor<3>& at) {
    const auto operand = [](const Source& x, const Order& order, int64_t offset) {
      return GemmOperand{static_cast<const char*>(x.data) + offset * itemsize(x.dtype), x.dtype,
                         order.transposed, order.ld};
    };
    return GemmProblem{operand(p.a, p.a_order, at.offset[0]),
                       operand(p.b, p.b_order, at.offset[1]),
                       p.m,
                       p.n,
                       p.k,
                       alpha,
                       beta,
                       out + at.offset[2],
                       p.n,
                       epilogue.at(at.offset[2] / p.n, 0),
                       addend.at(at.offset[2] / p.n, 0),
                       narrow ? narrow + 2 * at.offset[2] : nullptr,
                       narrow_dtype,
                       p.n};
  };
  const int64_t count = p.batch.size();
  // The work that finishes a part must not decide how the product is cut: eager ones know of none.
  const double price = double(p.m) * double(p.n) * double(p.k) * kGemmPrice;
  const auto parts = [](int64_t all, int64_t part) { return (all + part - 1) / part; };
  const bool large = gemm_is_large(p.m, p.n, p.k) && (count == 1 || price > 1e6);
  // Operands that another thread has packed come slowly into one's own caches. So where each thread has
  // little to do, it packs for itself, in high parts of few columns, whose b then serves many rows.
  const bool apart = large && price < kPackedApart * call.ctx->threads && p.a.dtype == LZ_FLOAT32 &&
                     p.b.dtype == LZ_FLOAT32 && !p.a_order.transposed;
  if (large && !apart) {
    Cursor<3> cursor(p.batch, p.batch.ndim, 0);
    for (int64_t i = 0; i < count; i++, cursor.next()) gemm(call, problem(cursor));
    return;
  }
  // Parts of a matrix, some for every thread.
  const double pieces = std::min(4.0 * call.ctx->threads, price * double(count) / 20000) / double(count);
  int64_t m = p.m, n = p.n;
  const auto half = [&](int64_t length, int64_t unit) { return parts(parts(length, 2), unit) * unit; };
  if (apart) {
    n = gemm_width();
    m = parts(p.m, std::max<int64_t>(1, int64_t(pieces) / parts(p.n, n)));
  }
  // Of few rows, b is read as it lies: short runs of its rows would come slowly.
  const int64_t narrow_part = p.m <= kFewSums && !p.b_order.transposed ? kLeastRun : gemm_width();
  const auto cut = [&] { return double(parts(p.m, m) * parts(p.n, n)); };
  while (!apart && cut() < pieces && (m > 2 * gemm_height() || n > narrow_part)) {
    if (m > 2 * gemm_height() && (2 * m > n || n <= narrow_part))
      m = half(m, gemm_height());
    else
      n = half(n, narrow_part);
  }
  const int64_t down = parts(p.m, m), across = parts(p.n, n), tiles = down * across;
  const double each = price / double(tiles) + double(m) * double(n) * epilogue.cost() + 100;
  // Finding out what comes next takes a share of the smallest products.
  const bool ahead = price / double(tiles) > kPricedAhead;
  parallel(call, count * tiles, each, [&](int64_t begin, int64_t end) {
    Cursor<3> cursor(p.batch, p.batch.ndim, begin / tiles);
    const auto part_at = [&](int64_t at) {
      const int64_t i = at / across % down * m, j = at % across * n;
      return problem(cursor).part(i, std::min(m, p.m - i), j, std::min(n, p.n - j));
    };
    for (int64_t at = begin; at < end; at++) {
      GemmProblem part = part_at(at);
      if ((at + 1) % tiles == 0) cursor.next();
      if (ahead && at + 1 < count * tiles) {
        const GemmProblem next = part_at(at + 1);
        if (next.a.data != part.a.data) part.next_a = next.a.data;
        if (next.b.data != part.b.data) part.next_b = next.b.data;
      }
      gemm(part);
    }
  });
}

constexpr int64_t kFewRows = 256;
// Multiplications, of all matrices of a batch.
constexpr double kSmallProduct = 4e6;

// out = alpha · a @ b + beta · out for float32 a and out, few rows, and b of a half type. A task owns columns
// of the result.
void multiply_halves(const lz_call& call, const Problem& p, int32_t dtype, float alpha, float beta,
                     float* out) {
  const bool rows = p.b_order.transposed;
  const int64_t ld = p.b_order.ld, width = half_columns_width(p.m, rows), tasks = (p.n + width - 1) / width;
  parallel(call, p.batch.size() * tasks, half_columns_price(p.m, p.k, std::min(width, p.n)),
           [&](int64_t begin, int64_t end) {
             for (int64_t at = begin; at < end; at++) {
               const Cursor<3> cursor(p.batch, p.batch.ndim, at / tasks);
               const int64_t column = at % tasks * width;
               const char* b = static_cast<const char*>(p.b.data) + 2 * cursor.offset[1];
               multiply_half_columns({static_cast<const float*>(p.a.data) + cursor.offset[0],
                                      p.a_order.transposed, p.a_order.ld, p.m, p.k},
                                     {b, dtype, rows, ld}, column, std::min(width, p.n - column), alpha, beta,
                                     out + cursor.offset[2], p.n);
             }
           });
}

// Integers and bool (or of ands). Wraps; alpha and beta are rounded towards zero first.
template <class T>
void multiply_integers(const lz_call& call, const Problem& p, double alpha, double beta, const T* c, T* out) {
  using U = std::conditional_t<std::is_same_v<T, bool>, uint8_t,
                               std::make_unsigned_t<std::conditional_t<std::is_same_v<T, bool>, int, T>>>;
  const auto factor = [](double f) { return U(convert<int64_t>(f)); };
  const int64_t ak = p.a_order.transposed ? p.a_order.ld : 1, am = p.a_order.transposed ? 1 : p.a_order.ld;
  const int64_t bk = p.b_order.transposed ? 1 : p.b_order.ld, bn = p.b_order.transposed ? p.b_order.ld : 1;
  parallel(call, p.batch.size() * p.m, 1.0 * double(p.n) * double(p.k) + 5, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; at++) {
      const Cursor<3> cursor(p.batch, p.batch.ndim, at / p.m);
      const U* x = static_cast<const U*>(p.a.data) + cursor.offset[0] + at % p.m * am;
      const U* y = static_cast<const U*>(p.b.data) + cursor.offset[1];
      const int64_t row = cursor.offset[2] + at % p.m * p.n;
      U* z = reinterpret_cast<U*>(out) + row;
      std::fill_n(z, p.n, U(0));
      for (int64_t k = 0; k < p.k; k++) {
        const U v = x[k * ak];
        for (int64_t j = 0; j < p.n; j++) {
          if constexpr (std::is_same_v<T, bool>)
            z[j] |= v & y[k * bk + j * bn];
          else
            z[j] = U(z[j] + U(uint64_t(v) * uint64_t(y[k * bk + j * bn])));
        }
      }
      if (c == nullptr && alpha == 1) continue;
      for (int64_t j = 0; j < p.n; j++) {
        const U addend = c ? static_cast<const U*>(static_cast<const void*>(c))[row + j] : U(0);
        if constexpr (std::is_same_v<T, bool>)
          z[j] = (z[j] && alpha != 0) || (addend && beta != 0);
        else
          z[j] = U(uint64_t(z[j]) * uint64_t(factor(alpha)) + uint64_t(addend) * uint64_t(factor(beta)));
      }
    }
  });
}

// The addend, broadcast to the result's shape, into `to`.
void spread(const lz_call& call, const Source& c, const lz_operand& out, void* to) {
  Layout<2> layout;
  int64_t step[kMaxDims];
  row_major(out.shape, out.ndim, step);
  const int missing = out.ndim - c.ndim;
  for (int d = 0; d < out.ndim; d++)
    layout.push(out.shape[d], {step[d], d < missing ? 0 : c.strides[d - missing]});
  copy_strided(call, layout, itemsize(c.dtype), to, c.data);
}

void require_shapes(const lz_call& call, const char* op, const lz_operand& a, const lz_operand& b,
                    const lz_operand& out) {
  bool fits =
      a.ndim >= 2 && a.ndim == b.ndim && a.ndim == out.ndim && a.dtype == b.dtype && a.dtype == out.dtype;
  for (int d = 0; d < a.ndim - 2 && fits; d++) fits = a.shape[d] == b.shape[d] && a.shape[d] == out.shape[d];
  fits = fits && a.shape[a.ndim - 1] == b.shape[b.ndim - 2] &&
         out.shape[out.ndim - 2] == a.shape[a.ndim - 2] && out.shape[out.ndim - 1] == b.shape[b.ndim - 1];
  require(call, fits, "[%s] the shapes or dtypes of the operands do not fit", op);
}

// A float32 addend that is read where it lies: one row for all, or what lies like the result. Without data
// else.
GemmAddend rows_of(const Source& c, const lz_operand& out) {
  const int64_t n = out.shape[out.ndim - 1];
  if (c.ndim < 1 || c.shape[c.ndim - 1] != n || (n > 1 && c.strides[c.ndim - 1] != 1)) return {};
  const auto* data = static_cast<const float*>(c.data);
  bool still = true, dense = c.ndim == out.ndim;
  for (int64_t d = c.ndim - 2, step = n; d >= 0; step *= c.shape[d--]) {
    still = still && c.strides[d] == 0;
    dense = dense && (c.shape[d] == 1 || c.strides[d] == step) && c.shape[d] == out.shape[d];
  }
  if (still) return {data, 0};
  return dense ? GemmAddend{data, n} : GemmAddend{};
}

Source turned(Source x) {
  std::swap(x.shape[x.ndim - 2], x.shape[x.ndim - 1]);
  std::swap(x.strides[x.ndim - 2], x.strides[x.ndim - 1]);
  return x;
}

void run(const lz_call& call, const char* op, const lz_operand& a, const lz_operand& b, const lz_operand* c,
         double alpha, double beta) {
  const lz_operand& out = call.out[0];
  require_shapes(call, op, a, b, out);
  if (out.size == 0) return;
  if (c != nullptr && beta == 0) c = nullptr;
  Problem p{Source(a), Source(b), out.shape[out.ndim - 2], out.shape[out.ndim - 1], a.shape[a.ndim - 1], {},
            {},        {}};
  const bool half = half_table().widen[out.dtype] != nullptr;
  // Products with a vector are limited by memory, which BLAS and half_columns read in its order.
  const bool own = gemm_is_own() && (half || out.dtype == LZ_FLOAT32);
  const bool loop = is_integral(out.dtype);
  const int32_t half_type = b.dtype;
  bool halves = half && p.k > 0;
  // A column is, in memory, a row: its product is that with the transposed matrix.
  const bool column = own && halves && p.n == 1;
  if (column) p.n = p.m, p.m = 1, p.a = turned(Source(b)), p.b = turned(Source(a));
  if (p.k > 0) {
    const Order raw = order_of(p.b);
    halves = halves && raw.known && raw.ld <= INT32_MAX && p.m <= (own ? 1 : kFewRows);
    const bool vector = p.m == 1 || p.n == 1, blas = !loop && !half && !(own && !vector);
    // BLAS has other kernels for small transposed matrices, which add up in another order.
    const bool small = blas && !vector && double(out.size) * double(p.k) <= kSmallProduct;
    // Few rows of bfloat16 that a matrix unit multiplies with a matrix as it lies.
    const bool strips = half_type == LZ_BFLOAT16 && !column && raw.known && !raw.transposed &&
                        raw.ld <= INT32_MAX && gemm_takes_strips(p.m, p.n, p.k);
    const auto prepare = [&](Source& x) {
      // Other few rows are widened before they meet a matrix.
      Order order = half && (!own || (&x == &p.a && p.m <= kFewRows / 8)) ? Order{} : order_of(x);
      if (!order.known || order.ld > INT32_MAX || (small && order.transposed) || (blas && has_gaps(x)))
        order = order_of(x = densify(call, x, x.ndim - 2));
      return order;
    };
    if (strips) {
      p.a_order = order_of(p.a);
      if (!p.a_order.known || p.a_order.transposed || p.a_order.ld > INT32_MAX)
        p.a_order = order_of(p.a = dense_copy(call, p.a, p.a.ndim - 2));
    } else {
      p.a_order = prepare(p.a);
    }
    p.b_order = halves ? raw : prepare(p.b);
    lay_out(out, p);
    if (strips && p.m == 1) {
      p.a_order = prepare(p.a);
      lay_out(out, p);
    }
    // Rows that merged may be too many; then b is widened after all.
    if (own) {
      halves = halves && p.m == 1;
    } else if (halves && p.m > kFewRows) {
      p.a_order = order_of(p.a);
      p.b_order = prepare(p.b);
      p.m = out.shape[out.ndim - 2];
      halves = false;
      lay_out(out, p);
    }
    require(call, loop || std::max({p.k, p.n, p.a_order.ld, p.b_order.ld}) <= INT32_MAX,
            "[%s] a matrix has more than 2^31 - 1 columns", op);
  }
  if (loop) {
    return void(dispatch_among<integral_types>(out.dtype, [&]<class T>() {
      if (c == nullptr && p.k == 0) return void(std::fill_n(data<T>(out), out.size, T(0)));
      T* addend = c ? scratch<T>(call, out.size) : nullptr;
      if (c) spread(call, Source(*c), out, addend);
      if (p.k == 0) p.batch.push(1, {0, 0, 0}), p.m = out.size / p.n;
      // matmul itself has neither factor.
      multiply_integers<T>(call, p, alpha, beta, addend, data<T>(out));
    }));
  }
  const Epilogue epilogue{take_pieces(call)};
  const bool floats = own && p.k > 0 && !halves && (half || (p.m > 1 && p.n > 1));
  // The half types are finished where they are narrowed: part by part, or in the end.
  const bool narrows = half && floats && !column;
  const Epilogue each = half && !narrows ? Epilogue{} : epilogue;
  const auto compute = [&]<class T>(T* to) {
    GemmAddend addend;
    if (c != nullptr) {
      const Source added = half ? densify(call, Source(*c), c->ndim) : Source(*c);
      if (floats && !column) addend = rows_of(added, out);
      if (!addend.data) spread(call, added, out, to);
    }
    if constexpr (std::is_same_v<T, float>) {
      if (halves) return multiply_halves(call, p, half_type, T(alpha), c ? T(beta) : T(0), to);
    }
    if constexpr (std::is_same_v<T, float>) {
      if (floats)
        return multiply_floats(call, p, T(alpha), c ? T(beta) : T(0), addend, to,
                               narrows ? data<char>(out) : nullptr, out.dtype, each);
    }
    if (p.k > 0) return multiply<T>(call, p, T(alpha), c ? T(beta) : T(0), to, each);
    parallel_rows(call, out, 0.3 + each.cost(), [&](int64_t row, int64_t rows) {
      for (int64_t i = row * p.n; i < (row + rows) * p.n; i++) to[i] = c ? T(beta) * to[i] : T(0);
      each(row, rows, 0, p.n);
    });
  };
  if (half) {
    float* wide = scratch<float>(call, out.size);
    compute(wide);
    if (!narrows) narrow_rows(call, wide, epilogue);
    return;
  }
  if (out.dtype == LZ_FLOAT32)
    compute(data<float>(out));
  else if (out.dtype == LZ_FLOAT64)
    compute(data<double>(out));
  else
    compute(data<complex64>(out));
}

void matmul(const lz_call& call) {
  require_counts(call, "matmul", 2, 1);
  run(call, "matmul", call.in[0], call.in[1], nullptr, 1, 0);
}

void addmm(const lz_call& call) {
  require_counts(call, "addmm", 3, 1);
  const params::Addmm params(call);
  const lz_operand &c = call.in[0], &out = call.out[0];
  bool fits = c.ndim <= out.ndim && c.dtype == out.dtype;
  for (int d = 1; d <= c.ndim && fits; d++)
    fits = c.shape[c.ndim - d] == 1 || c.shape[c.ndim - d] == out.shape[out.ndim - d];
  require(call, fits, "[addmm] c does not broadcast to the shape of the product");
  run(call, "addmm", call.in[1], call.in[2], &c, params.alpha, params.beta);
}

}  // namespace

void multiply_matrices(const lz_call& call, const char* op, const lz_operand& a, const lz_operand& b) {
  run(call, op, a, b, nullptr, 1, 0);
}

void register_matmul(Registry& registry) {
  blas::use_one_thread();
  registry.add("matmul", entry<matmul>);
  registry.add("addmm", entry<addmm>);
}

}  // namespace lazuli
