// The kernels of this library.
#ifndef LAZULI_POINTCLOUD_KERNELS_H
#define LAZULI_POINTCLOUD_KERNELS_H

#include "call.h"

namespace pointcloud {

lz_status mvmr(const lz_call* call);
lz_status mvmr_gradients(const lz_call* call);
lz_status vvor(const lz_call* call);
lz_status pair_distances(const lz_call* call);
lz_status neighbours(const lz_call* call);
lz_status farthest(const lz_call* call);

}  // namespace pointcloud

#endif
