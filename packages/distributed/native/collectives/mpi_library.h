// MPI's library, opened when it is first asked for: Open MPI's, whose constants are symbols and need no
// headers.
#ifndef LAZULI_DISTRIBUTED_MPI_LIBRARY_H
#define LAZULI_DISTRIBUTED_MPI_LIBRARY_H

#include <cstdint>
#include <string>

namespace lazuli::dist {

using MpiHandle = void*;
using MpiFunction = void (*)(void* in, void* inout, int* count, MpiHandle* type);

// Room for Open MPI's; messages are not asked about.
struct MpiStatus {
  int fields[8];
};

struct MpiLibrary {
  int (*initialized)(int*);
  int (*init_thread)(int*, char***, int, int*);
  int (*finalize)();
  int (*comm_rank)(MpiHandle, int*);
  int (*comm_size)(MpiHandle, int*);
  int (*comm_dup)(MpiHandle, MpiHandle*);
  int (*comm_group)(MpiHandle, MpiHandle*);
  int (*comm_create_group)(MpiHandle, MpiHandle, int, MpiHandle*);
  int (*group_incl)(MpiHandle, int, const int*, MpiHandle*);
  int (*group_free)(MpiHandle*);
  int (*comm_set_errhandler)(MpiHandle, MpiHandle);
  int (*error_string)(int, char*, int*);
  int (*op_create)(MpiFunction, int, MpiHandle*);
  int (*type_contiguous)(int, MpiHandle, MpiHandle*);
  int (*type_commit)(MpiHandle*);
  int (*test)(MpiHandle*, int*, MpiStatus*);
  int (*isend)(const void*, int, MpiHandle, int, int, MpiHandle, MpiHandle*);
  int (*irecv)(void*, int, MpiHandle, int, int, MpiHandle, MpiHandle*);
  int (*allreduce)(const void*, void*, int, MpiHandle, MpiHandle, MpiHandle);
  int (*allgather)(const void*, int, MpiHandle, void*, int, MpiHandle, MpiHandle);
  int (*reduce_scatter_block)(const void*, void*, int, MpiHandle, MpiHandle, MpiHandle);
  int (*alltoall)(const void*, int, MpiHandle, void*, int, MpiHandle, MpiHandle);
  int (*bcast)(void*, int, MpiHandle, int, MpiHandle);
  int (*barrier)(MpiHandle);
  int (*win_allocate_shared)(intptr_t, int, MpiHandle, MpiHandle, void*, MpiHandle*);
  int (*win_shared_query)(MpiHandle, int, intptr_t*, int*, void*);
  int (*win_free)(MpiHandle*);
  MpiHandle world, errors_return, no_info, byte;
  MpiHandle types[14], reductions[3];

  // @throws std::runtime_error for a code that is not success
  void check(int code) const;
};

// Null where there is none.
MpiLibrary* mpi_library();

}  // namespace lazuli::dist

#endif
