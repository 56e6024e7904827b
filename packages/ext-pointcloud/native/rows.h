// Products by the rows of the result at which they are summed.
#ifndef LAZULI_POINTCLOUD_ROWS_H
#define LAZULI_POINTCLOUD_ROWS_H

#include <atomic>
#include <vector>

#include "call.h"
#include "lanes.h"

namespace pointcloud {

// Products are summed in at most this many parts where a row has many: in as many whatever the number of
// threads.
constexpr int64_t kMostParts = 16;
// The most sums of a part: they stay in a core's own cache.
constexpr int64_t kPartSums = int64_t{1} << 16;
// Operands are fetched so many products before they are needed, and so many bytes at most: what is longer the
// processor fetches itself.
constexpr int64_t kAhead = 4, kFetched = 1024;

POINTCLOUD_CLONES inline void add_to(const float* from, int64_t n, double* total) {
  for (int64_t j = 0; j < n; j++) total[j] += double(from[j]);
}
POINTCLOUD_CLONES inline void add_to(const double* from, int64_t n, double* total) {
  for (int64_t j = 0; j < n; j++) total[j] += from[j];
}

// Nanoseconds of a product that reads so many elements.
inline double price_of(int64_t elements) { return 10 + 0.15 * double(elements); }

// The numbers of the products of each row: order[starts[r]] … order[starts[r + 1] - 1].
struct Rows {
  const int32_t* starts;
  const int32_t* order;
};

inline Rows rows_of(const lz_call* call, const int32_t* rows, int64_t n, int64_t count) {
  int32_t *starts = scratch<int32_t>(call, count + 1), *next = scratch<int32_t>(call, count),
          *order = scratch<int32_t>(call, n);
  std::fill_n(starts, count + 1, 0);
  for (int64_t t = 0; t < n; t++) starts[rows[t] + 1]++;
  for (int64_t r = 0; r < count; r++) starts[r + 1] += starts[r];
  std::copy_n(starts, count, next);
  for (int64_t t = 0; t < n; t++) order[next[rows[t]]++] = int32_t(t);
  return {starts, order};
}

// The rows that have a product, a bit each; null where a row has several. In parts that threads mark side by
// side, each in bits of its own, which stay in a core's own cache.
inline const uint64_t* rows_alone(const lz_call* call, const int32_t* rows, int64_t n, int64_t count) {
  constexpr int64_t kParts = 8;
  if (n > count) return nullptr;
  const int64_t words = (count + 63) / 64, parts = n < 16384 ? 1 : kParts;
  uint64_t* marks = scratch<uint64_t>(call, parts * words);
  std::atomic<bool> several{false};
  parallel(call, parts, 1 + 0.8 * double(n) / double(parts), [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end && !several; part++) {
      uint64_t* own = marks + part * words;
      std::fill_n(own, words, uint64_t{0});
      uint64_t twice = 0;
      for (int64_t t = n * part / parts; t < n * (part + 1) / parts; t++) {
        const uint32_t row = uint32_t(rows[t]);
        uint64_t& word = own[row / 64];
        const uint64_t seen = word, bit = uint64_t{1} << (row % 64);
        twice |= seen & bit;
        word = seen | bit;
      }
      if (twice) several = true;
    }
  });
  for (int64_t part = 1; part < parts && !several; part++) {
    uint64_t twice = 0;
    for (int64_t w = 0; w < words; w++) {
      twice |= marks[w] & marks[part * words + w];
      marks[w] |= marks[part * words + w];
    }
    if (twice) several = true;
  }
  return several ? nullptr : marks;
}
// The product of each row, where none has several; -1 for none.
inline const int32_t* products_of_rows(const lz_call* call, const int32_t* rows, int64_t n, int64_t count) {
  int32_t* out = scratch<int32_t>(call, count);
  if (n < count) std::fill_n(out, count, -1);
  parallel(call, n, 1.5, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; t++) out[rows[t]] = int32_t(t);
  });
  return out;
}
// Zeros in the rows that have no product.
template <class T>
void clear_others(const lz_call* call, const uint64_t* marked, int64_t n, int64_t count, int64_t cells,
                  T* out) {
  if (n == count) return;
  parallel(call, count, 0.3 * double(cells), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; r++)
      if (!(marked[r / 64] >> (r % 64) & 1)) std::fill_n(out + r * cells, cells, T(0));
  });
}

// Sums of the products of each row in their order and in double: row r of `out`, `cells` elements, is the sum
// of the products t with to[t] = r. `product(t, end, result)` computes one, once each, and fetches what it
// needs for others before `end`; for each of its elements it reads `depth`. Products are computed one after
// another wherever that is possible, since memory is read fastest in its own order; where they are small
// beside their operands, they are kept until they are added.
template <class T, class Product>
void sum_products(const lz_call* call, const int32_t* to, int64_t n, int64_t count, int64_t cells,
                  int64_t depth, T* out, Product product) {
  const double each = price_of(cells * depth + 16);
  const auto store_row = [&](const double* total, int64_t r) {
    for (int64_t j = 0; j < cells; j++) out[r * cells + j] = T(total[j]);
  };
  if (const uint64_t* alone = rows_alone(call, to, n, count)) {
    clear_others(call, alone, n, count, cells, out);
    const int64_t row = cells * int64_t(sizeof(T));
    const bool streamed = is_streamed(out, row * count, row);
    return parallel(call, n, each, [&](int64_t begin, int64_t end) {
      std::vector<Line> lines(size_t((row + kLine - 1) / kLine));
      for (int64_t t = begin; t < end; t++) {
        T* target = out + to[t] * cells;
        product(t, end, streamed ? reinterpret_cast<T*>(lines.data()) : target);
        if (streamed) stream(lines.data(), target, row);
      }
      end_of_stream();
    });
  }
  if (n >= 16 * count && count * cells <= kPartSums) {
    // The sums of all parts are some twentieth of what the products read.
    const int64_t parts = std::clamp<int64_t>(n * depth / (128 * count), 2, kMostParts);
    double* sums = scratch<double>(call, parts * count * cells);
    parallel(call, parts, each * double(n) / double(parts), [&](int64_t begin, int64_t end) {
      std::vector<T> result(static_cast<size_t>(cells));
      for (int64_t part = begin; part < end; part++) {
        double* own = sums + part * count * cells;
        std::fill_n(own, count * cells, 0.0);
        const int64_t last = n * (part + 1) / parts;
        for (int64_t t = n * part / parts; t < last; t++) {
          fetch(own + to[std::min(t + kAhead, last - 1)] * cells, std::min<int64_t>(cells * 8, kFetched));
          product(t, last, result.data());
          add_to(result.data(), cells, own + to[t] * cells);
        }
      }
      end_of_stream();
    });
    return parallel(call, count, 0.5 * double(parts * cells), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; r++) {
        double* total = sums + r * cells;
        for (int64_t part = 1; part < parts; part++) add_to(sums + (part * count + r) * cells, cells, total);
        store_row(total, r);
      }
    });
  }
  const Rows lists = rows_of(call, to, n, count);
  const auto sum_rows = [&](double price, auto add) {
    parallel(call, count, 10 + price * double(n) / double(count), [&](int64_t begin, int64_t end) {
      std::vector<double> total(static_cast<size_t>(cells));
      std::vector<T> result(static_cast<size_t>(cells));
      for (int64_t r = begin; r < end; r++) {
        std::fill(total.begin(), total.end(), 0.0);
        for (int64_t i = lists.starts[r]; i < lists.starts[r + 1]; i++)
          add(i, lists.starts[end], result.data(), total.data());
        store_row(total.data(), r);
      }
      end_of_stream();
    });
  };
  if (depth < 4)
    return sum_rows(each, [&](int64_t i, int64_t, T* result, double* total) {
      const int64_t t = lists.order[i];
      product(t, t + 1, result);
      add_to(result, cells, total);
    });
  T* products = scratch<T>(call, n * cells);
  parallel(call, n, each, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; t++) product(t, end, products + t * cells);
    end_of_stream();
  });
  constexpr int64_t kFar = 16;
  sum_rows(2 + 0.2 * double(cells), [&](int64_t i, int64_t end, T*, double* total) {
    const T* next = products + lists.order[std::min(i + kFar, end - 1)] * cells;
    fetch(next, std::min<int64_t>(cells * int64_t(sizeof(T)), kFetched));
    add_to(products + lists.order[i] * cells, cells, total);
  });
}

}  // namespace pointcloud

#endif
