#include "collectives/group.h"
namespace lazuli::dist {
std::unique_ptr<Transport> make_shared_memory(Group&) { return nullptr; }
std::unique_ptr<Transport> make_mpi(Group&) { return nullptr; }
bool mpi_is_there() { return false; }
}  // namespace lazuli::dist
