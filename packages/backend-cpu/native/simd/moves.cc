#include "simd/moves.h"

#include <hwy/cache_control.h>
#include <hwy/highway.h>
#include <string.h>

#include "simd/elements.h"

HWY_BEFORE_NAMESPACE();
namespace lazuli::LZ_TARGET {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

constexpr int64_t kLine = 64, kFetched = 4096, kAhead = 24;

// Whole cache lines, to where one begins.
HWY_INLINE void stream_lines(const char* from, char* to, int64_t bytes) {
  const hn::CappedTag<uint8_t, 64> d;
  const int64_t N = int64_t(hn::Lanes(d));
  const auto* source = reinterpret_cast<const uint8_t*>(from);
  auto* target = reinterpret_cast<uint8_t*>(to);
  for (int64_t i = 0; i < bytes; i += N) hn::Stream(hn::LoadU(d, source + i), d, target + i);
}

void gather(const char* from, const int64_t* offsets, int64_t scale, int64_t rows, int64_t bytes, char* to,
            bool streaming) {
  const bool lines = streaming && bytes % kLine == 0 && reinterpret_cast<uintptr_t>(to) % kLine == 0;
  const int64_t fetched = bytes < kFetched ? bytes : kFetched, ahead = kFetched / fetched;
  for (int64_t i = 0; i < rows; i++, to += bytes) {
    if (i + ahead < rows) {
      const char* next = from + offsets[i + ahead] * scale;
      for (int64_t b = 0; b < fetched; b += kLine) hwy::Prefetch(next + b);
    }
    const char* source = from + offsets[i] * scale;
    if (lines) {
      stream_lines(source, to, bytes);
    } else {
      memcpy(to, source, size_t(bytes));
    }
  }
  if (lines) hwy::FlushStream();
}

// Squares of four 32-bit elements, or two of 64 bits.
template <class U>
void transpose(const void* from_data, int64_t step, int64_t rows, int64_t columns, void* to_data,
               int64_t to_step) {
  constexpr int64_t kSide = 16 / sizeof(U);
  const hn::FixedTag<U, kSide> d;
  const hn::FixedTag<uint64_t, 2> halves;
  const U* from = static_cast<const U*>(from_data);
  U* to = static_cast<U*>(to_data);
  const auto put = [&](auto v, int64_t i, int64_t j)
                       LZ_INLINE_LAMBDA { hn::StoreU(hn::BitCast(d, v), d, to + j * to_step + i); };
  int64_t i = 0;
  for (; i + kSide <= rows; i += kSide) {
    const U* row = from + i * step;
    int64_t j = 0;
    for (; j + kSide <= columns; j += kSide) {
      // Rows are pieces of what lies together, so the next ones are likely to be of use to somebody.
      hwy::Prefetch(row + kAhead * step + j);
      hwy::Prefetch(row + (kAhead + kSide / 2) * step + j);
      const auto a = hn::LoadU(d, row + j), b = hn::LoadU(d, row + step + j);
      const auto ab = hn::BitCast(halves, hn::InterleaveLower(d, a, b)),
                 AB = hn::BitCast(halves, hn::InterleaveUpper(d, a, b));
      if constexpr (kSide == 2) {
        put(ab, i, j);
        put(AB, i, j + 1);
      } else {
        const auto c = hn::LoadU(d, row + 2 * step + j), e = hn::LoadU(d, row + 3 * step + j);
        const auto ce = hn::BitCast(halves, hn::InterleaveLower(d, c, e)),
                   CE = hn::BitCast(halves, hn::InterleaveUpper(d, c, e));
        put(hn::InterleaveLower(halves, ab, ce), i, j);
        put(hn::InterleaveUpper(halves, ab, ce), i, j + 1);
        put(hn::InterleaveLower(halves, AB, CE), i, j + 2);
        put(hn::InterleaveUpper(halves, AB, CE), i, j + 3);
      }
    }
    for (; j < columns; j++)
      for (int64_t k = 0; k < kSide; k++) to[j * to_step + i + k] = row[k * step + j];
  }
  for (; i < rows; i++)
    for (int64_t j = 0; j < columns; j++) to[j * to_step + i] = from[i * step + j];
}

template <class T>
void add(T* to, const T* from, int64_t n) {
  LZ_INDEPENDENT
  for (int64_t i = 0; i < n; i++) to[i] += from[i];
}

constexpr MoveTable make_table() {
  MoveTable table{};
  table.gather = gather;
  table.transpose[4] = transpose<uint32_t>;
  table.transpose[8] = transpose<uint64_t>;
  table.add_float = add<float>;
  table.add_double = add<double>;
  return table;
}

}  // namespace

const MoveTable& move_table() {
  static constexpr MoveTable table = make_table();
  return table;
}

}  // namespace lazuli::LZ_TARGET
HWY_AFTER_NAMESPACE();
