"""The archive of a release is installed as strangers install it: from a registry, and by the WORKSPACE text of its notes."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
import unittest
from pathlib import Path

import inner

from tools.release import archive, notes, registry, release

SCRATCH = Path(os.environ["TEST_TMPDIR"])


def committed() -> str:
    """Commits the checkout as it is, uncommitted files included, and returns the commit. Writes nothing into the checkout."""
    objects = SCRATCH / "objects"
    objects.mkdir()

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments], cwd=inner.ROOT, check=True, stdout=subprocess.PIPE, text=True
        ).stdout.strip()

    kept = git("rev-parse", "--path-format=absolute", "--git-path", "objects")
    os.environ.update(
        {
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": kept,
            "GIT_OBJECT_DIRECTORY": str(objects),
            "GIT_INDEX_FILE": str(SCRATCH / "index"),
            **{f"GIT_{who}_{what}": "test" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
        }
    )
    git("add", "--all")
    return git("commit-tree", "-m", "test", git("write-tree"))


class InstallTest(unittest.TestCase):
    def test_install(self) -> None:
        """Protects users of a release: the archive lacks nothing, the entry fits it, and the notes' text works."""
        commit = committed()
        module = release.shown(inner.ROOT, commit, "MODULE.bazel")
        version = release.declared(module)
        assert version
        this = release.Release(version, f"v{version}", "us/rules_tfaot")
        source = archive.source(inner.ROOT, commit, prefix=this.prefix)
        file = SCRATCH / this.archive
        file.write_bytes(source)
        registry.write(
            SCRATCH / "registry",
            version=version,
            archive=source,
            prefix=this.prefix,
            url=file.as_uri(),
            module=module,
            metadata=release.shown(inner.ROOT, commit, ".bcr/metadata.template.json"),
        )
        with tarfile.open(fileobj=io.BytesIO(source)) as tar:
            tar.extractall(SCRATCH, filter="data")
        # The registry's own tests run this folder of the archive. Here, it is a repository of its own.
        user = SCRATCH / "user"
        (SCRATCH / this.prefix / "e2e/smoke").rename(user)
        text = notes.text(
            this,
            changes="",
            archive=source,
            integrity=archive.integrity(source),
            workspace=release.setup((user / "WORKSPACE").read_text(encoding="utf-8")),
        ).replace(this.url(this.archive), file.as_uri())
        modules, override, workspace = (part.partition("```")[0] for part in text.split("```starlark\n")[1:])
        rules_cc = 'bazel_dep(name = "rules_cc", version = "0.2.18")\n'
        (user / "WORKSPACE").write_text(workspace, encoding="utf-8")
        (user / "user.bazelrc").write_text("", encoding="utf-8")
        bazel = inner.Bazel(user, *inner.installed())
        self.addCleanup(bazel.remove)
        for how, declared, flags in (
            ("registry", modules, [f"--registry={(SCRATCH / 'registry').as_uri()}"]),
            ("archive_override", modules + override, [f"--registry={SCRATCH.as_uri()}"]),
            ("WORKSPACE", modules, ["--config=workspace"]),
        ):
            with self.subTest(how):
                (user / "MODULE.bazel").write_text(rules_cc + declared, encoding="utf-8")
                if how == "registry":
                    scores, said = bazel.run("run", *flags, "//:score")
                    self.assertEqual(["1.5", "6"], scores.split())
                else:  # the same archive; e2e/smoke builds with an override, and with WORKSPACE
                    _, said = bazel.run("build", "--nobuild", *flags, "//:score")
                self.assertNotIn("WARNING", said)


if __name__ == "__main__":
    unittest.main()
