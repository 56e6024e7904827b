// Collectives by memory that all members of a group see.
#ifndef LAZULI_DISTRIBUTED_SHARED_MEMORY_H
#define LAZULI_DISTRIBUTED_SHARED_MEMORY_H

#include <memory>
#include <vector>

#include "collectives/group.h"

namespace lazuli::dist {

// Memory of each member, by rank of the group: it begins at a page and is zero before anybody uses it.
using Memories = std::vector<std::shared_ptr<void>>;

// Bytes of a member's memory; 0 where it is of no use.
size_t shared_memory_size();
// `messages` carries what a member sends to one other.
std::unique_ptr<Transport> make_shared_memory(const Group& group, const char* name,
                                              std::unique_ptr<Transport> messages, Memories memories);

}  // namespace lazuli::dist

#endif
