// The threefry2x32 block cipher over runs of counters.
#ifndef LAZULI_SIMD_RANDOM_H
#define LAZULI_SIMD_RANDOM_H

#include <stdint.h>

#include "simd/targets.h"

namespace lazuli {

struct RandomTable {
  // (first[i], second[i]) = threefry2x32(key, (counter0 + i, counter1 + i)) for i < n
  void (*threefry)(uint32_t key0, uint32_t key1, uint32_t counter0, uint32_t counter1, int64_t n,
                   uint32_t* first, uint32_t* second);
};

LZ_SIMD_TABLE(RandomTable, random_table)

}  // namespace lazuli

#endif
