// Protects programs in containers: a pool has as many threads as the control
// groups allow cores, for all versions, mounts, and namespaces.
#include "tfaot/cgroup.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/runtime/expect.h"
#include "tfaot/threads.h"

namespace {

using tfaot::CgroupCores;
using Files = std::vector<std::pair<std::string, std::string>>;

// What a machine with these files and group mounts allows.
double Cores(const Files& files) {
  const char* parent = std::getenv("TEST_TMPDIR");
  std::string root = std::string(parent ? parent : "/tmp") + "/cgroup-XXXXXX";
  if (mkdtemp(root.data()) == nullptr) std::abort();
  for (const auto& [path, text] : files) {
    std::filesystem::create_directories(
        std::filesystem::path(root + path).parent_path());
    std::ofstream(root + path) << text;
  }
  const double cores = CgroupCores(root);
  std::filesystem::remove_all(root);
  return cores;
}

const std::string kGroup = "/proc/self/cgroup",
                  kMounts = "/proc/self/mountinfo";

void TestSecondVersion() {
  const std::pair<std::string, std::string> mounts = {
      kMounts,
      "24 30 0:22 / /proc rw - proc proc rw\n"
      "30 24 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n"};
  const auto with = [&](Files files) {
    files.push_back(mounts);
    return Cores(files);
  };
  const std::string top = "/sys/fs/cgroup";
  // In a container, which sees its own group as the root.
  EXPECT(with({{kGroup, "0::/\n"}, {top + "/cpu.max", "150000 100000\n"}}) ==
         1.5);
  EXPECT(with({{kGroup, "0::/\n"}, {top + "/cpu.max", "max 100000\n"}}) == 0);
  EXPECT(with({{kGroup, "0::/\n"}}) == 0);
  EXPECT(with({{kGroup, "0::/\n"}, {top + "/cpu.max", ""}}) == 0);
  EXPECT(with({{kGroup, "0::/\n"}, {top + "/cpu.max", "0 0\n"}}) == 0);
  EXPECT(with({{kGroup, "0::/\n"}, {top + "/cpu.max", "-1 100000\n"}}) == 0);
  // The minimum of a group and those above it.
  for (const auto& [below, above] :
       {std::pair("max", "300000"), std::pair("300000", "max"),
        std::pair("300000", "400000"), std::pair("400000", "300000")}) {
    EXPECT(with({{kGroup, "0::/a/b c/d\n"},
                 {top + "/a/b c/d/cpu.max", below + std::string(" 100000\n")},
                 {top + "/a/cpu.max", above + std::string(" 100000\n")}}) == 3);
  }
  // A group that isn't visible in this namespace.
  EXPECT(with({{kGroup, "0::/../other\n"}, {top + "/cpu.max", "5 2\n"}}) ==
         2.5);
  EXPECT(with({{kGroup, "nonsense\n:\n0\n"}, {top + "/cpu.max", "5 2\n"}}) ==
         0);
  EXPECT(with({{top + "/cpu.max", "5 2\n"}}) == 0);
}

void TestFirstVersion() {
  const std::string at = "/sys/fs/cgroup/cpu,cpuacct";
  const auto mounts = [&](const std::string& top) {
    return std::pair<std::string, std::string>(
        kMounts, "31 30 0:27 " + top +
                     " /sys/fs/cgroup/cpuset rw - cgroup x "
                     "rw,cpuset\n32 30 0:28 " +
                     top + " " + at +
                     " rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n33 32\n");
  };
  const std::pair<std::string, std::string> group = {
      kGroup,
      "5:cpuset:/other\n4:cpu,cpuacct:/docker/abc\n1:name=systemd:/x\n0::/y\n"};
  const Files limits = {{at + "/cpu.cfs_quota_us", "50000\n"},
                        {at + "/cpu.cfs_period_us", "100000\n"}};
  // In a container that sees only its own group, under its full name.
  Files files = limits;
  files.push_back(group);
  files.push_back(mounts("/docker/abc"));
  EXPECT(Cores(files) == 0.5);
  // On the machine itself.
  files = {{at + "/docker/abc/cpu.cfs_quota_us", "200000\n"},
           {at + "/docker/abc/cpu.cfs_period_us", "100000\n"},
           {at + "/cpu.cfs_quota_us", "-1\n"},
           {at + "/cpu.cfs_period_us", "100000\n"},
           group,
           mounts("/")};
  EXPECT(Cores(files) == 2);
  files[0].second = "-1\n";
  EXPECT(Cores(files) == 0);
}

void TestNone() {
  EXPECT(Cores({}) == 0);
  EXPECT(Cores({{kMounts, "- - \n - cgroup2\n1 2 3 / /x - cgroup2 a b\n"}}) ==
         0);
}

// Whole cores, at least one, and at most as many as the machine has.
void TestThreads() {
  const int cores = tfaot::Threads::Cores();
  EXPECT(tfaot::Threads::Cores(0) == cores || CgroupCores() > 0);
  EXPECT(tfaot::Threads::Cores(0.5) == 1);
  EXPECT(tfaot::Threads::Cores(1.9) == 1);
  EXPECT(tfaot::Threads::Cores(1e9) == tfaot::Threads::Cores(0));
  EXPECT(cores >= 1 && cores <= tfaot::Threads::Cores(0));
}

}  // namespace

int main() {
  TestSecondVersion();
  TestFirstVersion();
  TestNone();
  TestThreads();
  return failed == 0 ? 0 : 1;
}
