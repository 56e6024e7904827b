// Messages by MPI.
#ifndef LAZULI_DISTRIBUTED_MPI_H
#define LAZULI_DISTRIBUTED_MPI_H

#include "collectives/exchange.h"
#include "collectives/mpi_library.h"

namespace lazuli::dist {

// `comm` has all members of the job, by their ranks.
std::unique_ptr<Exchange> make_mpi_exchange(const Group& group, MpiHandle comm);

}  // namespace lazuli::dist

#endif
