#include "cuda/driver.h"

#include <dlfcn.h>

#include <memory>
#include <mutex>

namespace lz {
namespace {

std::mutex mutex;
std::unique_ptr<Driver> opened;
std::string opened_path;

}  // namespace

std::string Driver::describe(Result result) const {
  const char *name = nullptr, *text = nullptr;
  if (GetErrorName(result, &name) != kSuccess || !name) return "CUDA error " + std::to_string(result);
  if (GetErrorString(result, &text) != kSuccess || !text) return name;
  return std::string(name) + " (" + text + ")";
}

void* open_first(const std::vector<std::string>& candidates, std::string* path, std::string* problems) {
  if (candidates.empty()) *problems = "it is not to be used";
  for (const std::string& candidate : candidates) {
    if (void* library = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL)) {
      *path = candidate;
      return library;
    }
    const char* why = dlerror();
    if (!problems->empty()) *problems += "; ";
    *problems += why ? why : candidate;
  }
  return nullptr;
}

void* Symbols::find(const char* name) {
  void* found = dlsym(library, name);
  if (!found) missing += std::string(missing.empty() ? "" : ", ") + name;
  return found;
}

const Driver* driver() {
  std::lock_guard<std::mutex> lock(mutex);
  return opened.get();
}

std::string open_driver(const std::vector<std::string>& candidates, std::string* path) {
  std::lock_guard<std::mutex> lock(mutex);
  if (opened) {
    *path = opened_path;
    return {};
  }
  std::string problems, found;
  void* library = open_first(candidates, &found, &problems);
  if (!library) return problems;
  auto table = std::make_unique<Driver>();
  Symbols symbols{library, {}};
#define LZ_BIND(name, symbol, ...) symbols.bind(table->name, symbol);
  LZ_DRIVER_CALLS(LZ_BIND)
  if (!symbols.missing.empty()) return found + " has no " + symbols.missing + ": the driver is too old";
  LZ_GRAPH_CALLS(LZ_BIND)
  table->graphs = symbols.missing.empty();
  LZ_AHEAD_CALLS(LZ_BIND)
#undef LZ_BIND
  table->ahead = symbols.missing.empty();
  opened = std::move(table);
  opened_path = *path = found;
  return {};
}

}  // namespace lz
