// The quota of processors, of control groups as the kernel's files show them.
#include "runtime/quota.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/harness.h"

namespace lazuli::test {
namespace {

namespace fs = std::filesystem;

void write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

LZ_TEST(quotas_of_control_groups) {
  std::string name = (fs::temp_directory_path() / "lazuli-quota-XXXXXX").string();
  check(mkdtemp(name.data()) != nullptr, "a folder for the groups");
  const fs::path root = name, self = root / "self";
  const auto quota = [&](const std::string& memberships) {
    write(self, memberships);
    return processor_quota(self.string(), root.string());
  };
  check(quota("") == 0 && quota("0::/\n") == 0 && quota("nonsense\n") == 0, "no group");
  check(processor_quota((root / "missing").string(), root.string()) == 0, "no file");
  write(root / "two/inner/cpu.max", "max 100000\n");
  check(quota("0::/two/inner\n") == 0, "version 2, no quota");
  write(root / "two/cpu.max", "150000 100000\n");
  check(quota("0::/two/inner\n") == 1.5, "version 2, the quota of the group above");
  write(root / "two/inner/cpu.max", "50000 100000\n");
  check(quota("0::/two/inner\n") == 0.5, "version 2, the least");
  write(root / "cpu.max", "400000 100000\n");
  check(quota("0::/as/the/host/sees/it\n") == 4, "version 2, the root where the group is not there");
  fs::remove(root / "cpu.max");
  write(root / "cpu/one/cpu.cfs_period_us", "100000\n");
  write(root / "cpu/one/cpu.cfs_quota_us", "-1\n");
  check(quota("5:cpu,cpuacct:/one\n4:memory:/two\n") == 0, "version 1, no quota");
  write(root / "cpu/one/cpu.cfs_quota_us", "200000\n");
  check(quota("5:cpu,cpuacct:/one\n4:memory:/two\n") == 2, "version 1");
  fs::remove_all(root);
}

}  // namespace
}  // namespace lazuli::test
