// Memory of one host that its processes share by MPI: a shared window.
#include <sys/statvfs.h>

#include <algorithm>
#include <cstring>

#include "collectives/mpi.h"

namespace lazuli::dist {
namespace {

constexpr uintptr_t kPage = 4096;

std::vector<MpiHandle> windows;

// True if there is room for so many bytes where Open MPI's shared memory lies. Where it finds none for
// itself, some of its processes wait for ever.
bool has_room(uint64_t bytes) {
  struct statvfs folder;
  return statvfs("/dev/shm", &folder) != 0 || uint64_t(folder.f_bavail) * folder.f_frsize >= bytes;
}

}  // namespace

bool agree(Group& group, bool good) {
  const std::string all = group.gather(std::string(1, char(good)));
  return std::count(all.begin(), all.end(), char(true)) == group.size();
}

Memories share_mpi_memory(Group& group, MpiHandle comm) {
  const MpiLibrary& mpi = *mpi_library();
  // A multiple of pages, so that all members' memory begins alike.
  const size_t size = (shared_memory_size() + kPage - 1) / kPage * kPage, bytes = size + kPage;
  // Groups of other members may ask at the same time.
  if (!agree(group, size > 0 && has_room(bytes * uint64_t(group.world().size())))) return {};
  // The call may outlast this function, if a rank is gone.
  struct Window {
    MpiHandle handle = nullptr;
    void* base = nullptr;
    int result = 0;
  };
  const auto made = std::make_shared<Window>();
  std::unique_lock turn(group.world().turn);
  call_mpi(group, [=, &mpi] {
    made->result = mpi.win_allocate_shared(intptr_t(bytes), 1, mpi.no_info, comm, &made->base, &made->handle);
    return 0;
  });
  const MpiHandle window = made->handle;
  bool good = made->result == 0;
  Memories memories;
  for (int r = 0; r < group.size() && good; r++) {
    intptr_t length = 0;
    int unit = 0;
    void* theirs = nullptr;
    good = mpi.win_shared_query(window, r, &length, &unit, &theirs) == 0 && theirs;
    const uintptr_t begin = (reinterpret_cast<uintptr_t>(theirs) + kPage - 1) / kPage * kPage;
    // The window owns it.
    memories.emplace_back(reinterpret_cast<void*>(begin), [](void*) {});
  }
  turn.unlock();
  if (good) std::memset(memories[size_t(group.rank())].get(), 0, size);
  // A window that only some have is never freed: that would wait for the others.
  if (!agree(group, good)) return {};
  windows.push_back(window);
  return memories;
}

void free_mpi_memory() {
  for (MpiHandle& window : windows) mpi_library()->win_free(&window);
  windows.clear();
}

}  // namespace lazuli::dist
