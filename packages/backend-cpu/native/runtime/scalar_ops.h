// The scalar instructions by name, what they take and give, and the micro-kernels that carry them out here.
#ifndef LAZULI_RUNTIME_SCALAR_OPS_H
#define LAZULI_RUNTIME_SCALAR_OPS_H

#include <optional>
#include <string_view>

#include "simd/micro.h"

namespace lazuli {

const char* op_name(Op op);
// Op::count when there is none of that name.
Op op_named(std::string_view name);
// Registers read: 0 to 3.
int op_arity(Op op);
// A rough price of one float32 element in nanoseconds.
double op_cost(Op op);

// The dtype of the result; `argument` is that of the arguments, of the branches for select, of the result for
// cast.
int32_t op_result(Op op, int32_t argument);
// True if there is a micro-kernel for arguments of this dtype.
bool op_supported(Op op, int32_t argument);

// The factor that may replace a division by x without another result for any number: powers of two
// alone have it.
std::optional<float> exact_reciprocal(float x);

// Micro-kernels for this processor.
const MicroTable& micro_table();

// Functions without vector code: the C library's. Filled first, so that vector code replaces them.
void fill_scalar_functions(MicroTable& table);

}  // namespace lazuli

#endif
