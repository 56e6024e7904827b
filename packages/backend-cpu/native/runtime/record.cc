#include "runtime/record.h"

namespace lazuli {
namespace {

using record_detail::kFar;

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

// The range of element offsets that shape and strides reach; false when the product of the shape is not
// `size`.
bool reach(const int64_t* shape, const int64_t* strides, int ndim, int64_t size, int64_t* lowest,
           int64_t* highest) {
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

const char* record_detail::decode_rest(const int64_t*& next, const int64_t* end, lz_operand& x,
                                       Extent& extent, int64_t*& strides) {
  const int ndim = x.ndim;
  next++;
  if (x.flags & LZ_IMMEDIATE) {
    if (ndim != 0) return "an immediate has dimensions";
    x.data = const_cast<int64_t*>(next++);
    x.size = 1;
    x.flags |= LZ_CONTIGUOUS;
    x.shape = x.strides = nullptr;
    extent.offset = extent.low = extent.high = 0;
    return nullptr;
  }
  const bool contiguous = x.flags & LZ_CONTIGUOUS;
  if (end - next < 2 + (contiguous ? ndim : 2 * ndim)) return "an operand is cut short";
  const int64_t offset = *next++, size = *next++;
  const int log_size = kLogSize[x.dtype];
  if (offset < 0 || offset >= kFar || (offset & ((1 << log_size) - 1)))
    return "an operand's offset is negative or not aligned";
  if (size < 0 || size >= kFar >> 3) return "an operand's size is out of range";
  x.size = size;
  x.shape = next;
  next += ndim;
  extent.offset = offset;
  if (contiguous) {
    if (!row_major(x.shape, ndim, size, strides)) return "an operand's shape does not match its size";
    x.strides = strides;
    strides += ndim;
    extent.low = offset;
    extent.high = offset + (size << log_size);
    return nullptr;
  }
  x.strides = next;
  next += ndim;
  int64_t lowest, highest;
  if (!reach(x.shape, x.strides, ndim, size, &lowest, &highest))
    return "an operand's shape does not match its size";
  // Shifts of negative numbers are well defined in C++20.
  extent.low = offset + (lowest << log_size);
  extent.high = size == 0 ? offset : offset + ((highest + 1) << log_size);
  return nullptr;
}

}  // namespace lazuli
