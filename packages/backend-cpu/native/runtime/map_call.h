// One call of elementwise work: what all its blocks share, and how a block's steps run. Which blocks there
// are is the business of map.cc and pieces.cc.
#ifndef LAZULI_RUNTIME_MAP_CALL_H
#define LAZULI_RUNTIME_MAP_CALL_H

#include <cstdlib>
#include <memory>

#include "runtime/map.h"

namespace lazuli {

// A thread's memory for pointer tables and registers. It grows to the largest program seen and is then
// reused.
inline char* workspace(size_t bytes) {
  struct Free {
    void operator()(char* p) const { std::free(p); }
  };
  thread_local std::unique_ptr<char, Free> memory;
  thread_local size_t capacity = 0;
  if (bytes > capacity) {
    capacity = (bytes + 4095) / 4096 * 4096;
    memory.reset(static_cast<char*>(std::aligned_alloc(64, capacity)));
  }
  return memory.get();
}

inline size_t line(size_t bytes) { return (bytes + 63) / 64 * 64; }

// Operands, inputs first, and what a variant of the program needs for them.
struct MapCall {
  const MapJob& job;
  const Variant& v;
  char* const* bases;
  const uint8_t* log_sizes;
  int n_in, operands;
  char* cells = nullptr;
  const MachineCode* code = nullptr;  // does what the steps do

  bool single(int operand) const { return operand < 64 && (v.uniform >> operand & 1); }
  int64_t item(int operand) const { return int64_t(1) << log_sizes[operand]; }

  void table(void** slots, char* registers) const {
    for (const Variant::Fixed& f : v.fixed) {
      char* from = f.kind == Variant::Fixed::block_register ? registers
                   : f.kind == Variant::Fixed::cell
                       ? cells
                       : reinterpret_cast<char*>(const_cast<int64_t*>(job.program->constants()));
      slots[f.slot] = from + f.offset;
    }
  }

  void steps(void* const* slots, int64_t m) const {
    for (const Step& s : v.block) s.run(slots[s.out], slots[s.a], slots[s.b], slots[s.c], m);
  }

  // Single elements first, once a call.
  void once() const {
    auto** slots = reinterpret_cast<void**>(workspace(line(v.n_slots * sizeof(void*))));
    table(slots, nullptr);
    for (int i = 0; i < n_in; i++) slots[i] = bases[i];
    for (const Step& s : v.once) s.run(slots[s.out], slots[s.a], slots[s.b], slots[s.c], 1);
  }
};

}  // namespace lazuli

#endif
