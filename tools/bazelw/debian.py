"""Way 3: Debian's own build of Bazel, in a private folder, without root and without touching the system.

The packages come from the mirror that this machine's apt already uses; only the suite differs. apt checks the suite's
InRelease file against Debian's archive keys, the package lists against the checksums in it, and each package against the
checksum in its list. bazelw then compares each package with that checksum once more.
"""

from __future__ import annotations

import gzip
import lzma
import os
import re
import shutil
import tarfile
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from . import cache, packages, prefix, redirect, versions
from .errors import WayFailed
from .progress import Progress, megabytes
from .way import RECIPE, Bazel

# Debian's first suite with Bazel 7.7.1. Once it is the stable release and has another Bazel, this must change.
SUITE = "forky"
# Suites of a Debian archive. A security or third-party archive has none with these plain names.
_DEBIAN_SUITES = frozenset(
    ("bullseye", "bookworm", "trixie", "forky", "duke", "sid", "oldstable", "stable", "testing", "unstable")
)
_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")

# Settings of the machine that the private apt takes over: how to reach a mirror, and nothing else. Names of keys are in
# lower case; apt ignores case.
_INHERITED = (
    "acquire::http::",
    "acquire::https::",
    "acquire::ftp::",
    "acquire::tor::",
    "acquire::forceipv",
    # How old a signed list can be, because a mirror can be a snapshot.
    "acquire::check-date",
    "acquire::check-valid-until",
    "apt::architecture",
    "dir::etc::netrc",
)
# Checks of a server's certificate, for all hosts or for a single one.
_VERIFY = ("::verify-peer", "::verify-host")
# How many packages one call of apt downloads. Progress is shown between two calls.
_AT_ONCE = 8


@dataclass(frozen=True)
class Apt:
    """An apt that writes only below `home`, and assumes that no package is installed."""

    home: Path
    environ: dict[str, str]

    def run(self, *command: str, cwd: Path | None = None) -> str:
        """Runs a command with this apt's configuration. Returns its output; raises WayFailed if it fails."""
        return prefix.run(command, self.environ, cwd)

    def available(self) -> dict[str, packages.Package]:
        """Returns the suite's packages, by name."""
        return packages.parse(self.run("apt-cache", "dumpavail"))


def set_up(folder: Path, version: str, progress: Progress) -> Bazel:
    """Downloads, unpacks, and adapts Debian's Bazel, resuming where an interrupted call stopped. Needs the lock.

    Raises WayFailed if this machine has no apt, or its mirror lacks what is needed.
    """
    home = folder / "debian"
    resumed = (home / "apt/debs").exists()
    started = time.monotonic()
    progress.say(f"setting up Debian's build of Bazel below {home}")
    apt = lists(home, progress)
    chosen = packages.bazel(apt.available())
    offered = next(package.version for package in chosen if package.name == packages.BAZEL)
    # Debian's version looks like 7.7.1+ds-8+b1: the upstream version, then Debian's changes.
    upstream = offered.partition("+")[0].partition("-")[0]
    if not versions.fits(upstream, version):
        raise WayFailed(f"Debian {SUITE} has Bazel {upstream} now, which isn't compatible with {version}")
    debs = download(apt, chosen, progress)
    abseil = _abseil_source(apt, progress)

    # Each recipe has its own folder: Bazel restarts a server that still runs from another one.
    final = home / f"bazel-{RECIPE}"
    part = home / "bazel.part"
    prefix.remove(part)
    (part / "prefix").mkdir(parents=True)
    prefix.unpack(debs, part / "prefix", progress)
    _unpack_source(abseil, part / "abseil-cpp")
    progress.say("adapting the programs to their folder")
    java = prefix.adapt(part / "prefix", final / "prefix")
    redirect.write(part, final)
    for old in home.glob("bazel-*"):
        prefix.remove(old)
    part.rename(final)

    seconds = time.monotonic() - started
    size = sum(package.size for package in chosen) + abseil.stat().st_size
    cache.write_json(
        home / "made.json",
        {
            "packages": {package.name: package.version for package in chosen},
            "download_bytes": size,
            # Time of this call, which is not the total if an earlier call was stopped after downloading packages.
            "seconds": round(seconds, 1),
            "resumed": resumed,
        },
    )
    progress.say(f"Bazel is ready after {seconds:.0f} s: {len(chosen)} packages, {megabytes(size)}")
    return Bazel(
        program=str(final / "prefix/usr/bin/bazel"),
        startup=(
            f"--install_base={final / 'prefix' / prefix.BAZEL_DATA}",
            "--trust_install_base",
            f"--server_javabase={final / 'prefix' / java}",
            # Java 25 warns about things this older Bazel does. Users can't do anything about them.
            "--host_jvm_args=--sun-misc-unsafe-memory-access=allow",
            "--host_jvm_args=--enable-native-access=ALL-UNNAMED",
            "--nosystem_rc",
            f"--bazelrc={redirect.rc_file(final)}",
        ),
    )


def mirrors(targets: str) -> list[str]:
    """Returns the addresses of Debian archives in `apt-get indextargets` lines of `ADDRESS SUITE COMPONENT`."""
    addresses = []
    for line in targets.splitlines():
        words = line.split()
        if len(words) == 3 and words[1] in _DEBIAN_SUITES and words[2] == "main" and words[0] not in addresses:
            addresses.append(words[0])
    return addresses


def sources_list(mirror: str, keyring: Path, suite: str = SUITE) -> str:
    """Returns apt's source lines for a suite at `mirror`, which accept only Debian's own signatures."""
    return "".join(f"{kind} [signed-by={keyring}] {mirror} {suite} main\n" for kind in ("deb", "deb-src"))


def lists(home: Path, progress: Progress, suite: str = SUITE) -> Apt:
    """Fetches a suite's signed package lists from the first of the machine's mirrors that has them.

    Raises WayFailed if this machine has no apt, or no Debian mirror with the suite.
    """
    for tool in ("apt-get", "apt-cache", "apt-config", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise WayFailed(f"this machine has no {tool}, so it has no Debian mirror either")
    # --no-release-info: the configuration counts, not whether `apt-get update` ever ran here.
    targets = prefix.run(
        ["apt-get", "indextargets", "--no-release-info", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)"]
    )
    addresses = mirrors(targets)
    if not addresses:
        raise WayFailed("apt on this machine has no Debian mirror")
    if not _KEYRING.is_file():
        raise WayFailed(
            f"this machine has no {_KEYRING}, so it can't check Debian's signatures; install debian-archive-keyring"
        )
    apt = _private_apt(home / "apt")
    reasons = []
    for mirror in addresses:
        progress.say(f"fetching the package lists of Debian {suite} from this machine's Debian mirror")
        cache.write_text(apt.home / "sources.list", sources_list(mirror, _KEYRING, suite))
        try:
            apt.run("apt-get", "update")
        except WayFailed as failure:
            reasons.append(str(failure))
        else:
            return apt
    raise WayFailed(f"no Debian mirror of this machine serves {suite}: {reasons[-1]}")


def _private_apt(home: Path) -> Apt:
    for name in ("lists/partial", "cache/archives/partial", "conf.d", "debs", "sources"):
        (home / name).mkdir(parents=True, exist_ok=True)
    cache.write_text(home / "status", "")
    machine = prefix.run(["apt-config", "dump"])
    cache.write_text(home / "apt.conf", apt_conf(machine, home))
    return Apt(home, {**os.environ, "APT_CONFIG": str(home / "apt.conf"), "LC_ALL": "C"})


def apt_conf(machine: str, home: Path) -> str:
    """Returns an apt.conf with the machine's proxies and certificates, but without its folders, hooks, or weakened checks.

    Args:
      machine: The output of `apt-config dump`.
      home: The folder for everything that apt writes.
    """
    settings = {
        # Already read: `machine` contains it.
        "Dir::Etc::main": str(home / "none"),
        "Dir::Etc::parts": str(home / "conf.d"),
        "Dir::Etc::sourcelist": str(home / "sources.list"),
        "Dir::Etc::sourceparts": "-",
        "Dir::Etc::preferences": str(home / "none"),
        "Dir::Etc::preferencesparts": "-",
        "Dir::State": str(home),
        "Dir::State::lists": str(home / "lists"),
        "Dir::State::status": str(home / "status"),
        "Dir::Cache": str(home / "cache"),
        "Dir::Cache::archives": str(home / "cache/archives"),
        # Kept, so later apt commands don't need to parse the lists again.
        "Dir::Cache::pkgcache": str(home / "cache/pkgcache.bin"),
        "Dir::Cache::srcpkgcache": str(home / "cache/srcpkgcache.bin"),
        "Dir::Log": str(home / "log"),
        "Acquire::Languages": "none",
        "Acquire::Retries": "3",
        # When called as root, apt would switch to a user that can't write to a private folder.
        "APT::Sandbox::User": "root",
        # A mirror that doesn't answer is a failure, not just a warning.
        "APT::Update::Error-Mode": "any",
        "APT::Install-Recommends": "0",
        # These are apt's defaults. We set them explicitly, and last, so nothing else can override them.
        "APT::Get::AllowUnauthenticated": "false",
        "Acquire::AllowInsecureRepositories": "false",
        "Acquire::AllowWeakRepositories": "false",
        "Acquire::AllowDowngradeToInsecureRepositories": "false",
        "Acquire::https::Verify-Peer": "true",
        "Acquire::https::Verify-Host": "true",
    }
    lines = [line for line in machine.splitlines() if re.fullmatch(r'\S+ "[^"]*";', line)]
    keys = [line.partition(" ")[0].lower() for line in lines]
    kept = [
        line for line, key in zip(lines, keys, strict=True) if key.startswith(_INHERITED) and not key.endswith(_VERIFY)
    ]
    return "\n".join([*kept, *(f'{key} "{value}";' for key, value in settings.items())]) + "\n"


def download(apt: Apt, chosen: Sequence[packages.Package], progress: Progress) -> list[Path]:
    """Downloads the packages that are missing. Returns all of them, in the order of `chosen`."""
    folder = apt.home / "debs"
    wanted = {package.file for package in chosen}
    for path in folder.iterdir():
        if path.is_file() and path.name not in wanted:
            path.unlink()
    missing = [package for package in chosen if not _whole(folder / package.file, package)]
    if missing:
        size = megabytes(sum(package.size for package in missing))
        progress.say(f"downloading {len(missing)} of {len(chosen)} packages, {size}")
    for first in range(0, len(missing), _AT_ONCE):
        part = missing[first : first + _AT_ONCE]
        progress.move(f"downloading package {first + 1} of {len(missing)}")
        apt.run("apt-get", "-q", "download", *(f"{package.name}={package.version}" for package in part), cwd=folder)
    for package in missing:
        path = folder / package.file
        if not _whole(path, package):
            path.unlink(missing_ok=True)
            raise WayFailed(f"the package {package.name} doesn't match the signed list")
    return [folder / package.file for package in chosen]


def _whole(path: Path, package: packages.Package) -> bool:
    try:
        return path.stat().st_size == package.size and sha256(path.read_bytes()).hexdigest() == package.sha256
    except OSError:
        return False


def _abseil_source(apt: Apt, progress: Progress) -> Path:
    """Downloads Abseil's upstream archive, which contains BUILD files. apt compares it with the signed list."""
    progress.say("fetching the source of Abseil")
    folder = apt.home / "sources"
    apt.run("apt-get", "-q", "source", "--download-only", "--tar-only", "abseil", cwd=folder)
    newest_last = sorted(folder.glob("abseil_*.orig.tar.*"), key=lambda path: path.stat().st_mtime)
    archives = [path for path in newest_last if path.suffix != ".asc"]
    if not archives:
        raise WayFailed("the Debian suite has no source archive of Abseil")
    return archives[-1]


def _unpack_source(archive: Path, into: Path) -> None:
    """Unpacks a source archive, which has one top-level folder, so that this folder becomes `into`."""
    part = into.with_name(into.name + ".part")
    try:
        with tarfile.open(archive) as source:
            # The archive is checked, but a filter costs nothing where this Python supports it.
            if hasattr(tarfile, "data_filter"):
                source.extractall(part, filter="data")
            else:
                source.extractall(part)
    except (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as failure:
        archive.unlink()
        raise WayFailed(f"{archive.name} is damaged; it was removed, and the next call downloads it again") from failure
    tops = list(part.iterdir())
    if len(tops) != 1:
        raise WayFailed(f"{archive.name} has {len(tops)} top-level folders instead of one")
    tops[0].rename(into)
    part.rmdir()
