#include "job/processors.h"

#ifdef __linux__
#include <sched.h>
#endif

#include <algorithm>
#include <bit>
#include <cstdio>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

namespace lazuli::dist {

void Processors::add(const Processors& others) {
  for (size_t i = 0; i < std::size(words); i++) words[i] |= others.words[i];
}

int Processors::count() const {
  int all = 0;
  for (const uint64_t word : words) all += std::popcount(word);
  return all;
}

#ifdef __linux__
namespace {

int number_in(int processor, const char* name) {
  const std::string path = "/sys/devices/system/cpu/cpu" + std::to_string(processor) + "/topology/" + name;
  int number = 0;
  if (FILE* file = fopen(path.c_str(), "r")) {
    if (fscanf(file, "%d", &number) != 1) number = 0;
    fclose(file);
  }
  return number;
}

cpu_set_t affinity() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) CPU_ZERO(&set);
  return set;
}

// Neighbours first.
std::vector<int> in_order(const cpu_set_t& set) {
  std::vector<std::tuple<int, int, int>> places;
  for (int i = 0; i < CPU_SETSIZE; i++)
    if (CPU_ISSET(i, &set))
      places.emplace_back(number_in(i, "physical_package_id"), number_in(i, "core_id"), i);
  std::sort(places.begin(), places.end());
  std::vector<int> order;
  for (const auto& place : places) order.push_back(std::get<2>(place));
  return order;
}

}  // namespace

Processors own_processors() {
  Processors own{};
  const cpu_set_t set = affinity();
  for (int i = 0; i < std::min<int>(CPU_SETSIZE, Processors::kMost); i++)
    if (CPU_ISSET(i, &set)) own.set(i);
  return own;
}

bool keep_on_share(int share, int shares) {
  static const std::vector<int> all = in_order(affinity());
  const auto count = int64_t(all.size());
  if (count < shares) return false;
  cpu_set_t kept;
  CPU_ZERO(&kept);
  for (int64_t i = count * share / shares; i < count * (share + 1) / shares; i++)
    CPU_SET(all[size_t(i)], &kept);
  return sched_setaffinity(0, sizeof kept, &kept) == 0;
}

#else

Processors own_processors() {
  Processors own{};
  const int count = std::clamp(int(std::thread::hardware_concurrency()), 1, Processors::kMost);
  for (int i = 0; i < count; i++) own.set(i);
  return own;
}

bool keep_on_share(int, int) { return false; }

#endif

}  // namespace lazuli::dist
