// blockMaskedMm: products whose operands and result are masked block by block. Blocks that a bool mask drops
// are not multiplied; neighbours along K that count alike become one product. Other masks multiply, zeros
// included, so that NaN stays what it is. The half types are computed in float32.
#include "kernels/blas.h"
#include "kernels/families.h"
#include "kernels/gemm.h"
#include "kernels/source.h"
#include "simd/halves.h"

namespace lazuli {
namespace {

constexpr const char* kOp = "blockMaskedMm";

// One element a block, dense.
struct Mask {
  const void* data = nullptr;
  int32_t dtype = LZ_BOOL;
  int64_t rows = 0, columns = 0;

  bool drops(int64_t batch, int64_t i, int64_t j) const {
    return data && dtype == LZ_BOOL && !static_cast<const bool*>(data)[at(batch, i, j)];
  }
  double factor(int64_t batch, int64_t i, int64_t j) const {
    if (data == nullptr || dtype == LZ_BOOL) return 1;
    const int64_t index = at(batch, i, j);
    return dtype == LZ_FLOAT64 ? static_cast<const double*>(data)[index]
                               : static_cast<const float*>(data)[index];
  }

 private:
  int64_t at(int64_t batch, int64_t i, int64_t j) const { return (batch * rows + i) * columns + j; }
};

struct Problem {
  GemmOperand a, b;
  int64_t m, n, k, block;
  Layout<2> batch;
  Mask out, lhs, rhs;
};

int64_t blocks(int64_t size, int64_t block) { return (size + block - 1) / block; }

// A matrix that is stored by rows or columns as it is, else a copy. Where products are left to BLAS the half
// types are copied too.
Source stored(const lz_call& call, const lz_operand& x, GemmOperand& operand) {
  Source s(x);
  const int r = s.ndim - 2, c = s.ndim - 1;
  const auto lines = [](int64_t n, int64_t length, int64_t step, int64_t unit) {
    return (length == 1 || unit == 1) && (n == 1 || (step >= length && step <= INT32_MAX));
  };
  const auto by = [&](bool transposed) {
    const int64_t n = s.shape[transposed ? c : r], length = s.shape[transposed ? r : c];
    operand = {s.data, s.dtype, transposed,
               n == 1 ? std::max<int64_t>(length, 1) : s.strides[transposed ? c : r]};
    return s;
  };
  if (gemm_is_own() || half_table().widen[s.dtype] == nullptr) {
    if (lines(s.shape[r], s.shape[c], s.strides[r], s.strides[c])) return by(false);
    if (lines(s.shape[c], s.shape[r], s.strides[c], s.strides[r])) return by(true);
  }
  s = densify(call, s, r);
  return by(false);
}

template <class T>
void product(const GemmOperand& a, const GemmOperand& b, int64_t m, int64_t n, int64_t k, T alpha, T beta,
             T* c, int64_t ldc) {
  if constexpr (std::is_same_v<T, float>)
    gemm({a, b, m, n, k, alpha, beta, c, ldc});
  else
    blas::gemm(a.transposed, b.transposed, m, n, k, alpha, static_cast<const T*>(a.data), a.ld,
               static_cast<const T*>(b.data), b.ld, beta, c, ldc);
}

template <class T>
void multiply(const lz_call& call, const Problem& p, T* out) {
  const int64_t down = blocks(p.m, p.block), across = blocks(p.n, p.block), deep = blocks(p.k, p.block);
  const double price = 100 + double(p.block * p.block) * double(p.k) * 0.025 * (sizeof(T) / 4);
  parallel(call, p.batch.size() * down * across, price, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; task++) {
      const int64_t batch = task / (down * across), i = task / across % down, j = task % across;
      const int64_t row = i * p.block, column = j * p.block;
      const int64_t m = std::min(p.block, p.m - row), n = std::min(p.block, p.n - column);
      T* c = out + (batch * p.m + row) * p.n + column;
      bool empty = true;
      const auto kept = [&](int64_t l) { return !p.lhs.drops(batch, i, l) && !p.rhs.drops(batch, l, j); };
      const auto factor = [&](int64_t l) { return p.lhs.factor(batch, i, l) * p.rhs.factor(batch, l, j); };
      if (!p.out.drops(batch, i, j)) {
        const Cursor<2> cursor(p.batch, p.batch.ndim, batch);
        GemmOperand a = p.a, b = p.b;
        a.data = static_cast<const char*>(a.data) + cursor.offset[0] * itemsize(a.dtype);
        b.data = static_cast<const char*>(b.data) + cursor.offset[1] * itemsize(b.dtype);
        for (int64_t l = 0, next; l < deep; l = next) {
          next = l + 1;
          if (!kept(l)) continue;
          const double each = factor(l);
          while (next < deep && kept(next) && factor(next) == each) next++;
          const int64_t k = l * p.block;
          product<T>(a.at(row, k), b.at(k, column), m, n, std::min(next * p.block, p.k) - k,
                     T(each * p.out.factor(batch, i, j)), T(empty ? 0 : 1), c, p.n);
          empty = false;
        }
      }
      for (int64_t r = 0; r < m && empty; r++) std::fill_n(c + r * p.n, n, T(0));
    }
  });
}

void block_masked_mm(const lz_call& call) {
  const params::BlockMaskedMm params(call);
  Problem p{};
  p.block = params.blockSize;
  const bool has[] = {params.hasOut, params.hasLhs, params.hasRhs};
  require_counts(call, kOp, 2 + has[0] + has[1] + has[2], 1);
  const lz_operand &a = call.in[0], &b = call.in[1], &y = call.out[0];
  const int nd = a.ndim;
  bool fits =
      p.block > 0 && nd >= 2 && b.ndim == nd && y.ndim == nd && a.dtype == b.dtype && a.dtype == y.dtype;
  for (int d = 0; d < nd - 2 && fits; d++) fits = a.shape[d] == b.shape[d] && a.shape[d] == y.shape[d];
  fits = fits && a.shape[nd - 1] == b.shape[nd - 2] && y.shape[nd - 2] == a.shape[nd - 2] &&
         y.shape[nd - 1] == b.shape[nd - 1];
  require(call, fits, "[%s] the shapes or dtypes of the operands do not fit", kOp);
  p.m = a.shape[nd - 2], p.n = b.shape[nd - 1], p.k = a.shape[nd - 1];
  require(call, std::max({p.m, p.n, p.k}) <= INT32_MAX,
          "[%s] a matrix has more than 2^31 - 1 rows or columns", kOp);
  Mask* masks[] = {&p.out, &p.lhs, &p.rhs};
  const int64_t rows[] = {p.m, p.m, p.k}, columns[] = {p.n, p.k, p.n};
  const lz_operand* mask = call.in + 2;
  for (int i = 0; i < 3; i++) {
    if (!has[i]) continue;
    fits = mask->ndim == nd && (mask->dtype == LZ_BOOL || mask->dtype == a.dtype) &&
           mask->shape[nd - 2] == blocks(rows[i], p.block) &&
           mask->shape[nd - 1] == blocks(columns[i], p.block);
    for (int d = 0; d < nd - 2 && fits; d++) fits = mask->shape[d] == a.shape[d];
    require(call, fits, "[%s] the shapes or dtypes of the masks do not fit", kOp);
    const Source dense = densify(call, Source(*mask), 0);
    *masks[i] = {dense.data, dense.dtype, mask->shape[nd - 2], mask->shape[nd - 1]};
    mask++;
  }
  if (y.size == 0) return;
  if (p.k == 0) {
    std::fill_n(data<char>(y), y.size * itemsize(y.dtype), char(0));
    return;
  }
  const Source x = stored(call, a, p.a), w = stored(call, b, p.b);
  for (int d = 0; d < nd - 2; d++) p.batch.push(a.shape[d], {x.strides[d], w.strides[d]});
  if (y.dtype == LZ_FLOAT64) return multiply(call, p, data<double>(y));
  if (y.dtype == LZ_FLOAT32) return multiply(call, p, data<float>(y));
  float* wide = scratch<float>(call, y.size);
  multiply(call, p, wide);
  const auto narrow = half_table().narrow[y.dtype];
  parallel(call, y.size, 0.3,
           [&](int64_t begin, int64_t end) { narrow(wide + begin, data<char>(y) + 2 * begin, end - begin); });
}

}  // namespace

void register_block_mm(Registry& registry) {
  blas::use_one_thread();
  registry.add("blockMaskedMm", entry<block_masked_mm>, kFloatingDtypes);
}

}  // namespace lazuli
