// Distances of rows of one matrix to columns of another, a tile at a time.
#ifndef LAZULI_SIMD_DISTANCES_H
#define LAZULI_SIMD_DISTANCES_H

#include <stdint.h>

#include "simd/targets.h"

namespace lazuli {

// Columns of a block: a multiple of what a tile takes, with every instruction set.
inline constexpr int64_t kDistanceColumns = 128;

// The norm of the differences d: √Σd², Σ|d|, the largest |d|, and how many are not 0.
enum class DistanceNorm { euclidean, sum, largest, count };

template <class T>
struct DistanceTable {
  // out[i, j] = ‖x[i] − y[:, j]‖ for `rows` rows of x, `width` numbers each without gaps, and a block y
  // [width, kDistanceColumns] of which `columns` are there. Rows of the result are `stride` apart.
  void (*block)(DistanceNorm norm, const T* x, int64_t rows, const T* y, int64_t width, int64_t columns,
                T* out, int64_t stride);
};

struct DistanceTables {
  DistanceTable<float> f32;
  DistanceTable<double> f64;
};

LZ_SIMD_TABLE(DistanceTables, distance_tables)

inline const DistanceTable<float>& distance_table(float) { return distance_tables().f32; }
inline const DistanceTable<double>& distance_table(double) { return distance_tables().f64; }

}  // namespace lazuli

#endif
