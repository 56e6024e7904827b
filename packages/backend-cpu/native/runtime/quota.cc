#include "runtime/quota.h"

#include <cstdio>
#include <cstdlib>
#include <memory>

namespace lazuli {
namespace {

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

File open_file(const std::string& path) { return {std::fopen(path.c_str(), "r"), &std::fclose}; }

// The first line of a file; empty where there is none.
std::string line_of(const std::string& path) {
  const File file = open_file(path);
  char line[128];
  return file && std::fgets(line, sizeof line, file.get()) != nullptr ? line : "";
}

// Version 2: "50000 100000", the time in each period, or "max 100000". Version 1 has a file for each, and −1.
double quota_in(const std::string& folder) {
  std::string text = line_of(folder + "/cpu.max");
  if (text.empty())
    text = line_of(folder + "/cpu.cfs_quota_us") + " " + line_of(folder + "/cpu.cfs_period_us");
  char* rest = nullptr;
  const double time = std::strtod(text.c_str(), &rest), period = std::strtod(rest, nullptr);
  return time > 0 && period > 0 ? time / period : 0;
}

}  // namespace

double processor_quota(const std::string& memberships, const std::string& root) {
  double least = 0;
  const File file = open_file(memberships);
  char line[4096];
  while (file && std::fgets(line, sizeof line, file.get()) != nullptr) {
    // number:controllers:group, without controllers in version 2
    std::string text(line);
    while (!text.empty() && text.back() == '\n') text.pop_back();
    const size_t first = text.find(':'), second = text.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    std::string controllers = text.substr(first, second - first + 1);
    controllers.front() = controllers.back() = ',';
    if (controllers != ",," && controllers.find(",cpu,") == std::string::npos) continue;
    // A group that is named as the host sees it is not found inside a container, where its own is the root.
    for (std::string group = text.substr(second + 1);; group.resize(group.rfind('/'))) {
      while (!group.empty() && group.back() == '/') group.pop_back();
      for (const char* hierarchy : {"", "/unified", "/cpu", "/cpu,cpuacct", "/cpuacct,cpu"}) {
        const double quota = quota_in(root + hierarchy + group);
        if (quota > 0 && (least == 0 || quota < least)) least = quota;
      }
      if (group.rfind('/') == std::string::npos) break;
    }
  }
  return least;
}

}  // namespace lazuli
