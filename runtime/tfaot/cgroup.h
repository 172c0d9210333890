// How much of the machine's cores a container gives a process.
#ifndef TFAOT_CGROUP_H_
#define TFAOT_CGROUP_H_

#include <string>

namespace tfaot {

// The cores' worth of time that this process's control groups allow it, the
// least of its own and of those above it; 0 if they allow any. Groups of either
// version are read, below `root`, which is empty but in tests. What cannot be
// read allows any. Throws std::bad_alloc.
double CgroupCores(const std::string& root = "");

}  // namespace tfaot

#endif  // TFAOT_CGROUP_H_
