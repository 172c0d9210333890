"""A release: what its archives contain, what its notes say, and what stops it."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import unittest
from pathlib import Path

from tools.release import archive, notes, prep, registry, release
from tools.release.errors import ReleaseError

ROOT = Path(os.path.realpath(prep.__file__)).parents[2]
FILES = {
    "MODULE.bazel": 'module(\n    name = "rules_tfaot",\n    version = "1.2.3",\n)\n',
    "CHANGELOG.md": "# Changelog\n\n## [Unreleased]\n\n## [1.2.3] - 2026-01-02\n\n- A fix.\n\n## [1.2.2] - 2026-01-01\n\n- Old.\n",
    ".bcr/metadata.template.json": json.dumps({"repository": ["github:us/rules_tfaot"], "versions": []}),
    "rules/defs.bzl": "",
    "tests/BUILD": "",
    ".gitattributes": "/tests export-ignore\n",
}


class ReleaseTest(unittest.TestCase):
    def setUp(self) -> None:
        scratch = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)
        self.checkout = self.folder / "checkout"
        self.commit(FILES)

    def commit(self, files: dict[str, str]) -> None:
        """Commits files to a checkout of their own, with the tag v1.2.3."""
        for path, text in files.items():
            (self.checkout / path).parent.mkdir(parents=True, exist_ok=True)
            (self.checkout / path).write_text(text, encoding="utf-8")
        self.git("init", "--quiet")
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message=all")
        self.git("tag", "--force", "v1.2.3")

    def git(self, *arguments: str) -> None:
        person = {f"GIT_{who}_{what}": "x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        environment = {
            **os.environ,
            **person,
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_COMMITTER_DATE": "@1700000000 +0000",
        }
        subprocess.run(["git", *arguments], cwd=self.checkout, env=environment, check=True, stdout=subprocess.DEVNULL)

    def read(self, tag: str = "v1.2.3", home: str = "us/rules_tfaot") -> tuple[release.Release, str]:
        return release.read(self.checkout, tag=tag, commit="HEAD", home=home)

    def test_release(self) -> None:
        """Protects names, addresses, and the choice of the changelog's section."""
        this, changes = self.read()
        self.assertEqual("- A fix.", changes)
        self.assertEqual(
            ("rules_tfaot-v1.2.3.tar.gz", "rules_tfaot-v1.2.3.docs.tar.gz", "rules_tfaot-1.2.3"),
            (this.archive, this.docs, this.prefix),
        )
        self.assertEqual("https://github.com/us/rules_tfaot/releases/download/v1.2.3/f", this.url("f"))

    def test_unready(self) -> None:
        """Each reason that stops a release has its message."""
        for tag, home, files, message in (
            ("1.2.3", "us/rules_tfaot", {}, "'1.2.3' isn't the tag of a release; tags look like v1.2.3 or v1.2.3-rc1"),
            (
                "v2.0.0",
                "us/rules_tfaot",
                {},
                "the tag is v2.0.0, but MODULE.bazel has version '1.2.3'; set it to '2.0.0' in a commit, and tag that",
            ),
            (
                "v1.2.3",
                "us/rules_tfaot",
                {"MODULE.bazel": "module(\n)\n"},
                "the tag is v1.2.3, but MODULE.bazel has no version; set it to '1.2.3' in a commit, and tag that",
            ),
            (
                "v1.2.3",
                "you/rules_tfaot",
                {},
                "the release is made in 'you/rules_tfaot', but .bcr/metadata.template.json has 'github:us/rules_tfaot' as "
                'its repository; change that to "github:you/rules_tfaot", and the homepage with it',
            ),
            (
                "v1.2.3",
                "us/rules_tfaot",
                {"CHANGELOG.md": "## [Unreleased]\n\n## [1.2.2] - x\n"},
                "CHANGELOG.md says nothing about 1.2.3; its sections are '[Unreleased]', '[1.2.2] - x'. "
                "Rename [Unreleased] to '[1.2.3] - YYYY-MM-DD'",
            ),
        ):
            with self.subTest(message):
                self.commit({**FILES, **files, "case": message})
                with self.assertRaises(ReleaseError) as raised:
                    self.read(tag, home)
                self.assertEqual(message, str(raised.exception))

    def test_unknown_commit(self) -> None:
        """A commit or a file that git doesn't know is named, with git's own words."""
        with self.assertRaisesRegex(ReleaseError, "git can't archive 'v9': .*; name a commit or a tag"):
            archive.source(self.checkout, "v9", prefix="p")
        with self.assertRaisesRegex(ReleaseError, "git can't show MODULE.bazel at 'v9': .*; name a commit that has it"):
            release.shown(self.checkout, "v9", "MODULE.bazel")

    def test_checkout(self) -> None:
        """Protects the API's description, which is made from the checkout: it must be the tag's."""
        release.check_checkout(self.checkout, "v1.2.3")
        (self.checkout / "CHANGELOG.md").write_text("", encoding="utf-8")
        with self.assertRaisesRegex(
            ReleaseError, "its tag, v1.2.3, but these files differ from it: CHANGELOG.md; run 'git checkout v1.2.3'"
        ):
            release.check_checkout(self.checkout, "v1.2.3")
        self.git("commit", "--quiet", "--all", "--message=next")
        with self.assertRaisesRegex(ReleaseError, r"its tag, v1\.2\.3, but [0-9a-f]{7,} is checked out; run"):
            release.check_checkout(self.checkout, "v1.2.3")

    def test_source_archive(self) -> None:
        """Two checkouts with different configurations give the same bytes, without what .gitattributes excludes."""
        one = archive.source(self.checkout, "v1.2.3", prefix="p")
        self.git("config", "tar.umask", "0077")
        self.git("config", "core.autocrlf", "true")
        self.assertEqual(one, archive.source(self.checkout, "HEAD", prefix="p"))
        with tarfile.open(fileobj=io.BytesIO(one)) as tar:
            self.assertEqual(
                {
                    "p/MODULE.bazel",
                    "p/CHANGELOG.md",
                    "p/.bcr/metadata.template.json",
                    "p/rules/defs.bzl",
                    "p/.gitattributes",
                },
                {entry.name for entry in tar if entry.isfile()},
            )

    def test_files_archive(self) -> None:
        """The archive of the API's description depends on contents only, not on order, time, or owner."""
        one = archive.files({"b": b"2", "a/c": b"1"})
        self.assertEqual(one, archive.files({"a/c": b"1", "b": b"2"}))
        with tarfile.open(fileobj=io.BytesIO(one)) as tar:
            self.assertEqual([("a/c", 1, 0, 0), ("b", 1, 0, 0)], [(e.name, e.size, e.mtime, e.uid) for e in tar])
        self.assertEqual(0, int.from_bytes(one[4:8], "little"), "gzip's header has a time")

    def test_notes(self) -> None:
        """The notes have the changes, and what to write for each mode, with checksums of the archive."""
        this, changes = self.read()
        text = notes.text(this, changes=changes, archive=b"x", integrity=archive.integrity(b"x"), workspace="load()\n")
        for part in (
            "- A fix.\n",
            'bazel_dep(name = "rules_tfaot", version = "1.2.3")',
            f'integrity = "sha256-{base64.b64encode(hashlib.sha256(b"x").digest()).decode()}"',
            f'sha256 = "{hashlib.sha256(b"x").hexdigest()}"',
            'url = "https://github.com/us/rules_tfaot/releases/download/v1.2.3/rules_tfaot-v1.2.3.tar.gz"',
            "load()\n```",
        ):
            self.assertIn(part, text)

    def test_registry(self) -> None:
        """A registry keeps its older versions, and each entry has the archive's checksum and its MODULE.bazel."""
        folder = self.folder / "registry"
        for version in ("1.2.2", "1.2.3"):
            registry.write(
                folder,
                version=version,
                archive=b"x",
                prefix=f"p-{version}",
                url="file:///a",
                module="module()",
                metadata=FILES[".bcr/metadata.template.json"],
            )
        entry = folder / "modules/rules_tfaot"
        self.assertEqual(["1.2.2", "1.2.3"], json.loads((entry / "metadata.json").read_text())["versions"])
        self.assertEqual(
            {"url": "file:///a", "integrity": archive.integrity(b"x"), "strip_prefix": "p-1.2.3"},
            json.loads((entry / "1.2.3/source.json").read_text()),
        )
        self.assertEqual("module()", (entry / "1.2.3/MODULE.bazel").read_text())
        self.assertEqual("{}\n", (folder / "bazel_registry.json").read_text())

    def test_no_home(self) -> None:
        """Without the repository's address, there would be notes with a wrong one."""
        with self.assertRaisesRegex(ReleaseError, "say with --home=OWNER/NAME which repository has it"):
            prep.prepare("v1.2.3", out=self.folder, home=None, into=None)

    def test_setup(self) -> None:
        """The notes have each call that the tested WORKSPACE makes, without the path of a clone."""
        text = release.setup((ROOT / "e2e/smoke/WORKSPACE").read_text(encoding="utf-8"))
        for call in ("rules_tfaot_dependencies()", "bazel_features_deps()", "py_repositories()", "rules_tfaot_setup()"):
            self.assertIn(f"\n{call}\n", text)
        self.assertTrue(text.startswith('load("@rules_tfaot//rules:repositories.bzl"'), text)
        self.assertNotIn("local_repository", text)
        self.assertNotIn("#", text)

    def test_templates(self) -> None:
        """The registry's templates agree with the names that a release gives to its archives."""
        source = json.loads((ROOT / ".bcr/source.template.json").read_text(encoding="utf-8"))
        words = {"OWNER": "us", "REPO": "rules_tfaot", "TAG": "v1.2.3", "VERSION": "1.2.3"}
        this, _ = self.read()
        self.assertEqual(this.url(this.archive), source["url"].format(**words))
        self.assertEqual(this.url(this.docs), source["docs_url"].format(**words))
        self.assertEqual(this.prefix, source["strip_prefix"].format(**words))

    def test_main(self) -> None:
        """An unready release ends with one line, and prints no notes."""
        command = [sys.executable, str(ROOT / "tools/release/prep.py"), "1.2", "--home=us/rules_tfaot"]
        result = subprocess.run(command, check=False, capture_output=True, text=True)
        self.assertEqual((1, ""), (result.returncode, result.stdout))
        self.assertEqual("prep: '1.2' isn't the tag of a release; tags look like v1.2.3 or v1.2.3-rc1\n", result.stderr)


if __name__ == "__main__":
    unittest.main()
