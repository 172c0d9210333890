"""What a release is: a tag, a version, and what MODULE.bazel, the changelog, and the registry's template say about them."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from .errors import ReleaseError

NAME = "rules_tfaot"
_TAG = re.compile(r"v(\d+\.\d+\.\d+(?:-[0-9a-z.]+)?)")
_VERSION = re.compile(r'^module\(.*?^    version = "([^"]*)"', re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Release:
    """A version of the rules at a commit."""

    version: str
    """As in MODULE.bazel: `1.2.3`."""
    tag: str
    """The version with a `v`."""
    home: str
    """The repository on GitHub: `owner/name`."""

    @property
    def archive(self) -> str:
        """The file name of the source archive."""
        return f"{NAME}-{self.tag}.tar.gz"

    @property
    def docs(self) -> str:
        """The file name of the archive with the API's description."""
        return f"{NAME}-{self.tag}.docs.tar.gz"

    @property
    def prefix(self) -> str:
        """The folder inside the source archive."""
        return f"{NAME}-{self.version}"

    def url(self, file: str) -> str:
        """Returns the address of a file of this release."""
        return f"https://github.com/{self.home}/releases/download/{self.tag}/{file}"


def read(repository: Path, *, tag: str, commit: str, home: str) -> tuple[Release, str]:
    """Checks that a commit is ready to be released under a tag.

    Args:
      repository: the checkout.
      tag: `v1.2.3`.
      commit: the commit with that tag.
      home: `owner/name` on GitHub.

    Returns:
      the release, and its section of the changelog

    Raises:
      ReleaseError: the files at that commit don't agree with the tag or with the repository's address.
    """
    match = _TAG.fullmatch(tag)
    if not match:
        raise ReleaseError(f"{tag!r} isn't the tag of a release; tags look like v1.2.3 or v1.2.3-rc1")
    version = match[1]
    stated = declared(shown(repository, commit, "MODULE.bazel"))
    if stated != version:
        stated = f"version {stated!r}" if stated else "no version"
        raise ReleaseError(
            f"the tag is {tag}, but MODULE.bazel has {stated}; set it to {version!r} in a commit, and tag that"
        )
    template = json.loads(shown(repository, commit, ".bcr/metadata.template.json"))
    if template["repository"] != [f"github:{home}"]:
        raise ReleaseError(
            f"the release is made in {home!r}, but .bcr/metadata.template.json has {template['repository'][0]!r} as its "
            f'repository; change that to "github:{home}", and the homepage with it'
        )
    return Release(version, tag, home), section(shown(repository, commit, "CHANGELOG.md"), version)


def declared(module: str) -> str | None:
    """Returns the version that the text of a MODULE.bazel declares."""
    match = _VERSION.search(module)
    return match[1] if match else None


def section(changelog: str, version: str) -> str:
    """Returns what a changelog says about a version, without its heading.

    Raises:
      ReleaseError: it says nothing.
    """
    sections = re.split(r"^## ", changelog, flags=re.MULTILINE)[1:]
    bodies = [text.partition("\n")[2].strip() for text in sections if text.startswith(f"[{version}] - ")]
    if not bodies or not bodies[0]:
        headings = ", ".join(repr(text.partition("\n")[0]) for text in sections) or "none"
        raise ReleaseError(
            f"CHANGELOG.md says nothing about {version}; its sections are {headings}. "
            f"Rename [Unreleased] to '[{version}] - YYYY-MM-DD'"
        )
    return bodies[0]


def setup(workspace: str) -> str:
    """Returns what a WORKSPACE file has below the rules' archive, from the one that pages show.

    Args:
      workspace: the text of e2e/smoke/WORKSPACE.
    """
    shown = workspace.partition("# begin: install\n")[2].partition("# end: install")[0]
    first = 'load("@rules_tfaot//'
    return first + shown.partition(first)[2]


def check_checkout(repository: Path, tag: str) -> None:
    """Checks that a tag is checked out, because the API's description is made from the files of the checkout.

    Raises:
      ReleaseError: another commit is, or files differ from it.
    """

    def git(*arguments: str) -> str:
        command = ["git", *arguments]
        return subprocess.run(command, cwd=repository, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()

    if git("rev-parse", "HEAD") != git("rev-parse", tag + "^{commit}"):
        instead = f"{git('rev-parse', '--short', 'HEAD')} is checked out"
    elif changed := git("status", "--porcelain", "--untracked-files=no"):
        instead = "these files differ from it: " + ", ".join(line.split()[-1] for line in changed.splitlines())
    else:
        return
    raise ReleaseError(
        f"a release is prepared from the files of its tag, {tag}, but {instead}; "
        f"run 'git checkout {tag}' in a clean clone"
    )


def shown(repository: Path, commit: str, path: str) -> str:
    """Returns the text of a file at a commit.

    Raises:
      ReleaseError: there is no such file.
    """
    result = subprocess.run(
        ["git", "show", f"{commit}:{path}"], cwd=repository, check=False, capture_output=True, text=True
    )
    if result.returncode != 0:
        raise ReleaseError(f"git can't show {path} at {commit!r}: {result.stderr.strip()}; name a commit that has it")
    return result.stdout
