// The Hadamard transform of rows of m · 2^k numbers: Sylvester's butterflies in each of m parts, then the
// matrix of size m across them. Half types are computed in float32.
#include "simd/hadamard.h"

#include <bit>
#include <cstring>
#include <vector>

#include "kernels/families.h"
#include "kernels/layout.h"
#include "simd/halves.h"

namespace lazuli {
namespace {

// Matrices of size 12, by Paley's second construction over GF(5), and of sizes 20 and 28, by Williamson's
// from four circulants: those of core/src/ops/hadamard.ts, where they are explained.
int sign_12(int i, int j) {
  constexpr int residue[] = {0, 1, -1, -1, 1};
  const int a = i / 2, b = j / 2;
  if (a == b) return i % 2 == 0 && j % 2 == 0 ? 1 : -1;
  const int conference = a == 0 || b == 0 ? 1 : residue[(b - a + 5) % 5];
  return i % 2 == 1 && j % 2 == 1 ? -conference : conference;
}
int sign_williamson(int m, int i, int j) {
  constexpr const char* rows[2][4] = {{"+----", "+----", "++--+", "+-++-"},
                                      {"+------", "++----+", "+-+--+-", "+--++--"}};
  constexpr int pattern[4][4] = {{1, 1, 1, 1}, {-1, 1, -1, 1}, {-1, 1, 1, -1}, {-1, -1, 1, 1}};
  const int size = m / 4, a = i / size, b = j / size;
  const char* circulant = rows[m == 28][a ^ b];
  return circulant[(j - i + m) % size] == '+' ? pattern[a][b] : -pattern[a][b];
}

template <class T>
std::vector<T> signs_of(int m, bool transposed) {
  std::vector<T> signs;
  for (int i = 0; i < m; i++) {
    for (int j = 0; j < m; j++) {
      const int row = transposed ? j : i, column = transposed ? i : j;
      signs.push_back(T(m == 12 ? sign_12(row, column) : sign_williamson(m, row, column)));
    }
  }
  return signs;
}

// The size of the matrix that is no power of 2; 0 when there is none for n.
int64_t base_size(int64_t n) {
  for (const int64_t m : {1, 12, 20, 28}) {
    if (n >= m && n % m == 0 && std::has_single_bit(uint64_t(n / m))) return m;
  }
  return 0;
}

// Rows of x to rows of y, through memory of type T where the element type is a half one.
template <class T>
void transform(const lz_call& call, const void* x, void* y, int32_t dtype, int64_t rows, int64_t n, int64_t m,
               T scale, bool transposed) {
  const auto& table = hadamard_table(T());
  const auto& halves = half_table();
  const bool half = halves.widen[dtype] != nullptr;
  const int64_t size = itemsize(dtype);
  const std::vector<T> signs = m == 1 ? std::vector<T>() : signs_of<T>(int(m), transposed);
  const int64_t own = half ? n : 0, mixing = m == 1 ? 0 : 64 * m;
  const double cost = double(n) * (0.1 * double(std::bit_width(uint64_t(n))) + 0.1 * double(m));
  const int64_t chunks = std::min<int64_t>(rows, 4 * std::max(call.ctx->threads, 1));
  T* memory = scratch<T>(call, chunks * (own + mixing));
  parallel(call, chunks, cost * double(rows) / double(chunks), [&](int64_t begin, int64_t end) {
    for (int64_t chunk = begin; chunk < end; chunk++) {
      T *work = memory + chunk * (own + mixing), *line = work + mixing;
      for (int64_t row = rows * chunk / chunks; row < rows * (chunk + 1) / chunks; row++) {
        const void* from = static_cast<const char*>(x) + row * n * size;
        void* to = static_cast<char*>(y) + row * n * size;
        T* z = half ? line : static_cast<T*>(to);
        if constexpr (std::is_same_v<T, float>) {
          if (half) halves.widen[dtype](from, z, n);
        }
        if (!half) std::memcpy(z, from, size_t(n) * sizeof(T));
        for (int64_t part = 0; part < m; part++) table.powers(z + part * (n / m), n / m);
        if (m > 1) table.mix(z, m, n / m, signs.data(), work);
        if (scale != T(1)) table.scale(z, n, scale);
        if constexpr (std::is_same_v<T, float>) {
          if (half) halves.narrow[dtype](z, to, n);
        }
      }
    }
  });
}

void hadamard(const lz_call& call) {
  constexpr const char* op = "hadamardTransform";
  require_counts(call, op, 1, 1);
  const lz_operand &x = call.in[0], &y = call.out[0];
  require_same(call, op, x, y);
  const params::HadamardTransform params(call);
  const double scale = params.scale;
  const bool transposed = params.transposed;
  require(call, x.ndim > 0, "[%s] needs a last axis", op);
  const int64_t n = x.shape[x.ndim - 1], m = base_size(n);
  require(call, m > 0, "[%s] there is no matrix of size %lld", op, (long long)n);
  dispatch_or_fail<floating_types>(call, op, x.dtype, [&]<class E>() {
    using T = compute_t<E>;
    if (y.size == 0) return;
    transform<T>(call, contiguous<E>(call, x), y.data, x.dtype, y.size / n, n, m, T(scale), transposed);
  });
}

}  // namespace

void register_hadamard(Registry& registry) { registry.add("hadamardTransform", entry<hadamard>); }

}  // namespace lazuli
