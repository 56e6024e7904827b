// Kernel names, ids, and loading of kernels from outside addons.
#include "runtime/registry.h"

#include <dlfcn.h>

#include <mutex>
#include <stdexcept>

#include "kernels/families.h"

namespace lazuli {
namespace {

std::mutex& guard() {
  static std::mutex mutex;
  return mutex;
}

}  // namespace

void Registry::add(std::string_view name, lz_kernel run, uint32_t dtypes, const std::string& library) {
  std::lock_guard lock(guard());
  for (size_t id = 0; id < names_.size(); id++) {
    if (names_[id] == name) {
      table_[id] = run;
      dtypes_[id] = dtypes;
      return;
    }
  }
  if (names_.size() == kCapacity) throw std::runtime_error("[kernels] too many kernels");
  table_[names_.size()] = run;
  names_.emplace_back(name);
  dtypes_.push_back(dtypes);
  libraries_.emplace_back(library);
}

std::vector<std::string> Registry::names() const {
  std::lock_guard lock(guard());
  return names_;
}

lz_kernel Registry::named(std::string_view name) const {
  std::lock_guard lock(guard());
  for (size_t id = 0; id < names_.size(); id++)
    if (names_[id] == name) return table_[id].load(std::memory_order_acquire);
  return nullptr;
}

std::vector<uint32_t> Registry::dtypes() const {
  std::lock_guard lock(guard());
  return dtypes_;
}

std::vector<std::string> Registry::load(const std::string& path) {
  // Never closed: the tables point into it.
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) throw std::runtime_error(std::string("[loadKernels] ") + dlerror());
  auto* table = static_cast<const lz_kernel_table*>(dlsym(library, "lazuli_kernels"));
  if (!table) throw std::runtime_error("[loadKernels] " + path + " exports no `lazuli_kernels`");
  if (table->abi != LZ_KERNEL_ABI) {
    throw std::runtime_error(
        "[loadKernels] " + path + " was built for version " + std::to_string(table->abi) +
        " of lazuli/kernel.h, and this backend has version " + std::to_string(LZ_KERNEL_ABI));
  }
  // An addon of a later header has longer entries, whose beginning is known.
  const size_t step = table->entry_size ? table->entry_size : sizeof(lz_kernel_entry);
  const auto after = [step](const lz_kernel_entry* entry) {
    return reinterpret_cast<const lz_kernel_entry*>(reinterpret_cast<const char*>(entry) + step);
  };
  std::vector<std::string> added;
  for (const lz_kernel_entry* entry = table->entries; entry && entry->name; entry = after(entry)) {
    if (!entry->run)
      throw std::runtime_error("[loadKernels] " + path + ": kernel " + entry->name + " is null");
    std::lock_guard lock(guard());
    for (size_t id = 0; id < names_.size(); id++) {
      // The same library again, from another isolate, changes nothing.
      if (names_[id] == entry->name && table_[id] != entry->run) {
        throw std::runtime_error("[loadKernels] " + path + " has a kernel for " + entry->name + ", which " +
                                 (libraries_[id].empty() ? "the CPU backend itself" : libraries_[id]) +
                                 " has already");
      }
    }
    added.emplace_back(entry->name);
  }
  for (const lz_kernel_entry* entry = table->entries; entry && entry->name; entry = after(entry))
    add(entry->name, entry->run, kEveryDtype, path);
  return added;
}

Registry& registry() {
  // Leaked, so that no exit-time destructor races a thread that still runs kernels.
  static Registry* it = [] {
    auto* made = new Registry;
    register_families(*made);
    return made;
  }();
  return *it;
}

}  // namespace lazuli
