// The kernels of the collectives, as the CPU backend calls them: on the thread of the stream.
#include <lazuli/params.h>

#include <algorithm>
#include <cstring>

#include "groups.h"

namespace lazuli::dist {
namespace {

// Writes the elements of an axis, and of those after it, one behind another; returns the end.
template <class T>
T* write_rows(T* to, const T* from, const lz_operand& x, int axis) {
  const int64_t length = x.ndim ? x.shape[axis] : 1, stride = x.ndim ? x.strides[axis] : 1;
  if (axis + 1 < x.ndim) {
    for (int64_t i = 0; i < length; i++) to = write_rows(to, from + i * stride, x, axis + 1);
    return to;
  }
  if (stride == 0) return std::fill_n(to, length, *from);
  if (stride == 1) return std::copy_n(from, length, to);
  for (int64_t i = 0; i < length; i++) to[i] = from[i * stride];
  return to + length;
}
template <class T>
void write_all(void* to, const lz_operand& x) {
  if (x.size > 0) write_rows(static_cast<T*>(to), static_cast<const T*>(x.data), x, 0);
}

// The elements in row-major order: the operand's own, or a copy.
const void* row_major(const lz_call* call, const lz_operand& x) {
  if (x.flags & LZ_CONTIGUOUS) return x.data;
  const size_t width = size_of(x.dtype);
  void* copy = call->ctx->scratch(call->ctx, size_t(x.size) * width + 1);
  if (!copy) throw std::runtime_error("out of memory");
  if (width == 1)
    write_all<uint8_t>(copy, x);
  else if (width == 2)
    write_all<uint16_t>(copy, x);
  else if (width == 4)
    write_all<uint32_t>(copy, x);
  else
    write_all<uint64_t>(copy, x);
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
    if (kind != Kind::send && kind != Kind::recv && kind != Kind::barrier)
      work.derivative = uint8_t(params.integer());
    if (kind == Kind::allReduce) {
      const int64_t reduction = params.integer();
      work.reduction = Reduction(reduction);
      work.structure = uint32_t(params.integer());
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
