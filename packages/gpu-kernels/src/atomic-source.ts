/**
 * The update of an element that other threads may update too, by atomic operations of its dtype or of the word that it lies in.
 */
import type { Dtype } from "@lazuli/core/engine"
import { combined, type Mode } from "./kernels/moves"
import { metalType } from "./metal-types"

/** The function `lz_update(y, at, u)`. */
export function atomicText(mode: Mode, dtype: Dtype): string {
  const type = metalType(dtype) as string
  const word = dtype.size === 4 ? type : ""
  if (mode === "add" && (word === "float" || word === "int" || word === "uint"))
    return `inline void lz_update(device ${type}* y, long at, ${type} u) {
  atomic_fetch_add_explicit((device atomic<${type}>*)(y + at), u, memory_order_relaxed);
}
`
  if (mode === "add" && dtype.kind === "complex")
    return `inline void lz_update(device float2* y, long at, float2 u) {
  device atomic<float>* p = (device atomic<float>*)(y + at);
  atomic_fetch_add_explicit(p, u.x, memory_order_relaxed);
  atomic_fetch_add_explicit(p + 1, u.y, memory_order_relaxed);
}
`
  if (mode === "add" && dtype.size === 8)
    return `inline void lz_update(device ${type}* y, long at, ${type} u) {
  device atomic<uint>* p = (device atomic<uint>*)(y + at);
  uint low = uint(ulong(u)), high = uint(ulong(u) >> 32);
  uint before = atomic_fetch_add_explicit(p, low, memory_order_relaxed);
  if (before + low < before) high += 1;
  if (high != 0) atomic_fetch_add_explicit(p + 1, high, memory_order_relaxed);
}
`
  const value = combined(mode, dtype, "old", "u")
  if (dtype.size === 4)
    return `inline void lz_update(device ${type}* y, long at, ${type} u) {
  device atomic<uint>* p = (device atomic<uint>*)(y + at);
  uint before = atomic_load_explicit(p, memory_order_relaxed);
  for (;;) {
    ${type} old = as_type<${type}>(before);
    if (atomic_compare_exchange_weak_explicit(p, &before, as_type<uint>(${value}), memory_order_relaxed, memory_order_relaxed)) break;
  }
}
`
  const parts = 4 / dtype.size
  const bits = 8 * dtype.size
  const unsigned = dtype.size === 2 ? "ushort" : "uchar"
  const from = dtype.kind === "bool" ? "(piece != 0)" : `as_type<${type}>(piece)`
  const to = dtype.kind === "bool" ? `uint(${value} ? 1 : 0)` : `uint(as_type<${unsigned}>(${value}))`
  return `inline void lz_update(device ${type}* y, long at, ${type} u) {
  device atomic<uint>* p = (device atomic<uint>*)y + at / ${parts};
  uint shift = uint(at % ${parts}) * ${bits};
  uint before = atomic_load_explicit(p, memory_order_relaxed);
  for (;;) {
    ${unsigned} piece = ${unsigned}(before >> shift);
    ${type} old = ${from};
    uint after = (before & ~(${2 ** bits - 1}u << shift)) | (${to} << shift);
    if (atomic_compare_exchange_weak_explicit(p, &before, after, memory_order_relaxed, memory_order_relaxed)) break;
  }
}
`
}
