#include "machine/memory.h"

#include <sys/mman.h>
#include <unistd.h>

namespace lazuli::machine {

Pages::~Pages() {
  if (address_) munmap(address_, size_);
}

Pages Pages::writable(size_t bytes) {
  const auto page = size_t(sysconf(_SC_PAGESIZE));
  Pages made;
  made.size_ = (bytes + page - 1) / page * page;
  void* address = mmap(nullptr, made.size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address != MAP_FAILED) made.address_ = address;
  return made;
}

bool Pages::seal() {
  if (!address_) return false;
  if (mprotect(address_, size_, PROT_READ | PROT_EXEC) == 0) return true;
  munmap(address_, size_);
  address_ = nullptr;
  return false;
}

}  // namespace lazuli::machine
