"""The text of a release's page."""

from __future__ import annotations

import hashlib

from .release import NAME, Release

_NOTES = """\
{changes}

## Add it to your repository

With bzlmod, in `MODULE.bazel`:

```starlark
bazel_dep(name = "{name}", version = "{version}")
```

Until your registry has this version, add:

```starlark
archive_override(
    module_name = "{name}",
    integrity = "{integrity}",
    strip_prefix = "{prefix}",
    urls = ["{url}"],
)
```

With a `WORKSPACE` file:

```starlark
load("@bazel_tools//tools/build_defs/repo:http.bzl", "http_archive")

http_archive(
    name = "{name}",
    sha256 = "{sha256}",
    strip_prefix = "{prefix}",
    url = "{url}",
)
{workspace}
```
"""


def text(release: Release, *, changes: str, archive: bytes, integrity: str, workspace: str) -> str:
    """Returns the notes, in Markdown.

    Args:
      release: the release.
      changes: its section of the changelog.
      archive: the source archive.
      integrity: the archive's checksum, as registries want it.
      workspace: what a WORKSPACE file has below the archive.
    """
    return _NOTES.format(
        changes=changes,
        name=NAME,
        version=release.version,
        integrity=integrity,
        sha256=hashlib.sha256(archive).hexdigest(),
        prefix=release.prefix,
        url=release.url(release.archive),
        workspace=workspace.rstrip(),
    )
