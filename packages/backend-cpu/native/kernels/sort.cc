// sort and argsort along one axis: stable, NaN last. Real types become unsigned keys whose order is the order
// of the values (NaN one largest key), sorted by counting digits, the lowest first; short rows and complex
// numbers by comparison.
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
template <bool Arg, class T>
using item_of = std::conditional_t<Arg, Item<unsigned_of<sizeof(T)>>, unsigned_of<sizeof(T)>>;
template <class U>
U key_in(const Item<U>& item) {
  return item.key;
}
template <class U>
U key_in(const U& item) {
  return item;
}

// Long rows pay for the counts of wide digits, which take fewer rounds, and for being cut into parts of at
// least kPart, which threads sort together.
constexpr int64_t kLong = 1 << 15, kPart = 1 << 13;
constexpr int kDigit = 8, kWideDigit = 11, kMostRounds = 64 / kDigit;

// A row to sort: in parts, each with its counts, so that they can be counted and moved side by side.
struct Row {
  const lz_call& call;
  int64_t n, parts;
  uint32_t* counts;

  // f(part, begin, end) for all of them.
  template <class F>
  void each(F f) const {
    parallel(call, parts, 2.0 * double(n / parts), [&](int64_t first, int64_t last) {
      for (int64_t part = first; part < last; part++) f(part, n * part / parts, n * (part + 1) / parts);
    });
  }
};

// Sorting by counting the values of each digit, the lowest first.
template <int Bits, class I>
class RadixSort {
 public:
  static constexpr int kRounds = (8 * sizeof(key_in(I{})) + Bits - 1) / Bits;
  static constexpr int64_t kValues = int64_t{1} << Bits;

  // Sorts; `other` is as long. Returns where the sorted items are.
  static I* run(const Row& row, I* items, I* other) {
    if (counts_once(row)) count(items, items + row.n, row.counts, kAll());
    [&]<int... Round>(std::integer_sequence<int, Round...>) {
      (sort_by<Round>(row, items, other), ...);
    }(kAll());
    return items;
  }

 private:
  using kAll = std::make_integer_sequence<int, kRounds>;

  // A row that is not cut has the same digits in whatever order.
  static bool counts_once(const Row& row) { return row.parts == 1; }

  // Shifts by what the compiler knows: by a variable they take half of the time of a round.
  template <int Round>
  static uint32_t digit(const I& item) {
    return uint32_t(key_in(item) >> (Round * Bits) & (kValues - 1));
  }

  // Counts the values of these digits.
  template <int... Round>
  static void count(const I* items, const I* end, uint32_t* counts, std::integer_sequence<int, Round...>) {
    std::fill_n(counts, sizeof...(Round) * kValues, 0u);
    for (; items < end; items++) {
      const I item = *items;
      uint32_t* at = counts;
      ((at[digit<Round>(item)]++, at += kValues), ...);
    }
  }

  template <int Round>
  static void sort_by(const Row& row, I*& items, I*& other) {
    const bool once = counts_once(row);
    uint32_t* const counts = row.counts + (once ? Round * kValues : 0);
    const I* const from = items;
    I* const to = other;
    if (!once) {
      row.each([&](int64_t part, int64_t begin, int64_t end) {
        count(from + begin, from + end, counts + part * kValues, std::integer_sequence<int, Round>());
      });
    }
    int64_t alike = 0;
    for (int64_t part = 0; part < row.parts; part++) alike += counts[part * kValues + digit<Round>(from[0])];
    if (alike == row.n) return;
    uint32_t start = 0;
    for (int64_t value = 0; value < kValues; value++) {
      for (int64_t part = 0; part < row.parts; part++)
        start += std::exchange(counts[part * kValues + value], start);
    }
    row.each([&](int64_t part, int64_t begin, int64_t end) {
      uint32_t* const places = counts + part * kValues;
      for (int64_t i = begin; i < end; i++) {
        const I item = from[i];
        to[places[digit<Round>(item)]++] = item;
      }
    });
    std::swap(items, other);
  }
};

template <class I>
I* sort_items(const Row& row, I* items, I* other) {
  const int64_t n = row.n;
  if (n > 128) {
    if constexpr (sizeof(key_in(I{})) > 2) {
      if (n >= kLong) return RadixSort<kWideDigit, I>::run(row, items, other);
    }
    return RadixSort<kDigit, I>::run(row, items, other);
  }
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
void sort_row(const Row& row, const T* x, void* memory, R* to) {
  if constexpr (is_complex<T>) {
    auto* order = static_cast<uint32_t*>(memory);
    order_complex(x, row.n, order);
    for (int64_t i = 0; i < row.n; i++) {
      if constexpr (Arg)
        to[i] = order[i];
      else
        to[i] = x[order[i]];
    }
  } else {
    auto* items = static_cast<item_of<Arg, T>*>(memory);
    row.each([&](int64_t, int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; i++) {
        if constexpr (Arg)
          items[i] = {key_of<true>(x[i]), uint32_t(i)};
        else
          items[i] = key_of<false>(x[i]);
      }
    });
    const auto* sorted = sort_items(row, items, items + row.n);
    row.each([&](int64_t, int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; i++) {
        if constexpr (Arg)
          to[i] = sorted[i].index;
        else
          to[i] = value_of<T>(sorted[i]);
      }
    });
  }
}

// Of a row's items, and as much again; of complex numbers, indices.
template <bool Arg, class T>
constexpr int64_t items_bytes(int64_t n) {
  if constexpr (is_complex<T>)
    return n * int64_t(sizeof(uint32_t));
  else
    return 2 * n * int64_t(sizeof(item_of<Arg, T>));
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
    // Where rows are fewer than the threads that could share one, they share each.
    const int64_t most = is_complex<T> || n < kLong ? 1 : std::min<int64_t>(call.ctx->threads, n / kPart);
    const bool shared = rows < most;
    const int64_t parts = shared ? most : 1;
    const int64_t counts = std::max<int64_t>(parts, kMostRounds) << (n >= kLong ? kWideDigit : kDigit);
    Leases<char> blocks(call, counts * int64_t(sizeof(uint32_t)) + items_bytes<Arg, T>(n), shared ? 1 : rows);
    const auto sort_rows = [&](int64_t begin, int64_t end) {
      const Leases<char>::Lease block(blocks);
      const Row row{call, n, parts, reinterpret_cast<uint32_t*>(block.data())};
      for (int64_t at = begin; at < end; at++)
        sort_row<Arg>(row, from + at * n, row.counts + counts, to + at * n);
    };
    if (shared)
      sort_rows(0, rows);
    else
      parallel(call, rows, 10.0 * double(n), sort_rows);
    if (!direct) unpack_axis_last(call, y, axis, to);
  });
}

}  // namespace

void register_sort(Registry& registry) {
  registry.add("sort", entry<sort<false>>);
  registry.add("argsort", entry<sort<true>>);
}

}  // namespace lazuli
