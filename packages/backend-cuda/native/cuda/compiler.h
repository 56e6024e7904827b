// NVRTC, CUDA's compiler for use at run time, opened when it is first asked for.
#pragma once

#include <string>
#include <vector>

namespace lz {

struct Header {
  std::string name, text;
};

struct Compilation {
  std::string source, name;
  std::vector<Header> headers;
  std::vector<std::string> options;
  // The outcome: machine code, or PTX where the options ask for a virtual architecture.
  bool ok = false;
  std::string code, log;
};

// Opens the compiler. Returns what is wrong, or an empty string.
std::string open_compiler(const std::vector<std::string>& candidates, std::string* path, int* major,
                          int* minor);

// Compiles; any thread may.
void compile(Compilation& work);

}  // namespace lz
