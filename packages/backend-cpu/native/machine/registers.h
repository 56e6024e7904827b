// The allocation of registers for straight-line code: values leave in favour of others by the distance
// of their next use (Belady), and come back from their home in memory.
#ifndef LAZULI_MACHINE_REGISTERS_H
#define LAZULI_MACHINE_REGISTERS_H

#include <climits>
#include <cstdint>
#include <vector>

namespace lazuli::machine {

// One class of registers. Numbers of registers are the processor's.
class RegisterFile {
 public:
  static constexpr int kMost = 4096;

  void reset(int first, int count) {
    owner_.assign(size_t(first + count), kNone);
    for (int i = 0; i < first; i++) owner_[size_t(i)] = kReserved;
    used_ = 0;
    most_ = 0;
    unlock();
  }
  // Takes a register out of use for good.
  void reserve(int reg) { owner_[size_t(reg)] = kReserved; }

  // A free register for the value, or -1.
  int take(int value) {
    for (size_t reg = 0; reg < owner_.size(); reg++) {
      if (owner_[reg] != kNone) continue;
      give(int(reg), value);
      return int(reg);
    }
    return -1;
  }
  void give(int reg, int value) {
    if (owner_[size_t(reg)] == kNone) used_++;
    if (used_ > most_) most_ = used_;
    owner_[size_t(reg)] = value;
    lock(reg);
  }
  void free(int reg) {
    owner_[size_t(reg)] = kNone;
    used_--;
  }
  int owner(int reg) const { return owner_[size_t(reg)]; }

  // Of the registers that this instruction does not touch, the one whose value is needed last.
  template <class NextUse>
  int victim(NextUse next_use) const {
    int best = -1, latest = -1;
    for (size_t reg = 0; reg < owner_.size(); reg++) {
      if (owner_[reg] < 0 || locked(int(reg))) continue;
      const int next = next_use(owner_[reg]);
      if (next > latest) latest = next, best = int(reg);
    }
    return best;
  }

  void lock(int reg) { locked_.push_back(reg); }
  void unlock() { locked_.clear(); }
  // The most that were in use at once.
  int most() const { return most_; }

 private:
  static constexpr int kNone = -1, kReserved = -2;
  bool locked(int reg) const {
    for (int each : locked_)
      if (each == reg) return true;
    return false;
  }

  std::vector<int> owner_, locked_;
  int used_ = 0, most_ = 0;
};

}  // namespace lazuli::machine

#endif
