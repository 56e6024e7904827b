// The time of processors that control groups, such as a container's, leave to this process.
#ifndef LAZULI_RUNTIME_QUOTA_H
#define LAZULI_RUNTIME_QUOTA_H

#include <string>

namespace lazuli {

// The least quota, in processors, of the groups that a process is in and of those above them; 0 where none
// has one. `memberships` is a file like /proc/self/cgroup; the groups of versions 1 and 2 are folders under
// `root`.
double processor_quota(const std::string& memberships, const std::string& root);

}  // namespace lazuli

#endif
