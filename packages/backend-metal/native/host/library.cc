#include "host/library.h"

#include <dlfcn.h>

#include "host/executor.h"

namespace lz {

Opened open_library(const std::string& path, const std::string& symbol) {
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) return {nullptr, false, dlerror()};
  const Library* library = static_cast<const Library*>(dlsym(handle, symbol.c_str()));
  if (!library || library->abi != kAbi)
    return {nullptr, false, path + " is not a kernel library of this version"};
  using Hook = void (*)(const void*, u32, u32, const void*);
  Hook* hook = static_cast<Hook*>(dlsym(handle, "lazuli_metal_access"));
  if (hook) *hook = note_access;
  add_kernel_code(library);
  return {library, hook != nullptr, {}};
}

}  // namespace lz
