// The passes of a Hadamard transform over one row.
#ifndef LAZULI_SIMD_HADAMARD_H
#define LAZULI_SIMD_HADAMARD_H

#include <stdint.h>

#include "simd/targets.h"

namespace lazuli {

template <class T>
struct HadamardTable {
  // In place the transform of Sylvester's matrix of n rows, a power of 2.
  void (*powers)(T* row, int64_t n);
  // In place, for m rows of n: row i becomes Σ signs[i·m + j] · row j. `work` holds 64·m values.
  void (*mix)(T* rows, int64_t m, int64_t n, const T* signs, T* work);
  void (*scale)(T* row, int64_t n, T factor);
};

struct HadamardTables {
  HadamardTable<float> f32;
  HadamardTable<double> f64;
};

LZ_SIMD_TABLE(HadamardTables, hadamard_tables)

inline const HadamardTable<float>& hadamard_table(float) { return hadamard_tables().f32; }
inline const HadamardTable<double>& hadamard_table(double) { return hadamard_tables().f64; }

}  // namespace lazuli

#endif
