// Included before everything else where LAZULI_SIMD_ONLY names the one instruction set whose loops are built:
// tables of others are not there to be chosen.
#ifndef LAZULI_SIMD_ONLY_H
#define LAZULI_SIMD_ONLY_H

#include "simd/targets.h"

#undef LZ_SIMD_TABLE
#define LZ_SIMD_TABLE(Table, name) \
  namespace LAZULI_SIMD_ONLY {     \
  const Table& name();             \
  }                                \
  inline const Table& name() { return LAZULI_SIMD_ONLY::name(); }

#endif
