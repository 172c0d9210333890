"""Entry point of the `bazelw` launcher: `python3 tools/bazelw ARGUMENTS…`."""

import os
import sys

_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
_NEWER = ("python3.14", "python3.13", "python3.12", "python3.11", "python3.10")


def _start() -> int:
    if sys.version_info < (3, 10):  # noqa: UP036 - this file alone runs on every Python 3
        for name in _NEWER:
            try:
                os.execvp(name, [name, "-I", "-S", *sys.argv])
            except OSError:
                continue
        sys.stderr.write("bazelw: python3 is older than 3.10; put a newer one on PATH, then call bazelw again\n")
        return 1
    sys.path.insert(0, _ROOT)
    # Byte code goes to the cache folder, because the repository must not contain generated files. The modules that know where
    # the cache folder is must be imported before we can say so.
    sys.dont_write_bytecode = True
    from tools.bazelw import cache, errors

    try:
        sys.pycache_prefix = str(cache.usable(os.environ) / "pycache")
        sys.dont_write_bytecode = False
    except errors.BazelwError:
        pass  # cli.main reports it, and nothing is written to a folder that it refuses
    from tools.bazelw import cli

    return cli.main(sys.argv[1:], os.environ, _ROOT)


if __name__ == "__main__":
    sys.exit(_start())
