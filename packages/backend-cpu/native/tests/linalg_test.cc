// Factorizations and equations by what makes them so, over dtypes, layouts, batches and empty matrices.
#include <cmath>
#include <cstdio>

#include "tests/harness.h"

namespace lazuli::test {
namespace {

constexpr int32_t kTypes[] = {LZ_FLOAT32, LZ_FLOAT64, LZ_COMPLEX64};

int32_t real_of(int32_t dtype) { return dtype == LZ_COMPLEX64 ? LZ_FLOAT32 : dtype; }
double tolerance(int32_t dtype) { return dtype == LZ_FLOAT64 ? 1e-11 : 2e-3; }

struct Matrix {
  int64_t rows, columns;
  std::vector<Value> values;
  Value& at(int64_t i, int64_t j) { return values[size_t(i * columns + j)]; }
  Value at(int64_t i, int64_t j) const { return values[size_t(i * columns + j)]; }
};

// Matrix `index` of a batch; of vectors, with one column.
Matrix matrix(const Array& a, int64_t index, bool vector = false) {
  const size_t n = a.shape.size();
  Matrix m{vector ? a.shape[n - 1] : a.shape[n - 2], vector ? 1 : a.shape[n - 1], {}};
  for (int64_t i = 0; i < m.rows * m.columns; i++) m.values.push_back(a.get(index * m.rows * m.columns + i));
  return m;
}

Matrix product(const Matrix& a, const Matrix& b) {
  Matrix y{a.rows, b.columns, std::vector<Value>(size_t(a.rows * b.columns))};
  for (int64_t i = 0; i < a.rows; i++) {
    for (int64_t k = 0; k < std::min(a.columns, b.rows); k++) {
      for (int64_t j = 0; j < b.columns; j++) y.at(i, j) += a.at(i, k) * b.at(k, j);
    }
  }
  return y;
}

// Column j times element j of w.
Matrix scaled(Matrix a, const Matrix& w) {
  for (int64_t i = 0; i < a.rows; i++) {
    for (int64_t j = 0; j < a.columns; j++) a.at(i, j) *= j < w.rows ? w.at(j, 0) : 0.0;
  }
  return a;
}

void check_equal(const Matrix& got, const Matrix& want, double atol, const std::string& what) {
  check(got.rows == want.rows && got.columns == want.columns, what + ": shapes");
  for (size_t i = 0; i < want.values.size(); i++) {
    check(close(got.values[i], want.values[i], atol, atol),
          what + ": got " + std::to_string(got.values[i].real()) + " want " +
              std::to_string(want.values[i].real()));
  }
}

Shape with(const Shape& batch, std::initializer_list<int64_t> last) {
  Shape shape = batch;
  shape.insert(shape.end(), last);
  return shape;
}

void rectangular(int32_t dtype, const Shape& batch, int64_t m, int64_t n) {
  const int64_t k = std::min(m, n), count = total(batch);
  const Array a = random_layout(dtype, with(batch, {m, n}), -4, 4, false);
  const double atol = tolerance(dtype);
  const std::string text = describe(a);

  const Array packed = zeros(dtype, with(batch, {m, n})), pivots = zeros(LZ_UINT32, with(batch, {k})),
              permutation = zeros(LZ_UINT32, with(batch, {m}));
  check_ok(run("lu", {a}, {packed, pivots, permutation}), "lu " + text);
  const Array q = zeros(dtype, with(batch, {m, k})), r = zeros(dtype, with(batch, {k, n}));
  check_ok(run("qr", {a}, {q, r}), "qr " + text);
  const Array s = zeros(real_of(dtype), with(batch, {k})), alone = zeros(real_of(dtype), with(batch, {k}));
  check_ok(run("singularValues", {a}, {alone}), "singularValues " + text);
  for (const bool full : {false, true}) {
    const Array u = zeros(dtype, with(batch, {m, full ? m : k})),
                vt = zeros(dtype, with(batch, {full ? n : k, n}));
    check_ok(run("svd", {a}, {u, s, vt}, {full}), "svd " + text);
    for (int64_t b = 0; b < count; b++) {
      const Matrix w = matrix(s, b, true);
      check_equal(product(scaled(matrix(u, b), w), matrix(vt, b)), matrix(a, b), atol, "svd " + text);
      check_equal(matrix(alone, b, true), w, atol, "singularValues " + text);
    }
  }
  for (int64_t b = 0; b < count; b++) {
    const Matrix want = matrix(a, b), factors = matrix(packed, b), order = matrix(permutation, b, true);
    Matrix low{m, k, std::vector<Value>(size_t(m * k))}, up{k, n, std::vector<Value>(size_t(k * n))};
    for (int64_t i = 0; i < m; i++) {
      const auto row = int64_t(order.at(i, 0).real());
      check(row >= 0 && row < m, "lu: a row is out of bounds");
      for (int64_t j = 0; j < k; j++) low.at(i, j) = row == j ? 1.0 : row > j ? factors.at(row, j) : 0.0;
    }
    for (int64_t i = 0; i < k; i++) {
      for (int64_t j = i; j < n; j++) up.at(i, j) = factors.at(i, j);
    }
    check_equal(product(low, up), want, atol, "lu " + text);
    check_equal(product(matrix(q, b), matrix(r, b)), want, atol, "qr " + text);
  }
}

void square(int32_t dtype, const Shape& batch, int64_t n, int64_t columns) {
  const Array a = random_layout(dtype, with(batch, {n, n}), -1, 1, false),
              b = random_layout(dtype, with(batch, {n, columns}), -4, 4, false);
  const int64_t count = total(batch);
  // Far from singular.
  for (int64_t i = 0; i < count * n; i++) a.set(i / n * n * n + i % n * (n + 1), double(n) + 4);
  const double atol = tolerance(dtype);
  const std::string text = describe(a);
  const Array x = zeros(dtype, with(batch, {n, columns})), v = zeros(dtype, with(batch, {n, n})),
              w = zeros(real_of(dtype), with(batch, {n}));
  const Array z = zeros(LZ_COMPLEX64, with(batch, {n})), y = zeros(LZ_COMPLEX64, with(batch, {n, n}));
  check_ok(run("solve", {a, b}, {x}), "solve " + text);
  for (int64_t i = 0; i < count; i++)
    check_equal(product(matrix(a, i), matrix(x, i)), matrix(b, i), atol, "solve " + text);
  check_ok(run("inv", {a}, {v}), "inv " + text);
  for (int64_t i = 0; i < count; i++)
    check_equal(product(matrix(v, i), matrix(b, i)), matrix(x, i), atol, "inv " + text);
  check_ok(run("eig", {a}, {z, y}), "eig " + text);
  for (int64_t i = 0; i < count; i++) {
    const Matrix right = matrix(y, i);
    check_equal(product(matrix(a, i), right), scaled(right, matrix(z, i, true)), 2e-3, "eig " + text);
  }
  check_ok(run("eigvals", {a}, {z}), "eigvals " + text);
  for (const bool upper : {false, true}) {
    const std::string what = (upper ? " upper " : " lower ") + text;
    check_ok(run("solveTriangular", {a, b}, {x}, {upper}), "solveTriangular" + what);
    check_ok(run("eigh", {a}, {w, v}, {upper}), "eigh" + what);
    for (int64_t i = 0; i < count; i++) {
      Matrix triangle = matrix(a, i), whole = triangle;
      for (int64_t p = 0; p < n; p++) {
        for (int64_t r = 0; r < n; r++) {
          if (r == p || (r > p) == upper) continue;
          whole.at(p, r) = std::conj(whole.at(r, p));
          triangle.at(p, r) = 0;
        }
      }
      check_equal(product(triangle, matrix(x, i)), matrix(b, i), atol, "solveTriangular" + what);
      const Matrix vectors = matrix(v, i);
      check_equal(product(whole, vectors), scaled(vectors, matrix(w, i, true)), 4 * atol, "eigh" + what);
      if (i > 0) continue;
      const Array factor = zeros(dtype, with(batch, {n, n}));
      check_ok(run("cholesky", {a}, {factor}, {upper}), "cholesky" + what);
      Matrix left = matrix(factor, 0), other = left;
      for (int64_t p = 0; p < n; p++) {
        for (int64_t r = 0; r < n; r++) other.at(p, r) = std::conj(left.at(r, p));
      }
      check_equal(upper ? product(other, left) : product(left, other), whole, 4 * atol, "cholesky" + what);
    }
    check_ok(run("eigvalsh", {a}, {w}, {upper}), "eigvalsh" + what);
  }
}

LZ_TEST(linalg_layouts) {
  for (int32_t dtype : kTypes) {
    for (int round = 0; round < 30; round++) {
      const int64_t least = round % 6 == 5 ? 0 : 1, most = round % 10 == 0 ? 40 : 6;
      rectangular(dtype, random_shape(0, 2, 3, 1), uniform(least, most), uniform(least, most));
      square(dtype, random_shape(0, 2, 3, 1), uniform(least, most), uniform(least, 4));
    }
    rectangular(dtype, {2, 0}, 3, 2);
    square(dtype, {0}, 3, 1);
  }
}

LZ_TEST(linalg_failures) {
  for (int32_t dtype : kTypes) {
    const Array zero = zeros(dtype, {2, 3, 3}), x = zeros(dtype, {2, 3, 3}), b = zeros(dtype, {2, 3, 1});
    check_fails(run("solve", {zero, x}, {x}), "[linalg.solve] the matrix is singular");
    check_fails(run("solveTriangular", {zero, x}, {x}, {0}),
                "[linalg.solveTriangular] the matrix is singular");
    check_fails(run("cholesky", {zero}, {x}, {0}), "[linalg.cholesky] the matrix is not positive definite");
    check_fails(run("solve", {zero, b}, {x}),
                "[linalg.solve] the output must have the input's shape and dtype");
    check_fails(run("eigvals", {zero}, {zeros(LZ_COMPLEX64, {2, 2})}),
                "[linalg.eigvals] the output's shape or dtype does not fit the input's");
    if (dtype != LZ_COMPLEX64)
      check_fails(run("eigvals", {zero}, {zeros(dtype, {2, 3})}),
                  "[linalg.eigvals] the output's shape or dtype does not fit the input's");
    check_fails(run("svd", {zero}, {x, zeros(real_of(dtype), {2, 3}), zeros(dtype, {2, 2, 3})}, {1}),
                "[linalg.svd] the output's shape or dtype does not fit the input's");
  }
  const Array wide = zeros(LZ_FLOAT32, {2, 3});
  check_fails(run("cholesky", {wide}, {wide}, {0}), "[linalg.cholesky] needs square matrices");
  const Array half = zeros(LZ_FLOAT16, {2, 2});
  check_fails(run("cholesky", {half}, {half}, {0}), "[linalg.cholesky] dtype float16 is not supported");
}

// Matrices that are factored by blocks.
LZ_TEST(linalg_large) {
  for (int32_t dtype : {LZ_FLOAT32, LZ_FLOAT64}) {
    rectangular(dtype, {}, 300, 300);
    rectangular(dtype, {2}, 401, 259);
    rectangular(dtype, {}, 257, 330);
    square(dtype, {2}, 290, 3);
    square(dtype, {}, 456, 70);
    const Array a = random_array(dtype, {330, 270}), q = zeros(dtype, {330, 270}),
                r = zeros(dtype, {270, 270});
    check_ok(run("qr", {a}, {q, r}), "qr");
    Matrix turned = matrix(q, 0), unit{270, 270, std::vector<Value>(270 * 270)};
    std::swap(turned.rows, turned.columns);
    for (int64_t i = 0; i < 270; i++) {
      unit.at(i, i) = 1.0;
      for (int64_t j = 0; j < 330; j++) turned.at(i, j) = q.get({j, i});
    }
    check_equal(product(turned, matrix(q, 0)), unit, tolerance(dtype), "the columns of Q are orthogonal");
  }
  // Singular, and not positive definite: rows and columns of zeros late in the matrix.
  const Array a = zeros(LZ_FLOAT32, {300, 300}), y = zeros(LZ_FLOAT32, {300, 300}),
              b = zeros(LZ_FLOAT32, {300, 1});
  for (int64_t i = 0; i < 299; i++) a.set(i * 301, 1.0);
  check_fails(run("cholesky", {a}, {y}, {0}), "[linalg.cholesky] the matrix is not positive definite");
  check_fails(run("inv", {a}, {y}), "[linalg.inv] the matrix is singular");
  check_fails(run("solve", {a, b}, {zeros(LZ_FLOAT32, {300, 1})}), "[linalg.solve] the matrix is singular");
  a.set(5, NAN);
  check_ok(run("cholesky", {a}, {y}, {1}), "cholesky of NaN");
  check(std::isnan(y.get(0).real()) && y.get(300) == 0.0, "a matrix with a NaN has a factor of NaN");
}

LZ_TEST(bench_linalg) {
  const auto bench = [](const char* kernel, int64_t count, int64_t n, const std::vector<Array>& in,
                        const std::vector<Array>& out, const std::vector<int64_t>& params) {
    const double one = time_us(kernel, in, out, params, 1), two = time_us(kernel, in, out, params, 2);
    std::printf("%-18s %5lld x %4lld  %12.1f us   2 threads %12.1f us\n", kernel, (long long)count,
                (long long)n, one, two);
  };
  for (const auto& [count, n] : {std::pair<int64_t, int64_t>{1, 1024}, {1, 512}, {1000, 8}, {64, 64}}) {
    const auto f = LZ_FLOAT32;
    const Array a = random_array(f, {count, n, n}, -1, 1), x = zeros(f, {count, n, n}),
                y = zeros(f, {count, n, n}), w = zeros(f, {count, n});
    for (int64_t i = 0; i < count * n; i++) a.set(i / n * n * n + i % n * (n + 1), double(n) + 4);
    bench("lu", count, n, {a}, {x, zeros(LZ_UINT32, {count, n}), zeros(LZ_UINT32, {count, n})}, {});
    bench("solve", count, n, {a, x}, {y}, {});
    bench("inv", count, n, {a}, {y}, {});
    bench("cholesky", count, n, {a}, {x}, {0});
    bench("qr", count, n, {a}, {x, y}, {});
    bench("svd", count, n, {a}, {x, w, y}, {1});
    bench("singularValues", count, n, {a}, {w}, {});
    bench("eigh", count, n, {a}, {w, x}, {0});
    bench("eig", count, n, {a}, {zeros(LZ_COMPLEX64, {count, n}), zeros(LZ_COMPLEX64, {count, n, n})}, {});
  }
}

}  // namespace
}  // namespace lazuli::test
