// The table that the CPU backend reads.
#include "kernels.h"

static const lz_kernel_entry entries[] = {
    {"@lazuli/ext-pointcloud/mvmr", pointcloud::mvmr},
    {"@lazuli/ext-pointcloud/mvmrGradients", pointcloud::mvmr_gradients},
    {"@lazuli/ext-pointcloud/vvor", pointcloud::vvor},
    {"@lazuli/ext-pointcloud/pairDistances", pointcloud::pair_distances},
    {"@lazuli/ext-pointcloud/neighbours", pointcloud::neighbours},
    {"@lazuli/ext-pointcloud/farthestPoints", pointcloud::farthest},
    {nullptr, nullptr}};

const lz_kernel_table lazuli_kernels = {LZ_KERNEL_ABI, entries};
