#include "groups.h"

namespace lazuli::dist {
namespace {

// Leaked, so that no destructor runs while a thread still uses it.
struct Table {
  std::mutex guard;
  std::vector<std::shared_ptr<Group>> groups;
};
Table& table() {
  static Table* it = new Table;
  return *it;
}

}  // namespace

int64_t add_group(std::shared_ptr<Group> group) {
  std::lock_guard lock(table().guard);
  table().groups.push_back(std::move(group));
  return int64_t(table().groups.size()) - 1;
}

std::shared_ptr<Group> group_at(int64_t number) {
  std::lock_guard lock(table().guard);
  const auto& groups = table().groups;
  if (number < 0 || number >= int64_t(groups.size()) || !groups[size_t(number)])
    throw std::runtime_error(
        "the group was closed, or belongs to another process or to a job that this one has left");
  return groups[size_t(number)];
}

void forget_group(int64_t number) {
  // Freed outside of the lock, where no thread runs an operation of it any more.
  const auto group = group_at(number);
  std::lock_guard lock(table().guard);
  table().groups[size_t(number)] = nullptr;
}

void forget_groups(const World& world) {
  std::lock_guard lock(table().guard);
  for (auto& group : table().groups)
    if (group && &group->world() == &world) group = nullptr;
}

uint32_t shape_number(const int64_t* shape, int ndim) {
  // Of what has no kernel, src/collectives.ts has the same.
  uint32_t hash = 2166136261u;
  for (int i = 0; i < ndim; i++) hash = (hash ^ uint32_t(shape[i])) * 16777619u + uint32_t(ndim);
  return hash;
}

}  // namespace lazuli::dist
