/* Combinations of two values, for reductions and scans of simdgroups on every runtime. */
#pragma once

namespace lz {

struct Add {
  template <class T>
  static T apply(const T& a, const T& b) {
    return T(a + b);
  }
};
struct Multiply {
  template <class T>
  static T apply(const T& a, const T& b) {
    return T(a * b);
  }
};
struct Max {
  template <class T>
  static T apply(const T& a, const T& b) {
    return T(metal::max(a, b));
  }
};
struct Min {
  template <class T>
  static T apply(const T& a, const T& b) {
    return T(metal::min(a, b));
  }
};
struct And {
  template <class T>
  static T apply(const T& a, const T& b) {
    return T(a & b);
  }
};
struct Or {
  template <class T>
  static T apply(const T& a, const T& b) {
    return T(a | b);
  }
};
struct Xor {
  template <class T>
  static T apply(const T& a, const T& b) {
    return T(a ^ b);
  }
};

}  // namespace lz
