/* Metal's vectors as a class: elements in an array, swizzles as members of a union that read and write it. */
#pragma once

namespace lz {

template <bool B, class T = void>
struct EnableIf {};
template <class T>
struct EnableIf<true, T> {
  typedef T type;
};
template <bool B, class T = void>
using If = typename EnableIf<B, T>::type;
template <class>
using VoidOf = void;
template <bool B, class T, class F>
struct Choice {
  typedef T type;
};
template <class T, class F>
struct Choice<false, T, F> {
  typedef F type;
};
template <class A, class B>
constexpr bool same = false;
template <class A>
constexpr bool same<A, A> = true;
template <class T>
struct Plain {
  typedef T type;
};
template <class T>
struct Plain<const T> : Plain<T> {};
template <class T>
struct Plain<volatile T> : Plain<T> {};
template <class T>
struct Plain<T&> : Plain<T> {};
template <class T>
struct Plain<T&&> : Plain<T> {};
template <class T>
using plain = typename Plain<T>::type;

template <class T>
constexpr bool is_floating = same<T, float> || same<T, half> || same<T, bfloat>;
template <class T>
constexpr bool is_scalar =
    is_floating<T> || same<T, bool> || same<T, char> || same<T, signed char> || same<T, uchar> ||
    same<T, short> || same<T, ushort> || same<T, int> || same<T, uint> || same<T, long> || same<T, ulong> ||
    same<T, long long> || same<T, unsigned long long> || __is_enum(T);

}  // namespace lz

namespace metal {

template <class T, int N>
struct vec;

}  // namespace metal

namespace lz {

template <class T, int N, int... I>
struct Swizzle {
  typedef metal::vec<T, sizeof...(I)> Vec;
  T data[N];
  operator Vec() const { return Vec(data[I]...); }
  template <class U>
  explicit operator metal::vec<U, sizeof...(I)>() const {
    return metal::vec<U, sizeof...(I)>(Vec(*this));
  }
  Swizzle& operator=(const Vec& v) {
    int k = 0;
    ((data[I] = v.data[k++]), ...);
    return *this;
  }
  Swizzle& operator=(const Swizzle& other) { return *this = Vec(other); }
  T operator[](uint i) const { return Vec(*this)[i]; }
  template <class B>
  Swizzle& operator+=(const B& b) {
    return *this = Vec(*this) + b;
  }
  template <class B>
  Swizzle& operator-=(const B& b) {
    return *this = Vec(*this) - b;
  }
  template <class B>
  Swizzle& operator*=(const B& b) {
    return *this = Vec(*this) * b;
  }
  template <class B>
  Swizzle& operator/=(const B& b) {
    return *this = Vec(*this) / b;
  }
};

/* The vector a type stands for; none for scalars. */
template <class A>
struct VecTraits {};
template <class T, int N>
struct VecTraits<metal::vec<T, N>> {
  typedef metal::vec<T, N> type;
};
template <class T, int N, int... I>
struct VecTraits<Swizzle<T, N, I...>> {
  typedef metal::vec<T, sizeof...(I)> type;
};
template <class A>
using VecOf = typename VecTraits<A>::type;

template <class A>
struct Count {
  static constexpr int value = 1;
};
template <class T, int N>
struct Count<metal::vec<T, N>> {
  static constexpr int value = N;
};
template <class T, int N, int... I>
struct Count<Swizzle<T, N, I...>> {
  static constexpr int value = sizeof...(I);
};

template <class T, class A, If<is_scalar<A>, int> = 0>
inline void fill(T* to, int& k, const A& a) {
  to[k++] = T(a);
}
template <class T, class A, class V = VecOf<A>>
inline void fill(T* to, int& k, const A& a) {
  V v(a);
  for (int i = 0; i < Count<V>::value; i++) to[k++] = T(v.data[i]);
}

/* The element members of a vector, by its size. Three-element vectors take the room of four. */
template <class T, int N>
struct Elements;

// clang-format off
#define LZ_S2(T, N, a, b, A, B) Swizzle<T, N, A, B> a##b;
#define LZ_S3(T, N, a, b, c, A, B, C) Swizzle<T, N, A, B, C> a##b##c;
#define LZ_S4(T, N, a, b, c, d, A, B, C, D) Swizzle<T, N, A, B, C, D> a##b##c##d;
#define LZ_2(T, N, M, P, x, X) M(T, N, x, P##0, X, 0) M(T, N, x, P##1, X, 1)
// All words of two and three letters over the first n letters, and those of four over four.
#define LZ_PAIRS2(T, N, p, q) LZ_S2(T,N,p,p,0,0) LZ_S2(T,N,p,q,0,1) LZ_S2(T,N,q,p,1,0) LZ_S2(T,N,q,q,1,1)
#define LZ_ROW3(T, N, a, A, p, q, r) LZ_S2(T,N,a,p,A,0) LZ_S2(T,N,a,q,A,1) LZ_S2(T,N,a,r,A,2)
#define LZ_PAIRS3(T, N, p, q, r) LZ_ROW3(T,N,p,0,p,q,r) LZ_ROW3(T,N,q,1,p,q,r) LZ_ROW3(T,N,r,2,p,q,r)
#define LZ_ROW4(T, N, a, A, p, q, r, s) LZ_ROW3(T,N,a,A,p,q,r) LZ_S2(T,N,a,s,A,3)
#define LZ_PAIRS4(T, N, p, q, r, s) LZ_ROW4(T,N,p,0,p,q,r,s) LZ_ROW4(T,N,q,1,p,q,r,s) LZ_ROW4(T,N,r,2,p,q,r,s) LZ_ROW4(T,N,s,3,p,q,r,s)
#define LZ_T2(T, N, a, A, b, B, p, q) LZ_S3(T,N,a,b,p,A,B,0) LZ_S3(T,N,a,b,q,A,B,1)
#define LZ_TRIPLES2(T, N, p, q) LZ_T2(T,N,p,0,p,0,p,q) LZ_T2(T,N,p,0,q,1,p,q) LZ_T2(T,N,q,1,p,0,p,q) LZ_T2(T,N,q,1,q,1,p,q)
#define LZ_T3(T, N, a, A, b, B, p, q, r) LZ_T2(T,N,a,A,b,B,p,q) LZ_S3(T,N,a,b,r,A,B,2)
#define LZ_T3R(T, N, a, A, p, q, r) LZ_T3(T,N,a,A,p,0,p,q,r) LZ_T3(T,N,a,A,q,1,p,q,r) LZ_T3(T,N,a,A,r,2,p,q,r)
#define LZ_TRIPLES3(T, N, p, q, r) LZ_T3R(T,N,p,0,p,q,r) LZ_T3R(T,N,q,1,p,q,r) LZ_T3R(T,N,r,2,p,q,r)
#define LZ_T4(T, N, a, A, b, B, p, q, r, s) LZ_T3(T,N,a,A,b,B,p,q,r) LZ_S3(T,N,a,b,s,A,B,3)
#define LZ_T4R(T, N, a, A, p, q, r, s) LZ_T4(T,N,a,A,p,0,p,q,r,s) LZ_T4(T,N,a,A,q,1,p,q,r,s) LZ_T4(T,N,a,A,r,2,p,q,r,s) LZ_T4(T,N,a,A,s,3,p,q,r,s)
#define LZ_TRIPLES4(T, N, p, q, r, s) LZ_T4R(T,N,p,0,p,q,r,s) LZ_T4R(T,N,q,1,p,q,r,s) LZ_T4R(T,N,r,2,p,q,r,s) LZ_T4R(T,N,s,3,p,q,r,s)
#define LZ_Q4(T, N, a, A, b, B, c, C, p, q, r, s) LZ_S4(T,N,a,b,c,p,A,B,C,0) LZ_S4(T,N,a,b,c,q,A,B,C,1) LZ_S4(T,N,a,b,c,r,A,B,C,2) LZ_S4(T,N,a,b,c,s,A,B,C,3)
#define LZ_Q4R(T, N, a, A, b, B, p, q, r, s) LZ_Q4(T,N,a,A,b,B,p,0,p,q,r,s) LZ_Q4(T,N,a,A,b,B,q,1,p,q,r,s) LZ_Q4(T,N,a,A,b,B,r,2,p,q,r,s) LZ_Q4(T,N,a,A,b,B,s,3,p,q,r,s)
#define LZ_Q4RR(T, N, a, A, p, q, r, s) LZ_Q4R(T,N,a,A,p,0,p,q,r,s) LZ_Q4R(T,N,a,A,q,1,p,q,r,s) LZ_Q4R(T,N,a,A,r,2,p,q,r,s) LZ_Q4R(T,N,a,A,s,3,p,q,r,s)
#define LZ_QUADS4(T, N, p, q, r, s) LZ_Q4RR(T,N,p,0,p,q,r,s) LZ_Q4RR(T,N,q,1,p,q,r,s) LZ_Q4RR(T,N,r,2,p,q,r,s) LZ_Q4RR(T,N,s,3,p,q,r,s)
// Of four letters over fewer: repetitions of one, and the doubled pair.
#define LZ_SPLATS(T, N, p, A) LZ_S4(T,N,p,p,p,p,A,A,A,A)
// clang-format on

template <class T>
struct alignas(2 * sizeof(T)) Elements<T, 2> {
  union {
    T data[2];
    struct {
      T x, y;
    };
    struct {
      T r, g;
    };
    LZ_PAIRS2(T, 2, x, y)
    LZ_PAIRS2(T, 2, r, g)
    LZ_TRIPLES2(T, 2, x, y)
    LZ_SPLATS(T, 2, x, 0)
    LZ_SPLATS(T, 2, y, 1)
    LZ_S4(T, 2, x, y, x, y, 0, 1, 0, 1)
    LZ_S4(T, 2, x, x, y, y, 0, 0, 1, 1)
  };
  Elements() = default;
};
template <class T>
struct alignas(4 * sizeof(T)) Elements<T, 3> {
  union {
    T data[3];
    struct {
      T x, y, z;
    };
    struct {
      T r, g, b;
    };
    LZ_PAIRS3(T, 3, x, y, z)
    LZ_PAIRS3(T, 3, r, g, b)
    LZ_TRIPLES3(T, 3, x, y, z)
    LZ_S3(T, 3, r, g, b, 0, 1, 2)
    LZ_S3(T, 3, b, g, r, 2, 1, 0)
    LZ_SPLATS(T, 3, x, 0)
    LZ_SPLATS(T, 3, y, 1)
    LZ_SPLATS(T, 3, z, 2)
  };
  Elements() = default;
};
template <class T>
struct alignas(4 * sizeof(T)) Elements<T, 4> {
  union {
    T data[4];
    struct {
      T x, y, z, w;
    };
    struct {
      T r, g, b, a;
    };
    LZ_PAIRS4(T, 4, x, y, z, w)
    LZ_PAIRS4(T, 4, r, g, b, a)
    LZ_TRIPLES4(T, 4, x, y, z, w)
    LZ_S3(T, 4, r, g, b, 0, 1, 2)
    LZ_S3(T, 4, b, g, r, 2, 1, 0)
    LZ_QUADS4(T, 4, x, y, z, w)
    LZ_S4(T, 4, r, g, b, a, 0, 1, 2, 3)
    LZ_S4(T, 4, b, g, r, a, 2, 1, 0, 3)
    LZ_S4(T, 4, a, r, g, b, 3, 0, 1, 2)
  };
  Elements() = default;
};

template <int... I>
struct Indices {};
template <int N, int... I>
struct MakeIndices : MakeIndices<N - 1, N - 1, I...> {};
template <int... I>
struct MakeIndices<0, I...> {
  typedef Indices<I...> type;
};

}  // namespace lz

namespace metal {

template <class T, int N>
struct vec : lz::Elements<T, N> {
  using lz::Elements<T, N>::data;
  vec() = default;
  vec(const vec& o) { copy(o); }
  vec& operator=(const vec& o) {
    copy(o);
    return *this;
  }
  template <class A, lz::If<lz::is_scalar<A>, int> = 0>
  vec(A s) {
    const T t = T(s);
    for (int i = 0; i < N; i++) data[i] = t;
  }
  template <class U, lz::If<!lz::same<U, T>, int> = 0>
  explicit vec(const vec<U, N>& o) {
    for (int i = 0; i < N; i++) data[i] = T(o.data[i]);
  }
  template <class A, class B, class... R,
            lz::If<lz::Count<A>::value + lz::Count<B>::value + (0 + ... + lz::Count<R>::value) == N, int> = 0>
  vec(const A& a, const B& b, const R&... rest) {
    int k = 0;
    lz::fill(data, k, a);
    lz::fill(data, k, b);
    (lz::fill(data, k, rest), ...);
  }
  T& operator[](uint i) { return data[i]; }
  const T& operator[](uint i) const { return data[i]; }
#define LZ_ASSIGN(op)                 \
  template <class B>                  \
  vec& operator op## = (const B& b) { \
    return *this = vec(*this op b);   \
  }
  // clang-format off
LZ_ASSIGN(+)
LZ_ASSIGN(-)
LZ_ASSIGN(*)
LZ_ASSIGN(/)
LZ_ASSIGN(%)
LZ_ASSIGN(&)
LZ_ASSIGN(|)
LZ_ASSIGN(^)
LZ_ASSIGN(<<)
LZ_ASSIGN(>>)
// clang-format on
#undef LZ_ASSIGN

 private:
  void copy(const vec& o) {
    for (int i = 0; i < N; i++) data[i] = o.data[i];
  }
};

/* Elements without padding: packed_float3 takes twelve bytes. */
template <class T, int N>
struct packed_vec {
  T data[N];
  packed_vec() = default;
  packed_vec(const vec<T, N>& v) {
    for (int i = 0; i < N; i++) data[i] = v.data[i];
  }
  operator vec<T, N>() const {
    vec<T, N> v;
    for (int i = 0; i < N; i++) v.data[i] = data[i];
    return v;
  }
  T& operator[](uint i) { return data[i]; }
  const T& operator[](uint i) const { return data[i]; }
};

/* Operators between vectors of one type, and between a vector and a scalar, which takes the element type. */
#define LZ_BINARY(op)                                                                     \
  template <class A, class B, class V = lz::VecOf<A>, class W = lz::VecOf<B>,             \
            lz::If<lz::same<V, W>, int> = 0>                                              \
  inline V operator op(const A& a, const B& b) {                                          \
    V x(a), y(b), r;                                                                      \
    for (int i = 0; i < lz::Count<V>::value; i++) r.data[i] = x.data[i] op y.data[i];     \
    return r;                                                                             \
  }                                                                                       \
  template <class A, class B, class V = lz::VecOf<A>, lz::If<lz::is_scalar<B>, int> = 0>  \
  inline V operator op(const A& a, const B& b) {                                          \
    V x(a), r;                                                                            \
    const auto y = V(b).data[0];                                                          \
    for (int i = 0; i < lz::Count<V>::value; i++) r.data[i] = x.data[i] op y;             \
    return r;                                                                             \
  }                                                                                       \
  template <class A, class B, class V = lz::VecOf<B>, lz::If<lz::is_scalar<A>, char> = 0> \
  inline V operator op(const A& a, const B& b) {                                          \
    V y(b), r;                                                                            \
    const auto x = V(a).data[0];                                                          \
    for (int i = 0; i < lz::Count<V>::value; i++) r.data[i] = x op y.data[i];             \
    return r;                                                                             \
  }
// clang-format off
LZ_BINARY(+)
LZ_BINARY(-)
LZ_BINARY(*)
LZ_BINARY(/)
LZ_BINARY(%)
LZ_BINARY(&)
LZ_BINARY(|)
LZ_BINARY(^)
LZ_BINARY(<<)
LZ_BINARY(>>)
// clang-format on
#undef LZ_BINARY

#define LZ_COMPARE(op)                                                                       \
  template <class A, class B, class V = lz::VecOf<A>,                                        \
            lz::If<lz::is_scalar<B> || lz::Count<B>::value == lz::Count<V>::value, int> = 0> \
  inline vec<bool, lz::Count<V>::value> operator op(const A& a, const B& b) {                \
    V x(a), y(b);                                                                            \
    vec<bool, lz::Count<V>::value> r;                                                        \
    for (int i = 0; i < lz::Count<V>::value; i++) r.data[i] = x.data[i] op y.data[i];        \
    return r;                                                                                \
  }                                                                                          \
  template <class A, class B, class V = lz::VecOf<B>, lz::If<lz::is_scalar<A>, char> = 0>    \
  inline vec<bool, lz::Count<V>::value> operator op(const A& a, const B& b) {                \
    return V(a) op V(b);                                                                     \
  }
// clang-format off
LZ_COMPARE(==)
LZ_COMPARE(!=)
LZ_COMPARE(<)
LZ_COMPARE(<=)
LZ_COMPARE(>)
LZ_COMPARE(>=)
LZ_COMPARE(&&)
LZ_COMPARE(||)
// clang-format on
#undef LZ_COMPARE

#define LZ_PREFIX(op)                                                       \
  template <class A, class V = lz::VecOf<A>>                                \
  inline V operator op(const A& a) {                                        \
    V x(a), r;                                                              \
    for (int i = 0; i < lz::Count<V>::value; i++) r.data[i] = op x.data[i]; \
    return r;                                                               \
  }
// clang-format off
LZ_PREFIX(-)
LZ_PREFIX(+)
LZ_PREFIX(~)
LZ_PREFIX(!)
// clang-format on
#undef LZ_PREFIX

/* Matrices by columns, as Metal has them. */
template <class T, int C, int R>
struct matrix {
  vec<T, R> columns[C];
  matrix() = default;
  explicit matrix(T diagonal) {
    for (int c = 0; c < C; c++)
      for (int r = 0; r < R; r++) columns[c][r] = c == r ? diagonal : T(0);
  }
  template <class... V, lz::If<sizeof...(V) == C && C != 1, int> = 0>
  matrix(const V&... v) {
    int c = 0;
    ((columns[c++] = vec<T, R>(v)), ...);
  }
  vec<T, R>& operator[](uint c) { return columns[c]; }
  const vec<T, R>& operator[](uint c) const { return columns[c]; }
};
template <class T, int C, int R>
inline vec<T, R> operator*(const matrix<T, C, R>& m, const vec<T, C>& v) {
  vec<T, R> out = m[0] * v[0];
  for (int c = 1; c < C; c++) out += m[c] * v[c];
  return out;
}
template <class T, int C, int R, int K>
inline matrix<T, C, R> operator*(const matrix<T, K, R>& a, const matrix<T, C, K>& b) {
  matrix<T, C, R> out;
  for (int c = 0; c < C; c++) out[c] = a * b[c];
  return out;
}
template <class T, int C, int R>
inline matrix<T, R, C> transpose(const matrix<T, C, R>& m) {
  matrix<T, R, C> out;
  for (int c = 0; c < C; c++)
    for (int r = 0; r < R; r++) out[r][c] = m[c][r];
  return out;
}

}  // namespace metal

#define LZ_NAMES(T)              \
  typedef metal::vec<T, 2> T##2; \
  typedef metal::vec<T, 3> T##3; \
  typedef metal::vec<T, 4> T##4;
// clang-format off
LZ_NAMES(bool)
LZ_NAMES(char)
LZ_NAMES(uchar)
LZ_NAMES(short)
LZ_NAMES(ushort)
LZ_NAMES(int)
LZ_NAMES(uint)
LZ_NAMES(long)
LZ_NAMES(ulong)
LZ_NAMES(half)
LZ_NAMES(float)
LZ_NAMES(bfloat)
// clang-format on
#undef LZ_NAMES
#define LZ_PACKED(T)                             \
  typedef metal::packed_vec<T, 2> packed_##T##2; \
  typedef metal::packed_vec<T, 3> packed_##T##3; \
  typedef metal::packed_vec<T, 4> packed_##T##4;
// clang-format off
LZ_PACKED(char)
LZ_PACKED(uchar)
LZ_PACKED(short)
LZ_PACKED(ushort)
LZ_PACKED(int)
LZ_PACKED(uint)
LZ_PACKED(half)
LZ_PACKED(float)
LZ_PACKED(bfloat)
// clang-format on
#undef LZ_PACKED
#define LZ_MATRICES(T, C)                  \
  typedef metal::matrix<T, C, 2> T##C##x2; \
  typedef metal::matrix<T, C, 3> T##C##x3; \
  typedef metal::matrix<T, C, 4> T##C##x4;
// clang-format off
LZ_MATRICES(float, 2)
LZ_MATRICES(float, 3)
LZ_MATRICES(float, 4)
LZ_MATRICES(half, 2)
LZ_MATRICES(half, 3)
LZ_MATRICES(half, 4)
// clang-format on
#undef LZ_MATRICES
