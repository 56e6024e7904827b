#include "cuda/compiler.h"

#include <dlfcn.h>

#include <memory>
#include <mutex>
#include <string>

#include "cuda/driver.h"

namespace lz {
namespace {

using Program = void*;

#define LZ_COMPILER_CALLS(X)                                                                               \
  X(Version, "nvrtcVersion", int, int*, int*)                                                              \
  X(CreateProgram, "nvrtcCreateProgram", int, Program*, const char*, const char*, int, const char* const*, \
    const char* const*)                                                                                    \
  X(DestroyProgram, "nvrtcDestroyProgram", int, Program*)                                                  \
  X(CompileProgram, "nvrtcCompileProgram", int, Program, int, const char* const*)                          \
  X(GetProgramLogSize, "nvrtcGetProgramLogSize", int, Program, size_t*)                                    \
  X(GetProgramLog, "nvrtcGetProgramLog", int, Program, char*)                                              \
  X(GetCUBINSize, "nvrtcGetCUBINSize", int, Program, size_t*)                                              \
  X(GetCUBIN, "nvrtcGetCUBIN", int, Program, char*)                                                        \
  X(GetPTXSize, "nvrtcGetPTXSize", int, Program, size_t*)                                                  \
  X(GetPTX, "nvrtcGetPTX", int, Program, char*)                                                            \
  X(GetErrorString, "nvrtcGetErrorString", const char*, int)

struct Compiler {
#define LZ_MEMBER(name, symbol, result, ...) result (*name)(__VA_ARGS__) = nullptr;
  LZ_COMPILER_CALLS(LZ_MEMBER)
#undef LZ_MEMBER
  std::string path;
};
OpenedLibrary<Compiler> opened;

// NVRTC asks for this library by its name alone, which the loader does not find where Python's packages are:
// it has to be there already.
void open_builtins(const std::string& compiler, int major, int minor) {
  const size_t folder = compiler.rfind('/');
  if (folder == std::string::npos) return;
  const std::string version = std::to_string(major) + "." + std::to_string(minor);
  dlopen((compiler.substr(0, folder) + "/libnvrtc-builtins.so." + version).c_str(), RTLD_NOW | RTLD_LOCAL);
}

}  // namespace

std::string open_compiler(const std::vector<std::string>& candidates, std::string* path, int* major,
                          int* minor) {
  const std::string problem = opened.open(candidates, path, [](Compiler& table, Symbols& symbols) {
#define LZ_BIND(name, symbol, ...) symbols.bind(table.name, symbol);
    LZ_COMPILER_CALLS(LZ_BIND)
#undef LZ_BIND
  });
  if (!problem.empty()) return problem;
  const Compiler& c = *opened.get();
  if (const int result = c.Version(major, minor)) return c.path + ": " + c.GetErrorString(result);
  open_builtins(c.path, *major, *minor);
  return {};
}

void compile(Compilation& work) {
  const Compiler* c = opened.get();
  if (!c) {
    work.log = "the compiler has not been opened";
    return;
  }
  std::vector<const char*> texts, names, options;
  for (const Header& h : work.headers) {
    texts.push_back(h.text.c_str());
    names.push_back(h.name.c_str());
  }
  bool is_virtual = false;
  for (const std::string& o : work.options) {
    options.push_back(o.c_str());
    is_virtual = is_virtual || o.find("=compute_") != std::string::npos;
  }
  Program program = nullptr;
  int result = c->CreateProgram(&program, work.source.c_str(), work.name.c_str(), int(texts.size()),
                                texts.data(), names.data());
  if (result) {
    work.log = c->GetErrorString(result);
    return;
  }
  result = c->CompileProgram(program, int(options.size()), options.data());
  size_t size = 0;
  if (c->GetProgramLogSize(program, &size) == 0 && size > 1) {
    work.log.resize(size);
    c->GetProgramLog(program, work.log.data());
    work.log.resize(size - 1);
  }
  if (result == 0) {
    const auto length = is_virtual ? c->GetPTXSize : c->GetCUBINSize;
    const auto bytes = is_virtual ? c->GetPTX : c->GetCUBIN;
    result = length(program, &size);
    if (result == 0) {
      work.code.resize(size);
      result = bytes(program, work.code.data());
    }
  }
  if (result) work.log += (work.log.empty() ? "" : "\n") + std::string(c->GetErrorString(result));
  work.ok = result == 0;
  c->DestroyProgram(&program);
}

}  // namespace lz
