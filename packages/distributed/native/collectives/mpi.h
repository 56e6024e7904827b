// Messages by MPI, and memory.
#ifndef LAZULI_DISTRIBUTED_MPI_H
#define LAZULI_DISTRIBUTED_MPI_H

#include <functional>

#include "collectives/exchange.h"
#include "collectives/mpi_library.h"
#include "collectives/shared_memory.h"

namespace lazuli::dist {

// `comm` has all members of the job, by their ranks.
std::unique_ptr<Exchange> make_mpi_exchange(const Group& group, MpiHandle comm);
// Waits for a call that cannot be given up, for as long as all ranks are there.
void call_mpi(const Group& group, std::function<int()> call);
// Memory that MPI shares among the members of `comm`, who are those of the group; none where it cannot. They
// all call it. It stays until free_mpi_memory.
Memories share_mpi_memory(Group& group, MpiHandle comm);
void free_mpi_memory();

}  // namespace lazuli::dist

#endif
