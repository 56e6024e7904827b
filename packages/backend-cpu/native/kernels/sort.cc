// sort and argsort along one axis: stable, NaN last. Real types become unsigned keys whose order is the order
// of the values (NaN one largest key), sorted by counting digits from the lowest byte up; short rows and
// complex numbers by comparison.
#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/families.h"
#include "kernels/layout.h"
#include "kernels/leases.h"

namespace lazuli {
namespace {

template <size_t Size>
using unsigned_of = std::conditional_t<
    Size == 1, uint8_t,
    std::conditional_t<Size == 2, uint16_t, std::conditional_t<Size == 4, uint32_t, uint64_t>>>;

// Flipping all bits of negative numbers and the sign of the others orders floats as unsigned integers. Where
// indices are sorted, −0 has the key of 0, so that the two keep their order; where values are, it stays
// itself.
template <bool Arg, class T>
auto key_of(T value) {
  using U = unsigned_of<sizeof(T)>;
  constexpr U sign = U(U(1) << (8 * sizeof(T) - 1));
  if constexpr (is_floating<T>) {
    U bits;
    std::memcpy(&bits, &value, sizeof bits);
    if (is_nan(value)) return U(~U(0));
    if (Arg && bits == sign) bits = 0;
    return U(bits & sign ? ~bits : bits | sign);
  } else if constexpr (std::is_signed_v<T>) {
    return U(U(value) ^ sign);
  } else {
    return U(value);
  }
}

// The value of a key, for sorting values alone. NaN becomes the canonical one.
template <class T, class U>
T value_of(U key) {
  constexpr U sign = U(U(1) << (8 * sizeof(T) - 1));
  if constexpr (is_floating<T>) {
    if (key == U(~U(0))) return T(std::numeric_limits<float>::quiet_NaN());
    return std::bit_cast<T>(U(key & sign ? key ^ sign : ~key));
  } else if constexpr (std::is_signed_v<T>) {
    return T(U(key ^ sign));
  } else {
    return T(key);
  }
}

// The items to sort: keys with the indices they came from, or keys alone.
template <class U>
struct Item {
  U key;
  uint32_t index;
};
template <class U>
U key_in(const Item<U>& item) {
  return item.key;
}
template <class U>
U key_in(const U& item) {
  return item;
}

// Sorts by counting the values of each byte; `other` is as long. Returns where the sorted items are.
template <class I>
I* radix_sort(I* items, I* other, int64_t n) {
  constexpr size_t kBytes = sizeof(key_in(I{}));
  uint32_t counts[kBytes][256] = {};
  for (int64_t i = 0; i < n; i++) {
    for (size_t byte = 0; byte < kBytes; byte++) counts[byte][key_in(items[i]) >> (8 * byte) & 0xff]++;
  }
  for (size_t byte = 0; byte < kBytes; byte++) {
    uint32_t* count = counts[byte];
    // All alike in this byte.
    if (count[key_in(items[0]) >> (8 * byte) & 0xff] == n) continue;
    uint32_t start = 0;
    for (int value = 0; value < 256; value++) start += std::exchange(count[value], start);
    for (int64_t i = 0; i < n; i++) other[count[key_in(items[i]) >> (8 * byte) & 0xff]++] = items[i];
    std::swap(items, other);
  }
  return items;
}

template <class I>
I* sort_items(I* items, I* other, int64_t n) {
  if (n > 128) return radix_sort(items, other, n);
  if (n > 32) {
    std::stable_sort(items, items + n, [](const I& a, const I& b) { return key_in(a) < key_in(b); });
    return items;
  }
  for (int64_t i = 1; i < n; i++) {
    const I item = items[i];
    int64_t j = i;
    for (; j > 0 && key_in(item) < key_in(items[j - 1]); j--) items[j] = items[j - 1];
    items[j] = item;
  }
  return items;
}

template <class T>
void order_complex(const T* x, int64_t n, uint32_t* order) {
  for (int64_t i = 0; i < n; i++) order[i] = uint32_t(i);
  // Indices tell equal numbers apart, which makes any sort stable.
  std::sort(order, order + n, [x](uint32_t a, uint32_t b) {
    if (less_nan_last(x[a], x[b])) return true;
    return !less_nan_last(x[b], x[a]) && a < b;
  });
}

// Sorts one row into `to`, which takes values or, for R = uint32_t with Arg, indices.
template <bool Arg, class T, class R>
void sort_row(const T* x, int64_t n, void* memory, R* to) {
  if constexpr (is_complex<T>) {
    auto* order = static_cast<uint32_t*>(memory);
    order_complex(x, n, order);
    for (int64_t i = 0; i < n; i++) {
      if constexpr (Arg)
        to[i] = order[i];
      else
        to[i] = x[order[i]];
    }
  } else if constexpr (Arg) {
    using U = decltype(key_of<Arg>(T{}));
    auto* items = static_cast<Item<U>*>(memory);
    for (int64_t i = 0; i < n; i++) items[i] = {key_of<true>(x[i]), uint32_t(i)};
    const Item<U>* sorted = sort_items(items, items + n, n);
    for (int64_t i = 0; i < n; i++) to[i] = sorted[i].index;
  } else {
    using U = decltype(key_of<Arg>(T{}));
    auto* keys = static_cast<U*>(memory);
    for (int64_t i = 0; i < n; i++) keys[i] = key_of<false>(x[i]);
    const U* sorted = sort_items(keys, keys + n, n);
    for (int64_t i = 0; i < n; i++) to[i] = value_of<T>(sorted[i]);
  }
}

template <class T>
constexpr int64_t scratch_bytes(int64_t n) {
  return is_complex<T> ? 4 * n : 2 * n * int64_t(sizeof(Item<unsigned_of<is_complex<T> ? 4 : sizeof(T)>>));
}

template <bool Arg>
void sort(const lz_call& call) {
  constexpr const char* op = Arg ? "argsort" : "sort";
  require_counts(call, op, 1, 1);
  const lz_operand &x = call.in[0], &y = call.out[0];
  require(call, same_shape(x, y) && y.dtype == (Arg ? int32_t(LZ_UINT32) : x.dtype),
          "[%s] the output's shape or dtype does not fit the input's", op);
  const int axis = int(
      normalize_axis(call, op, std::conditional_t<Arg, params::Argsort, params::Sort>(call).axis, x.ndim));
  if (y.size == 0) return;
  const int64_t n = x.shape[axis], rows = x.size / n;
  require(call, n <= UINT32_MAX, "[%s] the axis has more than 2^32 - 1 elements", op);
  const bool direct = axis_is_last(y, axis);
  dispatch_among<every>(x.dtype, [&]<class T>() {
    using R = std::conditional_t<Arg, uint32_t, T>;
    const T* from = rows_along<T>(call, x, axis);
    R* to = direct ? data<R>(y) : scratch<R>(call, y.size);
    Leases<char> blocks(call, scratch_bytes<T>(n), rows);
    parallel(call, rows, 10.0 * double(n), [&](int64_t begin, int64_t end) {
      const Leases<char>::Lease block(blocks);
      for (int64_t row = begin; row < end; row++) {
        sort_row<Arg>(from + row * n, n, block.data(), to + row * n);
      }
    });
    if (!direct) unpack_axis_last(call, y, axis, to);
  });
}

}  // namespace

void register_sort(Registry& registry) {
  registry.add("sort", entry<sort<false>>);
  registry.add("argsort", entry<sort<true>>);
}

}  // namespace lazuli
