// Running sums of rows of float32 and the half types, which add up in double.
#ifndef LAZULI_SIMD_SCAN_H
#define LAZULI_SIMD_SCAN_H

#include <stdint.h>

#include "simd/targets.h"

namespace lazuli {

// By dtype; null for types other than float32 and the halves.
struct ScanTable {
  // Σ x[i]
  double (*sum[14])(const void* x, int64_t n);
  // y[i] = total + Σ x[j] over j ≤ i, or over j < i unless `inclusive`; gives the total behind the last.
  // `streaming`: float32 results go around the caches. y may be x.
  double (*sums[14])(const void* x, void* y, int64_t n, bool inclusive, bool streaming, double total);
};

LZ_SIMD_TABLE(ScanTable, scan_table)

}  // namespace lazuli

#endif
