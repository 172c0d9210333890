// How many of the machine's cores a container gives a process.
#ifndef TFAOT_CGROUP_H_
#define TFAOT_CGROUP_H_

#include <string>

namespace tfaot {

// Returns the CPU time, in cores, that this process's control groups allow it:
// the minimum of its own group and those above it, or 0 for no limit. Reads
// groups of both versions below `root`, which is empty except in tests. Files
// that can't be read set no limit. Throws std::bad_alloc.
double CgroupCores(const std::string& root = "");

}  // namespace tfaot

#endif  // TFAOT_CGROUP_H_
