import unittest
from pathlib import Path

from tests.tools.bazelw.scratch import ScratchTest
from tools.bazelw import redirect


class RedirectTest(ScratchTest):
    def setUp(self) -> None:
        super().setUp()
        self.tree = self.folder / "part/prefix"
        for path, name in (("rules/cc", "rules_cc"), ("rules/java", "rules_java"), ("tools/skylib", "bazel_skylib")):
            folder = self.tree / "usr/share/bazel" / path
            folder.mkdir(parents=True)
            (folder / "MODULE.bazel").write_text(f'# x\nmodule(\n    name = "{name}",\n    version = "1",\n)\n')
        (self.tree / "usr/share/bazel/embedded_tools").mkdir()
        (self.tree / "usr/share/bazel/embedded_tools/MODULE.bazel").write_text('module(name = "bazel_tools")\n')

        self.build = self.tree / "usr/share/bazel/rules/cc/cc/compiler/BUILD"
        self.build.parent.mkdir(parents=True)
        self.build.write_text("# top\n")

    def written(self) -> "list[str]":
        redirect.write(self.folder / "part", Path("/final"))
        return redirect.rc_file(self.folder / "part").read_text().splitlines()

    def test_rule_sets_are_found_by_their_own_names(self) -> None:
        """Protects against a hardcoded list of where Debian puts each rule set."""
        self.assertEqual(sorted(redirect.rule_sets(self.tree)), ["bazel_skylib", "rules_cc", "rules_java"])

    def test_modules_work_with_and_without_bzlmod(self) -> None:
        """Protects both setups: each complete module is redirected as a module and as a repository."""
        lines = self.written()
        for name, path in (("rules_cc", "/final/prefix/usr/share/bazel/rules/cc"), ("abseil-cpp", "/final/abseil-cpp")):
            self.assertIn(f"common --override_module={name}={path}", lines)
            self.assertIn(f"common --override_repository={name}={path}", lines)
        java = "/final/prefix/usr/share/bazel/rules/java"
        self.assertIn(f"common --override_repository=rules_java_builtin={java}", lines)
        self.assertNotIn(f"common --override_module=rules_java_builtin={java}", lines)

    def test_stubs_are_modules_only(self) -> None:
        """Protects a WORKSPACE's own protobuf or googletest from being replaced by an empty one."""
        lines = self.written()
        self.assertIn("common --override_module=protobuf=/final/stubs/protobuf", lines)
        self.assertFalse([line for line in lines if "override_repository=protobuf" in line])
        self.assertIn("module_extension", (self.folder / "part/stubs/buildozer/buildozer_binary.bzl").read_text())

    def test_every_override_is_in_the_graph(self) -> None:
        """Protects against Bazel's rejection of an override of a module that no module names."""
        named = self.folder / "part/stubs/buildozer/MODULE.bazel"
        overridden = {line.split("=")[1] for line in self.written() if "--override_module=" in line}
        for name in overridden - {"buildozer"}:
            self.assertIn(f'bazel_dep(name = "{name}"', named.read_text())

    def test_nothing_gets_into_the_lock_file(self) -> None:
        """Protects the user's MODULE.bazel.lock from paths of this machine."""
        self.assertIn("common --lockfile_mode=off", self.written())

    def test_supplement_once(self) -> None:
        """Protects the setting that Abseil selects on and Debian's rules_cc lacks. A second call changes nothing."""
        for _ in range(2):
            redirect.supplement(self.tree)
        self.assertEqual(self.build.read_text().count('name = "emscripten"'), 1)


if __name__ == "__main__":
    unittest.main()
