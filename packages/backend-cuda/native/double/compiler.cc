// A double of NVRTC: compiles a kernel's CUDA C++ with the system's C++ compiler (CXX, or c++) for the double
// of the driver, with double/kernel.h in place of CUDA's own words.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#define LZ_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

struct Program {
  std::string source, name, log, code;
  std::vector<std::pair<std::string, std::string>> headers;
};

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}
void write_file(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

// Dynamic shared memory by a pointer, and a table of the kernels.
std::string prepared(const std::string& source) {
  static const std::regex arena(R"(extern __shared__ (\w+) (\w+)\[\];)");
  static const std::regex kernel(
      R"(extern "C" __global__ void (?:__cluster_dims__\([\w, ]+\) )?(?:__launch_bounds__\((\d+)(?:, \w+)?\) )?(\w+)\()");
  const bool waits = source.find("await_earlier();") != std::string::npos;
  std::string table;
  int count = 0;
  for (std::sregex_iterator i(source.begin(), source.end(), kernel), end; i != end; ++i, count++)
    table += "LzEntry<&LZ_KERNELS::" + i->str(2) + ">::describe(\"" + i->str(2) + "\", " +
             (i->str(1).empty() ? "1024" : i->str(1)) + (waits ? ", true),\n" : ", false),\n");
  return std::regex_replace(source, arena, "$1* $2 = static_cast<$1*>(lz_host->shared);") +
         "\n#line 1 \"table\"\n#ifndef LZ_KERNELS\n#define LZ_KERNELS ::lzm\n#endif\nextern \"C\" {\nextern "
         "__attribute__((visibility(\"default\"))) const "
         "LzKernel lz_kernels[] = {\n" +
         table + "};\nextern __attribute__((visibility(\"default\"))) const int lz_kernel_count = " +
         std::to_string(count) + ";\n}\n";
}

int run(const std::vector<std::string>& command, const std::string& log) {
  const pid_t child = fork();
  if (child == 0) {
    const int file = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    dup2(file, 1);
    dup2(file, 2);
    setenv("LC_ALL", "C", 1);
    std::vector<char*> words;
    for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    execvp(words[0], words.data());
    _exit(127);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

const std::vector<std::string> kFlags = {
    "-std=c++17",        "-O1",           "-fPIC",           "-w",
    "-ffp-contract=off", "-fsigned-char", "-fno-math-errno", "-fvisibility=hidden",
    "-DLZ_DOUBLE_KERNEL"};

std::vector<std::string> command(const std::vector<std::string>& more) {
  const char* own = std::getenv("CXX");
  std::vector<std::string> all = {own ? own : "c++"};
  all.insert(all.end(), kFlags.begin(), kFlags.end());
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

void write_headers(const Program& p, const std::string& folder) {
  for (const auto& [name, text] : p.headers) write_file(folder + "/" + name, text);
}

// The head of a source, its definitions and the header that all kernels share, which takes most of the time:
// compiled once, where LAZULI_CACHE_DIR keeps it. Gives the header to include, or nothing.
std::string compiled_head(const Program& p, const std::string& head) {
  const char* cache = std::getenv("LAZULI_CACHE_DIR");
  if (!cache || head.empty()) return {};
  uint64_t hash = 0xcbf29ce484222325;
  auto add = [&](const std::string& text) {
    for (const char c : text) hash = (hash ^ uint8_t(c)) * 0x100000001b3;
  };
  const std::string own = read_file(LAZULI_DOUBLE_KERNEL_H);
  add(head + own + command({})[0]);
  for (const auto& [name, text] : p.headers) add(name + text);
  const std::string folder = std::string(cache) + "/double-" + std::to_string(hash),
                    header = folder + "/head.h";
  if (std::filesystem::exists(header + ".gch")) return header;
  std::string made = folder + "-XXXXXX";
  if (!mkdtemp(made.data())) return {};
  write_headers(p, made);
  write_file(made + "/head.h", own + "\n" + head);
  const bool good =
      run(command({"-x", "c++-header", made + "/head.h", "-o", made + "/head.h.gch"}), made + "/log") == 0;
  std::error_code problem;
  // Another process may have been first.
  if (good) std::filesystem::rename(made, folder, problem);
  std::filesystem::remove_all(made, problem);
  return good ? header : std::string();
}

}  // namespace

LZ_EXPORT int nvrtcVersion(int* major, int* minor) {
  *major = 13;
  *minor = 0;
  return 0;
}
LZ_EXPORT int nvrtcCreateProgram(void** made, const char* source, const char* name, int count,
                                 const char* const* texts, const char* const* names) {
  auto* p = new Program;
  p->source = source;
  p->name = name;
  for (int i = 0; i < count; i++) p->headers.emplace_back(names[i], texts[i]);
  *made = p;
  return 0;
}
LZ_EXPORT int nvrtcDestroyProgram(void** program) {
  delete static_cast<Program*>(*program);
  *program = nullptr;
  return 0;
}
LZ_EXPORT int nvrtcCompileProgram(void* program, int, const char* const*) {
  auto* p = static_cast<Program*>(program);
  const char* tmp = std::getenv("TMPDIR");
  std::string folder = std::string(tmp ? tmp : "/tmp") + "/lazuli-double-XXXXXX";
  if (!mkdtemp(folder.data())) return 6;
  static const std::regex beginning("^(#define LZ_\\w+ 1\n)*#include \"lazuli_cuda.h\"\n");
  std::smatch found;
  const bool has_head = std::regex_search(p->source, found, beginning);
  const std::string head = has_head ? found.str() : std::string(), shared = compiled_head(*p, head);
  if (shared.empty()) write_headers(*p, folder);
  write_file(folder + "/kernel.cu", prepared(shared.empty() ? p->source : p->source.substr(head.size())));
  const int status = run(command({"-shared", "-I" + folder, "-include",
                                  shared.empty() ? std::string(LAZULI_DOUBLE_KERNEL_H) : shared, "-x", "c++",
                                  folder + "/kernel.cu", "-o", folder + "/kernel.so"}),
                         folder + "/log");
  p->log = read_file(folder + "/log");
  if (status == 0) {
    const std::string library = read_file(folder + "/kernel.so");
    const uint64_t size = library.size();
    p->code = "LZDOUBLE" + std::string(reinterpret_cast<const char*>(&size), 8) + library;
  }
  std::filesystem::remove_all(folder);
  return status == 0 ? 0 : 6;
}
LZ_EXPORT int nvrtcGetProgramLogSize(void* program, size_t* size) {
  *size = static_cast<Program*>(program)->log.size() + 1;
  return 0;
}
LZ_EXPORT int nvrtcGetProgramLog(void* program, char* log) {
  std::strcpy(log, static_cast<Program*>(program)->log.c_str());
  return 0;
}
LZ_EXPORT int nvrtcGetCUBINSize(void* program, size_t* size) {
  *size = static_cast<Program*>(program)->code.size();
  return 0;
}
LZ_EXPORT int nvrtcGetCUBIN(void* program, char* code) {
  const std::string& made = static_cast<Program*>(program)->code;
  std::memcpy(code, made.data(), made.size());
  return 0;
}
LZ_EXPORT int nvrtcGetPTXSize(void* program, size_t* size) { return nvrtcGetCUBINSize(program, size); }
LZ_EXPORT int nvrtcGetPTX(void* program, char* code) { return nvrtcGetCUBIN(program, code); }
LZ_EXPORT const char* nvrtcGetErrorString(int result) {
  return result == 6 ? "NVRTC_ERROR_COMPILATION" : "NVRTC_ERROR";
}
