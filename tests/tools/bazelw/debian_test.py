import hashlib
import os
import subprocess
import unittest
from pathlib import Path
from unittest import mock

from tests.tools.bazelw.scratch import ScratchTest
from tools.bazelw import debian, packages
from tools.bazelw.errors import WayFailed

TARGETS = """\
http://mirror.example/debian-security/ bookworm-security main
http://mirror.example/debian/ bookworm main
http://mirror.example/debian/ bookworm contrib
http://mirror.example/debian/ bookworm-updates main
https://other.example/apt/ cloud-bookworm main
https://second.example/debian/ trixie main
"""

# Stands in for apt-get: `download` writes its arguments' content to the current folder, and `source` an archive.
APT_GET = r"""
echo "$@" >> "$LOG"
case "$*" in
*indextargets*) echo "http://mirror.example/debian/ bookworm main" ;;
*update*) test -z "$FAIL" || { echo "E: Failed to fetch it"; exit 100; } ;;
*--download-only*) ;;
*download*)
  test -z "$FAIL" || { echo "E: Unable to fetch some archives"; exit 100; } >&2
  shift 2; for package; do printf "%s" "$CONTENT" > "${package%%=*}_1_amd64.deb"; done
  ;;
esac
"""


class DebianTest(ScratchTest):
    def setUp(self) -> None:
        super().setUp()
        self.program("bin/apt-get", APT_GET)
        for tool in ("apt-cache", "apt-config", "dpkg-deb"):
            self.program(f"bin/{tool}", "")
        path = f"{self.folder}/bin{os.pathsep}{os.environ['PATH']}"
        log = self.folder / "log"
        self.environ = {**os.environ, "PATH": path, "LOG": str(log), "CONTENT": "right"}
        keyring = self.folder / "debian.gpg"
        keyring.write_bytes(b"")
        for patch in (mock.patch.dict(os.environ, self.environ), mock.patch.object(debian, "_KEYRING", keyring)):
            patch.start()
            self.addCleanup(patch.stop)

    def package(self, name: str) -> packages.Package:
        digest = hashlib.sha256(b"right").hexdigest()
        return packages.Package(name, "1", f"pool/{name}_1_amd64.deb", 5, digest, (), ())

    def asked(self, word: str) -> "list[str]":
        log = self.folder / "log"
        return [line for line in log.read_text().splitlines() if word in line] if log.exists() else []

    def test_mirrors_come_from_the_machine(self) -> None:
        """Protects against a mirror's name in the code, and against asking archives that never carry Debian's suites."""
        self.assertEqual(debian.mirrors(TARGETS), ["http://mirror.example/debian/", "https://second.example/debian/"])

    def test_only_the_suite_is_swapped(self) -> None:
        """Protects that packages and sources come from the machine's own mirror and are signed by Debian's keys."""
        self.assertEqual(
            debian.sources_list("http://mirror.example/debian/", Path("/keys.gpg")),
            "deb [signed-by=/keys.gpg] http://mirror.example/debian/ forky main\n"
            "deb-src [signed-by=/keys.gpg] http://mirror.example/debian/ forky main\n",
        )

    def test_machine_without_keyring(self) -> None:
        """Protects against packages that anyone could have signed: without Debian's keys, the way fails, and says so."""
        with (
            mock.patch.object(debian, "_KEYRING", self.folder / "missing.gpg"),
            self.assertRaisesRegex(WayFailed, "no .*missing.gpg, so it can't check.*install debian-archive-keyring"),
        ):
            debian.lists(self.folder, self.progress)
        self.assertEqual(self.asked("update"), [])

    def test_no_mirror(self) -> None:
        """Protects users of another system's apt: the error is useful."""
        with mock.patch.object(debian, "mirrors", lambda _: []), self.assertRaisesRegex(WayFailed, "no Debian mirror"):
            debian.lists(self.folder, self.progress)

    def test_failing_mirror_tells_why(self) -> None:
        """Protects users without network: the error is useful."""
        with mock.patch.dict(os.environ, FAIL="1"), self.assertRaisesRegex(WayFailed, "forky: .*Failed to fetch it"):
            debian.lists(self.folder, self.progress)

    def test_machine_without_apt(self) -> None:
        """Protects other systems: the way fails with a reason instead of a traceback."""
        with (
            mock.patch.dict(os.environ, PATH=str(self.folder)),
            self.assertRaisesRegex(WayFailed, "this machine has no apt-get"),
        ):
            debian.set_up(self.folder, "7.7.1", self.progress)

    def test_packages_that_are_there_are_not_downloaded(self) -> None:
        """Protects what an interrupted call downloaded, and removes what is no longer on any list."""
        apt = debian._private_apt(self.folder / "apt")
        wanted = [self.package("one"), self.package("two")]
        debs = self.folder / "apt/debs"
        (debs / "one_1_amd64.deb").write_text("right")
        (debs / "two_1_amd64.deb").write_text("par")
        (debs / "old_0_amd64.deb").write_text("old")
        self.assertEqual(
            debian.download(apt, wanted, self.progress), [debs / "one_1_amd64.deb", debs / "two_1_amd64.deb"]
        )
        self.assertEqual(len(self.asked("download")), 1)
        self.assertIn("two=1", self.asked("download")[0])
        self.assertNotIn("one=1", self.asked("download")[0])
        self.assertEqual(sorted(path.name for path in debs.iterdir()), ["one_1_amd64.deb", "two_1_amd64.deb"])
        debian.download(apt, wanted, self.progress)
        self.assertEqual(len(self.asked("download")), 1)

    def test_wrong_package_is_refused_and_removed(self) -> None:
        """Protects against unpacking a file that the signed list doesn't contain."""
        apt = debian._private_apt(self.folder / "apt")
        apt.environ["CONTENT"] = "wrong"
        with self.assertRaisesRegex(WayFailed, "one doesn't match the signed list"):
            debian.download(apt, [self.package("one")], self.progress)
        self.assertEqual(list((self.folder / "apt/debs").iterdir()), [])

    def test_failed_download_tells_why(self) -> None:
        """Protects users whose network ends in the middle: the error has apt's own words."""
        apt = debian._private_apt(self.folder / "apt")
        apt.environ["FAIL"] = "1"
        with self.assertRaisesRegex(WayFailed, "apt-get failed: .*Unable to fetch some archives"):
            debian.download(apt, [self.package("one")], self.progress)

    def test_suite_without_the_source(self) -> None:
        """Protects users when the suite has moved on: the error names what it no longer has."""
        apt = debian._private_apt(self.folder / "apt")
        with self.assertRaisesRegex(WayFailed, "the Debian suite has no source archive of Abseil"):
            debian._abseil_source(apt, self.progress)

    def test_private_apt_leaves_the_system_alone(self) -> None:
        """Protects the machine: apt writes only to folders in the cache folder, and none of its hooks run."""
        machine = 'Acquire::http::Proxy "http://proxy.example:3128/";\nDir::Cache "var/cache/apt";\n'
        machine += 'APT::Update::Post-Invoke:: "rm -f /var/cache/apt/*.bin";\n'
        conf = debian.apt_conf(machine, self.folder / "apt")
        self.assertIn("proxy.example", conf)
        self.assertNotIn("Post-Invoke", conf)
        self.assertNotIn("var/cache/apt", conf)
        for key in ("Dir::State", "Dir::State::lists", "Dir::State::status", "Dir::Cache", "Dir::Cache::archives"):
            with self.subTest(key):
                self.assertRegex(conf, rf'(?m)^{key} "{self.folder}/apt')

    def test_nothing_of_the_machine_weakens_a_check(self) -> None:
        """Protects against packages from strangers: a setting that disables checks is dropped, however it is spelled."""
        machine = """\
Acquire "";
Acquire::http::Proxy "http://proxy.example:3128/";
ACQUIRE::HTTPS::mirror.example::CaInfo "/etc/own.pem";
Acquire::AllowInsecureRepositories "1";
acquire::allowinsecurerepositories "true";
Acquire::AllowDowngradeToInsecureRepositories "yes";
Acquire::AllowWeakRepositories "1";
Acquire::Check-Valid-Until "0";
Acquire::https::Verify-Peer "false";
Acquire::HTTPS::mirror.example::verify-HOST "false";
Acquire::gpgv::Options:: "--ignore-time-conflict";
APT::Get::AllowUnauthenticated "true";
apt::get::allowunauthenticated "true";
APT::Update::Pre-Invoke:: "touch /hooked";
apt::update::pre-invoke:: "touch /hooked";
dpkg::Pre-Invoke:: "touch /hooked";
Dir::Bin::methods::gpgv "/bin/true";
DIR::ETC::TRUSTED "/etc/everyone.gpg";
"""
        conf = debian.apt_conf(machine, self.folder / "apt")
        # apt ignores the case of a key, and the last value counts.
        values = {line.partition(" ")[0].lower(): line.partition(" ")[2] for line in conf.splitlines()}
        self.assertEqual(values["acquire::http::proxy"], '"http://proxy.example:3128/";')
        self.assertEqual(values["acquire::check-valid-until"], '"0";')
        self.assertEqual(values["acquire::https::mirror.example::cainfo"], '"/etc/own.pem";')
        self.assertEqual(values["apt::get::allowunauthenticated"], '"false";')
        for key in ("insecure", "weak", "downgradetoinsecure"):
            self.assertEqual(values[f"acquire::allow{key}repositories"], '"false";')
        for key in ("acquire::https::verify-peer", "acquire::https::verify-host"):
            self.assertEqual(values[key], '"true";')
        for text in ("hooked", "ignore-time-conflict", "/bin/true", "everyone", "mirror.example::verify"):
            self.assertNotIn(text, conf)

    def test_damaged_source_is_removed(self) -> None:
        """Protects the next call: an archive that can't be unpacked is reported as damaged, and downloaded again."""
        (self.folder / "abseil-1/absl").mkdir(parents=True)
        (self.folder / "abseil-1/absl/noise").write_bytes(os.urandom(100_000))
        for flag, name in (("-czf", "a.tar.gz"), ("-cJf", "a.tar.xz"), ("-cf", "a.tar")):
            archive = self.folder / name
            for damage in (lambda data: data[:5000], lambda data: data[:2000] + bytes(3000), lambda data: b"<html>"):
                with self.subTest(name):
                    subprocess.run(["tar", flag, name, "abseil-1"], cwd=self.folder, check=True)
                    archive.write_bytes(damage(archive.read_bytes()))
                    with self.assertRaisesRegex(WayFailed, f"{name} is damaged; .* downloads it again"):
                        debian._unpack_source(archive, self.folder / "abseil-cpp")
                    self.assertFalse(archive.exists())

    def test_other_bazel_in_the_suite_is_refused(self) -> None:
        """Protects builds when the suite has moved on to another Bazel."""
        chosen = packages.Package("bazel-bootstrap", "8.1.0+ds-1", "pool/b_1_amd64.deb", 5, "", (), ())
        with (
            mock.patch.object(packages, "bazel", lambda _: [chosen]),
            self.assertRaisesRegex(WayFailed, r"forky has Bazel 8\.1\.0 now, which isn't compatible with 7\.7\.1"),
        ):
            debian.set_up(self.folder, "7.7.1", self.progress)

    def test_abseil_has_one_top_folder(self) -> None:
        """Protects the path that the redirection names."""
        (self.folder / "abseil-1/absl").mkdir(parents=True)
        subprocess.run(["tar", "-czf", "a.tar.gz", "abseil-1"], cwd=self.folder, check=True)
        debian._unpack_source(self.folder / "a.tar.gz", self.folder / "abseil-cpp")
        self.assertTrue((self.folder / "abseil-cpp/absl").is_dir())
        self.assertFalse((self.folder / "abseil-cpp.part").exists())
        (self.folder / "other").mkdir()
        subprocess.run(["tar", "-czf", "b.tar.gz", "abseil-1", "other"], cwd=self.folder, check=True)
        with self.assertRaisesRegex(WayFailed, "b.tar.gz has 2 top-level folders instead of one"):
            debian._unpack_source(self.folder / "b.tar.gz", self.folder / "second")


if __name__ == "__main__":
    unittest.main()
