#include "tfaot/cgroup.h"

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

namespace tfaot {
namespace {

bool StartsWith(const std::string& text, const std::string& start) {
  return text.compare(0, start.size(), start) == 0;
}

// Returns whether `item` is in a comma-separated list.
bool Has(const std::string& list, const std::string& item) {
  return ("," + list + ",").find("," + item + ",") != std::string::npos;
}

// Returns the path of this process's group, in version 2 or in version 1's CPU
// hierarchy. Empty if there is none.
std::string Group(const std::string& root, bool second) {
  std::ifstream file(root + "/proc/self/cgroup");
  // "4:cpu,cpuacct:/path", or "0::/path".
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':');
    if (first == line.npos) continue;
    const std::size_t last = line.find(':', first + 1);
    if (last == line.npos) continue;
    const std::string controllers = line.substr(first + 1, last - first - 1);
    if (second ? controllers.empty() : Has(controllers, "cpu")) {
      return line.substr(last + 1);
    }
  }
  return "";
}

double Positive(double limit, double period) {
  return limit > 0 && period > 0 ? limit / period : 0;
}

// Returns the limit that one folder's group sets by itself.
double Allowed(const std::string& folder, bool second) {
  double limit = 0, period = 0;
  if (second) {
    // "200000 100000". "max 100000" doesn't parse, so it sets nothing.
    std::ifstream(folder + "/cpu.max") >> limit >> period;
  } else {
    std::ifstream(folder + "/cpu.cfs_quota_us") >> limit;
    std::ifstream(folder + "/cpu.cfs_period_us") >> period;
  }
  return Positive(limit, period);
}

double Lesser(double a, double b) { return a > 0 && (b <= 0 || a < b) ? a : b; }

}  // namespace

double CgroupCores(const std::string& root) {
  double least = 0;
  std::ifstream mounts(root + "/proc/self/mountinfo");
  // "36 35 98:0 /group /mount/point options... - type source superoptions".
  for (std::string line; std::getline(mounts, line);) {
    const std::size_t dash = line.find(" - ");
    if (dash == line.npos) continue;
    std::istringstream before(line), after(line.substr(dash + 3));
    std::string skipped, top, point, type, options;
    before >> skipped >> skipped >> skipped >> top >> point;
    after >> type >> skipped >> options;
    const bool second = type == "cgroup2";
    if (!second && (type != "cgroup" || !Has(options, "cpu"))) continue;
    std::string group = Group(root, second);
    if (group.empty()) continue;
    // A container can see only some of the groups: those from `top` on. A group
    // outside them appears as `top` itself.
    if (top != "/") {
      group =
          StartsWith(group + "/", top + "/") ? group.substr(top.size()) : "";
    }
    if (group == "/" || StartsWith(group, "/..")) group.clear();
    while (true) {
      least = Lesser(least, Allowed(root + point + group, second));
      if (group.empty()) break;
      group.erase(group.rfind('/'));
    }
  }
  return least;
}

}  // namespace tfaot
