// The table of update loops, here once for the families that share it.
#include "kernels/update.h"

#include "simd/moves.h"

namespace lazuli {
namespace {

// Sums of the types that rows of much memory have, by the best instructions there are.
template <class T>
void add_run(void* to, int64_t to_step, const void* from, int64_t from_step, int64_t n) {
  if (to_step != 1 || from_step != 1) return update_run<Update::add, T>(to, to_step, from, from_step, n);
  if constexpr (std::is_same_v<T, float>)
    move_table().add_float(static_cast<float*>(to), static_cast<const float*>(from), n);
  else
    move_table().add_double(static_cast<double*>(to), static_cast<const double*>(from), n);
}

}  // namespace

UpdateRun find_update(const lz_call& call, const char* op, int64_t mode, int32_t dtype) {
  UpdateRun run = nullptr;
  if (mode == int64_t(Update::set)) {
    dispatch_width(dtype, [&]<class U>() { run = update_run<Update::set, U>; });
    return run;
  }
  if (mode == int64_t(Update::add) && dtype == LZ_FLOAT32) return add_run<float>;
  if (mode == int64_t(Update::add) && dtype == LZ_FLOAT64) return add_run<double>;
  dispatch_among<every>(dtype, [&]<class T>() {
    switch (Update(mode)) {
      case Update::add:
        run = update_run<Update::add, T>;
        break;
      case Update::multiply:
        run = update_run<Update::multiply, T>;
        break;
      case Update::maximum:
        run = update_run<Update::maximum, T>;
        break;
      case Update::minimum:
        run = update_run<Update::minimum, T>;
        break;
      default:
        break;
    }
  });
  require(call, run != nullptr, "[%s] mode %lld does not exist", op, (long long)mode);
  return run;
}

}  // namespace lazuli
