#include "collectives/mpi_library.h"

#include <dlfcn.h>

#include <stdexcept>

namespace lazuli::dist {
namespace {

bool open(MpiLibrary& it) {
  void* opened = nullptr;
  for (const char* name : {"libmpi.so.40", "libmpi.so", "libmpi.40.dylib", "libmpi.dylib"})
    if ((opened = dlopen(name, RTLD_NOW | RTLD_GLOBAL))) break;
  if (!opened) return false;
  bool there = true;
  const auto find = [&](auto& symbol, const std::string& name) {
    symbol = reinterpret_cast<std::remove_reference_t<decltype(symbol)>>(dlsym(opened, name.c_str()));
    there = there && symbol;
  };
  find(it.initialized, "MPI_Initialized");
  find(it.init_thread, "MPI_Init_thread");
  find(it.finalize, "MPI_Finalize");
  find(it.comm_rank, "MPI_Comm_rank");
  find(it.comm_size, "MPI_Comm_size");
  find(it.comm_dup, "MPI_Comm_dup");
  find(it.comm_group, "MPI_Comm_group");
  find(it.comm_create_group, "MPI_Comm_create_group");
  find(it.group_incl, "MPI_Group_incl");
  find(it.group_free, "MPI_Group_free");
  find(it.comm_set_errhandler, "MPI_Comm_set_errhandler");
  find(it.error_string, "MPI_Error_string");
  find(it.op_create, "MPI_Op_create");
  find(it.type_contiguous, "MPI_Type_contiguous");
  find(it.type_commit, "MPI_Type_commit");
  find(it.test, "MPI_Test");
  find(it.isend, "MPI_Isend");
  find(it.irecv, "MPI_Irecv");
  find(it.allreduce, "MPI_Allreduce");
  find(it.allgather, "MPI_Allgather");
  find(it.reduce_scatter_block, "MPI_Reduce_scatter_block");
  find(it.alltoall, "MPI_Alltoall");
  find(it.bcast, "MPI_Bcast");
  find(it.barrier, "MPI_Barrier");
  find(it.win_allocate_shared, "MPI_Win_allocate_shared");
  find(it.win_shared_query, "MPI_Win_shared_query");
  find(it.win_free, "MPI_Win_free");
  find(it.world, "ompi_mpi_comm_world");
  find(it.errors_return, "ompi_mpi_errors_return");
  find(it.no_info, "ompi_mpi_info_null");
  find(it.byte, "ompi_mpi_byte");
  find(it.reductions[0], "ompi_mpi_op_sum");
  find(it.reductions[1], "ompi_mpi_op_max");
  find(it.reductions[2], "ompi_mpi_op_min");
  // By dtype; it knows no booleans and halves as ours are.
  static const char* const names[] = {nullptr,  "uint8_t", "uint16_t", "uint32_t",       "uint64_t",
                                      "int8_t", "int16_t", "int32_t",  "int64_t",        nullptr,
                                      "float",  nullptr,   "double",   "c_float_complex"};
  for (int i = 0; i < 14; i++)
    if (names[i]) find(it.types[i], std::string("ompi_mpi_") + names[i]);
  return there;
}

}  // namespace

void MpiLibrary::check(int code) const {
  if (code == 0) return;
  char text[512] = "";
  int length = 0;
  error_string(code, text, &length);
  throw std::runtime_error(std::string("MPI failed: ") + text);
}

// Leaked, like what is loaded.
MpiLibrary* mpi_library() {
  static MpiLibrary* it = [] {
    auto* made = new MpiLibrary{};
    if (open(*made)) return made;
    delete made;
    return static_cast<MpiLibrary*>(nullptr);
  }();
  return it;
}

}  // namespace lazuli::dist
