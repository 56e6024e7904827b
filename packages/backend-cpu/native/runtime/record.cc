#include "runtime/record.h"

namespace lazuli {
namespace {

constexpr uint8_t kLogSize[kDtypes] = {0, 0, 1, 2, 3, 0, 1, 2, 3, 1, 2, 1, 3, 3};
// Beyond every address space, and small enough that sums of a few do not overflow.
constexpr int64_t kFar = int64_t(1) << 56;

bool multiply(int64_t a, int64_t b, int64_t* product) {
  return !__builtin_mul_overflow(a, b, product) && *product > -kFar && *product < kFar;
}

// Row-major strides; false when the product of the shape is not `size`.
bool row_major(const int64_t* shape, int ndim, int64_t size, int64_t* strides) {
  int64_t product = 1;
  for (int axis = ndim - 1; axis >= 0; axis--) {
    strides[axis] = product;
    if (shape[axis] < 0 || !multiply(product, shape[axis], &product)) return false;
  }
  return product == size;
}

// The range of element offsets that shape and strides reach; false when the product of the shape is not `size`.
bool reach(const int64_t* shape, const int64_t* strides, int ndim, int64_t size, int64_t* lowest, int64_t* highest) {
  int64_t product = 1, low = 0, high = 0;
  for (int axis = 0; axis < ndim; axis++) {
    if (shape[axis] < 0) return false;
    if (!multiply(product, shape[axis], &product)) return false;
  }
  if (product != size) return false;
  if (size == 0) return *lowest = *highest = 0, true;
  for (int axis = 0; axis < ndim; axis++) {
    int64_t span;
    if (!multiply(shape[axis] - 1, strides[axis], &span)) return false;
    (span < 0 ? low : high) += span;
    if (low <= -kFar || high >= kFar) return false;
  }
  *lowest = low;
  *highest = high;
  return true;
}

}  // namespace

const char* decode_operand(const int64_t*& next, const int64_t* end, DecodedOperand& out, int64_t*& strides) {
  if (end - next < 2) return "an operand is cut short";
  const int64_t head = *next++;
  const uint32_t info = high32(head);
  const uint32_t dtype = info & 0xff, ndim = info >> 8 & 0xff, flags = info >> 16;
  out.slot = low32(head);
  if (dtype >= uint32_t(kDtypes)) return "an operand has an unknown dtype";
  lz_operand& x = out.operand;
  x.dtype = int32_t(dtype);
  x.ndim = int32_t(ndim);
  x.flags = flags;
  x.reserved = 0;
  if (flags & LZ_IMMEDIATE) {
    if (ndim != 0) return "an immediate has dimensions";
    x.data = const_cast<int64_t*>(next++);
    x.size = 1;
    x.flags |= LZ_CONTIGUOUS;
    x.shape = x.strides = nullptr;
    out.offset = out.low = out.high = 0;
    return nullptr;
  }
  const bool contiguous = flags & LZ_CONTIGUOUS;
  if (end - next < int64_t(2 + (contiguous ? ndim : 2 * ndim))) return "an operand is cut short";
  const int64_t offset = *next++, size = *next++;
  const int log_size = kLogSize[dtype];
  if (offset < 0 || offset >= kFar || (offset & ((1 << log_size) - 1))) return "an operand's offset is negative or not aligned";
  if (size < 0 || size >= kFar >> 3) return "an operand's size is out of range";
  x.size = size;
  x.shape = next;
  next += ndim;
  out.offset = offset;
  if (contiguous) {
    if (ndim == 1) {
      strides[0] = 1;
      if (x.shape[0] != size) return "an operand's shape does not match its size";
    } else if (!row_major(x.shape, int(ndim), size, strides)) {
      return "an operand's shape does not match its size";
    }
    x.strides = strides;
    strides += ndim;
    out.low = offset;
    out.high = offset + (size << log_size);
    return nullptr;
  }
  x.strides = next;
  next += ndim;
  int64_t lowest, highest;
  if (!reach(x.shape, x.strides, int(ndim), size, &lowest, &highest)) return "an operand's shape does not match its size";
  out.low = offset + (lowest << log_size);
  out.high = size == 0 ? offset : offset + ((highest + 1) << log_size);
  return nullptr;
}

}  // namespace lazuli
