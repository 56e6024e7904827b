// The kernels by name. A kernel's id is its position, so the command buffer names it by a number.
// Process-wide: ids are equal in every isolate, and kernels of a loaded addon stay.
#ifndef LAZULI_RUNTIME_REGISTRY_H
#define LAZULI_RUNTIME_REGISTRY_H

#include <lazuli/kernel.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lazuli {

inline constexpr uint32_t kEveryDtype = (1u << (LZ_COMPLEX64 + 1)) - 1;
inline constexpr uint32_t kFloatingDtypes =
    1u << LZ_FLOAT16 | 1u << LZ_BFLOAT16 | 1u << LZ_FLOAT32 | 1u << LZ_FLOAT64;

class Registry {
 public:
  // Adds a kernel, or replaces the one of that name under the same id. `dtypes` has a bit for each lz_dtype
  // that its first input may have; `library` is empty for this package's own.
  void add(std::string_view name, lz_kernel run, uint32_t dtypes = kEveryDtype,
           const std::string& library = {});

  // Adds the table that the shared library at `path` exports as `lazuli_kernels`. Returns the names it added;
  // throws std::runtime_error, having added nothing, when the file does not load, exports no table, was built
  // for another version of kernel.h, or has a kernel for what this package or another library has one for.
  std::vector<std::string> load(const std::string& path);

  std::vector<std::string> names() const;
  // The kernel of that name, or null.
  lz_kernel named(std::string_view name) const;
  // The sets of dtypes, in the order of the ids.
  std::vector<uint32_t> dtypes() const;

  // Null when there is no such id. Safe while another thread adds: the table never moves.
  lz_kernel find(uint32_t id) const {
    return id < kCapacity ? table_[id].load(std::memory_order_acquire) : nullptr;
  }

 private:
  static constexpr uint32_t kCapacity = 4096;
  std::atomic<lz_kernel> table_[kCapacity] = {};
  std::vector<std::string> names_;
  std::vector<uint32_t> dtypes_;
  std::vector<std::string> libraries_;  // where each came from
};

// The process's registry, holding the kernels of this package from the first call on.
Registry& registry();

}  // namespace lazuli

#endif
