// The table of update loops, here once for the families that share it.
#include "kernels/update.h"

namespace lazuli {

UpdateRun find_update(const lz_call& call, const char* op, int64_t mode, int32_t dtype) {
  UpdateRun run = nullptr;
  if (mode == int64_t(Update::set)) {
    dispatch_width(dtype, [&]<class U>() { run = update_run<Update::set, U>; });
    return run;
  }
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
