// copy: any layout to contiguous.
#include <cstring>

#include "kernels/families.h"
#include "runtime/dtype.h"
#include "runtime/parallel.h"

namespace lazuli {
namespace {

lz_status copy(const lz_call* call) {
  if (call->n_in != 1 || call->n_out != 1) {
    call->ctx->fail(call->ctx, "[copy] expected 1 input and 1 output, received %d and %d", call->n_in, call->n_out);
    return LZ_FAILED;
  }
  const lz_operand &x = call->in[0], &y = call->out[0];
  const int64_t bytes = itemsize(x.dtype);
  std::memcpy(y.data, x.data, size_t(y.size * bytes));
  return LZ_OK;
}

}  // namespace

void register_copy(Registry& registry) { registry.add("copy", copy); }

}  // namespace lazuli
