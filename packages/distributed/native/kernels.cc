// The kernels of the collectives, as the CPU backend calls them: on the thread of the stream.
#include <lazuli/params.h>

#include <cstring>

#include "groups.h"

namespace lazuli::dist {
namespace {

// The elements in row-major order: the operand's own, or a copy.
const void* row_major(const lz_call* call, const lz_operand& x) {
  if (x.flags & LZ_CONTIGUOUS) return x.data;
  const size_t width = size_of(x.dtype);
  char* copy = static_cast<char*>(call->ctx->scratch(call->ctx, size_t(x.size) * width + 1));
  if (!copy) throw std::runtime_error("out of memory");
  const char* from = static_cast<const char*>(x.data);
  std::vector<int64_t> index(size_t(x.ndim), 0);
  int64_t at = 0;
  for (int64_t i = 0; i < x.size; i++) {
    std::memcpy(copy + size_t(i) * width, from + at * int64_t(width), width);
    for (int axis = x.ndim - 1; axis >= 0; axis--) {
      at += x.strides[axis];
      if (++index[size_t(axis)] < x.shape[axis]) break;
      at -= x.strides[axis] * x.shape[axis];
      index[size_t(axis)] = 0;
    }
  }
  return copy;
}

lz_status run(const lz_call* call, Kind kind) {
  static const char* const reductions[] = {"allSum", "allMax", "allMin"};
  static const char* const kinds[] = {"allReduce", "allGather", "sumScatter", "broadcast",
                                      "allToAll",  "send",      "recv",       "barrier"};
  const char* name = kinds[int(kind)];
  try {
    Params params(*call);
    const auto group = group_at(params.integer());
    Work work{kind};
    if (kind == Kind::allReduce) {
      const int64_t reduction = params.integer();
      work.reduction = Reduction(reduction);
      name = reductions[reduction];
    }
    if (kind == Kind::broadcast || kind == Kind::send || kind == Kind::recv)
      work.peer = int(params.integer());
    const lz_operand& about = kind == Kind::recv ? call->out[0] : call->in[0];
    if (kind != Kind::recv) work.in = row_major(call, call->in[0]);
    work.out = call->out[0].data;
    work.name = name;
    if (kind == Kind::barrier) {
      group->run(work);
      std::memcpy(work.out, work.in, size_t(about.size) * size_of(about.dtype));
      return LZ_OK;
    }
    work.dtype = about.dtype;
    work.count = about.size;
    work.shape = shape_number(about.shape, about.ndim);
    group->run(work);
    return LZ_OK;
  } catch (const lazuli::Failed&) {
  } catch (const std::exception& error) {
    call->ctx->fail(call->ctx, "[%s] %s", name, error.what());
  }
  return LZ_FAILED;
}

template <Kind kind>
lz_status kernel(const lz_call* call) {
  return run(call, kind);
}

const lz_kernel_entry entries[] = {{"@lazuli/distributed/allReduce", kernel<Kind::allReduce>},
                                   {"@lazuli/distributed/allGather", kernel<Kind::allGather>},
                                   {"@lazuli/distributed/sumScatter", kernel<Kind::sumScatter>},
                                   {"@lazuli/distributed/broadcast", kernel<Kind::broadcast>},
                                   {"@lazuli/distributed/allToAll", kernel<Kind::allToAll>},
                                   {"@lazuli/distributed/send", kernel<Kind::send>},
                                   {"@lazuli/distributed/recv", kernel<Kind::recv>},
                                   {"@lazuli/distributed/recvLike", kernel<Kind::recv>},
                                   {"@lazuli/distributed/barrier", kernel<Kind::barrier>},
                                   {nullptr, nullptr}};

}  // namespace
}  // namespace lazuli::dist

const lz_kernel_table lazuli_kernels = {LZ_KERNEL_ABI, lazuli::dist::entries};
