// Memory of one host that its processes share by MPI: a shared window.
#include <algorithm>
#include <cstring>

#include "collectives/mpi.h"

namespace lazuli::dist {
namespace {

constexpr uintptr_t kPage = 4096;

std::vector<MpiHandle> windows;

}  // namespace

Memories share_mpi_memory(Group& group, MpiHandle comm) {
  const MpiLibrary& mpi = *mpi_library();
  // A multiple of pages, so that all members' memory begins alike.
  const size_t size = (shared_memory_size() + kPage - 1) / kPage * kPage;
  MpiHandle window = nullptr;
  void* base = nullptr;
  bool good =
      size > 0 && mpi.win_allocate_shared(intptr_t(size + kPage), 1, mpi.no_info, comm, &base, &window) == 0;
  Memories memories;
  if (good) windows.push_back(window);
  for (int r = 0; r < group.size() && good; r++) {
    intptr_t bytes = 0;
    int unit = 0;
    void* theirs = nullptr;
    good = mpi.win_shared_query(window, r, &bytes, &unit, &theirs) == 0 && theirs;
    const uintptr_t begin = (reinterpret_cast<uintptr_t>(theirs) + kPage - 1) / kPage * kPage;
    // The window owns it.
    memories.emplace_back(reinterpret_cast<void*>(begin), [](void*) {});
  }
  if (good) std::memset(memories[size_t(group.rank())].get(), 0, size);
  const std::string all = group.gather(std::string(1, char(good)));
  if (std::count(all.begin(), all.end(), char(true)) != group.size()) return {};
  return memories;
}

void free_mpi_memory() {
  for (MpiHandle& window : windows) mpi_library()->win_free(&window);
  windows.clear();
}

}  // namespace lazuli::dist
