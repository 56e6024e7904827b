// The groups of this process, by the numbers that JavaScript and the parameters of kernels know them by.
#ifndef LAZULI_DISTRIBUTED_GROUPS_H
#define LAZULI_DISTRIBUTED_GROUPS_H

#include "collectives/group.h"

namespace lazuli::dist {

int64_t add_group(std::shared_ptr<Group> group);
// @throws std::runtime_error where there is none
std::shared_ptr<Group> group_at(int64_t number);
void forget_group(int64_t number);
void forget_groups(const World& world);
// A number that is equal for equal shapes.
uint32_t shape_number(const int64_t* shape, int ndim);

}  // namespace lazuli::dist

#endif
