// E2M1 as unsigned integers of a byte: twice its values, and kMiddle more.
#ifndef LAZULI_SIMD_E2M1_H
#define LAZULI_SIMD_E2M1_H

#include "simd/vectors.h"

HWY_BEFORE_NAMESPACE();
namespace lazuli::LZ_TARGET {
namespace {

constexpr int kMiddle = 12;

// The integers of codes that each fill a byte.
template <class R>
HWY_INLINE R e2m1_integers(R raw) {
  const hn::Repartition<uint8_t, Floats> bytes;
  alignas(16) static constexpr uint8_t values[16] = {
      kMiddle, kMiddle + 1, kMiddle + 2, kMiddle + 3, kMiddle + 4, kMiddle + 6, kMiddle + 8, kMiddle + 12,
      kMiddle, kMiddle - 1, kMiddle - 2, kMiddle - 3, kMiddle - 4, kMiddle - 6, kMiddle - 8, kMiddle - 12};
  return hn::TableLookupBytes(hn::LoadDup128(bytes, values), hn::Vec<decltype(bytes)>{raw}).raw;
}

}  // namespace
}  // namespace lazuli::LZ_TARGET
HWY_AFTER_NAMESPACE();

#endif
