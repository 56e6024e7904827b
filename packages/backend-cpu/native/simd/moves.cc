#include "simd/moves.h"

#include <hwy/cache_control.h>
#include <hwy/highway.h>
#include <string.h>

HWY_BEFORE_NAMESPACE();
namespace lazuli::LZ_TARGET {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

constexpr int64_t kLine = 64, kFetched = 4096;

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

}  // namespace

const MoveTable& move_table() {
  static constexpr MoveTable table = {gather};
  return table;
}

}  // namespace lazuli::LZ_TARGET
HWY_AFTER_NAMESPACE();
