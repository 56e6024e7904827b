// Messages by MPI, and memory.
#ifndef LAZULI_DISTRIBUTED_MPI_H
#define LAZULI_DISTRIBUTED_MPI_H

#include <functional>

#include "collectives/exchange.h"
#include "collectives/mpi_library.h"
#include "collectives/shared_memory.h"

namespace lazuli::dist {

// MPI's means for the members of a group, who could free them only all together: they stay until the end, for
// one group of these members after another.
struct MpiMeans {
  MpiHandle comm = nullptr;  // of the members, by their ranks in the group
  int uses = 0;              // groups that had them before, which all members count
  bool asked = false;        // for memory
  Memories memories;         // that they share; none where they do not
};

// `is_far`: some members are on other hosts.
std::unique_ptr<Exchange> make_mpi_exchange(const Group& group, std::shared_ptr<MpiMeans> means, bool is_far);
// Waits for a call that cannot be given up, for as long as all ranks are there. No other thread of this
// process is in MPI: the caller has the world's turn.
void call_mpi(const Group& group, std::function<int()> call);
// Memory that MPI shares among the members of `comm`, who are those of the group; none where it cannot. They
// all call it. It stays until free_mpi_memory.
Memories share_mpi_memory(Group& group, MpiHandle comm);
void free_mpi_memory();
// True where it is so for all members, who all ask.
bool agree(Group& group, bool good);

}  // namespace lazuli::dist

#endif
