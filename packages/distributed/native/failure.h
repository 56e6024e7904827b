// A failure that names a rank. It becomes a DistributedError of the operation that met it.
#ifndef LAZULI_DISTRIBUTED_FAILURE_H
#define LAZULI_DISTRIBUTED_FAILURE_H

#include <stdexcept>
#include <string>

namespace lazuli::dist {

struct Failure : std::runtime_error {
  Failure(int rank, const std::string& fact)
      : std::runtime_error("rank " + std::to_string(rank) + " " + fact), rank(rank) {}
  // A failure that another rank told of, in its words.
  Failure(int rank, const std::string& text, bool) : std::runtime_error(text), rank(rank) {}
  int rank;
};

}  // namespace lazuli::dist

#endif
