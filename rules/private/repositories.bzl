"""Declares the dependencies of rules_tfaot for WORKSPACE and bzlmod, and installs TensorFlow."""

load("@bazel_tools//tools/build_defs/repo:http.bzl", "http_archive")
load("@bazel_tools//tools/build_defs/repo:utils.bzl", "maybe")
load(
    ":python_version.bzl",
    "broken_python_error",
    "is_arm",
    "lock_on_arm",
    "no_pip_error",
    "no_python_error",
    "platform_error",
    "python_error",
    "supported_pythons",
    "tensorflow_version",
    "uncopied_python_warning",
)

visibility(["//rules/..."])

DEFAULT_LOCK = Label("//tools/python:requirements.lock")
_ARM_LOCK = Label("//tools/python:requirements_aarch64.lock")
_COPY_INTERPRETER = Label("//tools/python:copy_interpreter.py")
_INSTALL = Label("//tools/python:install.py")

# Of repository rules that call `pip_install`: what chooses the Python, and the folder that workspaces share packages in.
PIP_ENVIRONMENT = ["HOME", "RULES_TFAOT_CACHE", "TFAOT_PYTHON", "TFAOT_SHARE", "XDG_CACHE_HOME"]

# Prints a description of a Python as JSON on one line, even with the oldest Python. `executable` has pip. `base` is the interpreter
# that actions run: it isn't a shim, a link in a venv, or a link that an upgrade would redirect.
_PROBE = """
import json, os, pkgutil, platform, sys
print(json.dumps({
    "executable": sys.executable,
    "base": os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable),
    "implementation": platform.python_implementation().lower(),
    "version": "%d.%d" % sys.version_info[:2],
    "pip": any(module[1] == "pip" for module in pkgutil.iter_modules()),
}))
"""

# By the name of the rules' repository in this one, so that the folder suits every workspace.
_BUILD = """\
load("@rules_tfaot//rules/private:tensorflow.bzl", "tfaot_tensorflow_targets")

tfaot_tensorflow_targets(
    interpreter = {interpreter},
    interpreter_path = {interpreter_path},
    library = {library},
    tensorflow_version = "{version}",
)
"""

# Of a repository with packages and nothing else.
PACKAGES_BUILD = """\
load("@rules_tfaot//rules/private:python.bzl", "py_library")

py_library(
    name = "{name}",
    data = ["site-packages"],
    imports = ["site-packages"],
    visibility = ["//visibility:public"],
)
"""

def _watched(rctx, label):
    """Returns a file's path. A change of the file fetches the repository again, which Bazel 9 doesn't do by itself."""
    path = rctx.path(label)
    rctx.watch(path)
    return path

def _probe(rctx, python, supported):
    """Returns (what _PROBE printed or None, error or None)."""
    result = rctx.execute([python, "-c", _PROBE])
    if result.return_code != 0:
        lines = result.stderr.strip().splitlines() or ["exit status {}".format(result.return_code)]
        return None, broken_python_error(python, lines[0], supported)
    info = json.decode(result.stdout)
    return info, python_error(info["executable"], info["implementation"], info["version"], supported)

def _find_python(rctx, supported):
    chosen = None
    if rctx.attr.python_interpreter:
        chosen = str(_watched(rctx, rctx.attr.python_interpreter))
    elif rctx.os.environ.get("TFAOT_PYTHON"):
        chosen = rctx.os.environ["TFAOT_PYTHON"]
        if "/" not in chosen:
            chosen = str(rctx.which(chosen) or chosen)
    if chosen:
        info, error = _probe(rctx, chosen, supported)
        if error:
            fail(error)
        return info

    # Users who chose nothing may well have an old python3 and a newer one next to it.
    tried = []
    for name in ["python3"] + ["python" + version for version in reversed(supported)]:
        path = rctx.which(name)
        if not path:
            tried.append(name + " isn't on PATH")
            continue
        info, error = _probe(rctx, str(path), supported)
        if not error:
            return info
        tried.append(error)
    fail(no_python_error(tried, supported))

def _tensorflow_version(lock, text):
    version = tensorflow_version(text)
    return version or fail("{} doesn't name tensorflow-cpu==VERSION: start from tools/python/requirements.in".format(lock))

def pip_install(rctx, *, package, title, size, lock = None, programs = []):
    """Installs the packages in `requirements_lock` into the folder site-packages, and byte-compiles them (tools/python/install.py).

    Args:
      rctx: the repository's context; the rule has the attributes `python_interpreter` and `requirements_lock`
      package: (str) an importable package that must exist afterwards
      title: (str) the name of what is installed, for messages
      size: (str) its size, for messages
      lock: (path) what to install instead of `requirements_lock`
      programs: (list[str]) files to keep in the folder site-packages/bin

    Returns:
      (dict) what _PROBE printed of the Python that the packages were installed for
    """
    error = platform_error(rctx.os.name, rctx.os.arch)
    if error:
        fail(error)
    lock = lock or _watched(rctx, rctx.attr.requirements_lock)
    python = _find_python(rctx, supported_pythons(rctx.read(lock)))
    if not python["pip"]:
        fail(no_pip_error(python["executable"]))
    rctx.watch(python["base"])
    rctx.report_progress("Installing {} for Python {} ({})".format(title, python["version"], size))
    request = {
        "lock": str(lock),
        "name": package,
        "package": package,
        "programs": programs,
        "title": "{} ({})".format(title, size),
    }
    result = rctx.execute(
        # Without site-packages: whatever is there, the program's own imports are the rules'.
        [python["executable"], "-I", "-S", str(_watched(rctx, _INSTALL)), json.encode(request)],
        quiet = False,
        timeout = 3600,
    )
    if result.return_code != 0:
        fail("couldn't install {} with {}:\n{}".format(title, python["executable"], result.stderr.strip()[-4000:]))
    outcome = json.decode(rctx.read("outcome.json"))
    rctx.delete("outcome.json")
    if outcome["failed"] == "pip":
        fail("pip of {} couldn't install {}:\n{}\npip.conf or PIP_INDEX_URL sets the index that pip uses.".format(
            python["executable"],
            rctx.attr.requirements_lock,
            outcome["said"],
        ))
    if outcome["failed"]:
        fail("couldn't byte-compile {} with {}:\n{}".format(title, python["executable"], outcome["said"]))
    if outcome["shared"]:
        # If somebody removes the folder, the next build installs the packages again.
        rctx.watch(outcome["folder"])
        rctx.symlink(outcome["folder"] + "/site-packages", "site-packages")
    return python

def pip_download(rctx, *, title, size):
    """Downloads the wheel in `requirements_lock`, and extracts it: `pip install --target` leaves out its libraries.

    Args:
      rctx: the repository's context; the rule has the attributes `python_interpreter` and `requirements_lock`
      title: (str) the name of what is downloaded, for messages
      size: (str) its size, for messages
    """
    error = platform_error(rctx.os.name, rctx.os.arch)
    if error:
        fail(error)
    lock = _watched(rctx, rctx.attr.requirements_lock)
    python = _find_python(rctx, supported_pythons(rctx.read(lock)))
    if not python["pip"]:
        fail(no_pip_error(python["executable"]))
    rctx.report_progress("Downloading {} ({})".format(title, size))
    pip = [python["executable"], "-m", "pip", "--disable-pip-version-check", "download", "--quiet"]
    flags = ["--no-deps", "--only-binary=:all:", "--require-hashes", "--dest", "wheels", "--requirement", str(lock)]
    result = rctx.execute(pip + flags, timeout = 3600)
    if result.return_code != 0:
        fail("pip of {} couldn't download {}:\n{}".format(python["executable"], title, result.stderr.strip()[-4000:]))
    for wheel in rctx.path("wheels").readdir():
        rctx.extract(wheel, type = "zip")
    rctx.delete("wheels")

def _byte_compile(rctx, python, folder, title, expected):
    """Compiles the Python files in a folder, and fails if the path `expected` doesn't exist afterwards."""
    rctx.report_progress("Byte-compiling " + title)
    result = rctx.execute(
        [
            python["executable"],
            "-m",
            "compileall",
            "-q",
            "-j0",
            "-s",
            folder,
            "--invalidation-mode=unchecked-hash",
            folder,
        ],
        timeout = 3600,
    )
    if not rctx.path(expected).exists:
        fail("couldn't byte-compile {} with {}:\n{}".format(title, python["executable"], result.stderr.strip()[-4000:]))

def _copy_interpreter(rctx, python):
    """Copies the interpreter into the folder `python`, so that no path of this machine is in the key of any action.

    Args:
      rctx: the repository's context
      python: (dict) what _PROBE printed

    Returns:
      (dict) `interpreter` and `library`, relative to the folder, or None if the copy doesn't run
    """
    rctx.report_progress("Copying Python " + python["version"])
    result = rctx.execute([python["executable"], str(_watched(rctx, _COPY_INTERPRETER)), "python"], timeout = 600)
    if result.return_code != 0:
        fail("couldn't copy {}:\n{}".format(python["base"], result.stderr.strip()[-4000:]))
    copy = json.decode(result.stdout)
    if "error" in copy:
        # buildifier: disable=print
        print(uncopied_python_warning(python["base"], copy["error"]))
        rctx.delete("python")
        return None
    library = "python/" + copy["library"]
    expected = "{}/python{}/__pycache__".format(library, python["version"])
    _byte_compile(rctx, python, library, "Python's standard library", expected)
    return copy

def _tfaot_tensorflow_repository_impl(rctx):
    lock = rctx.attr.requirements_lock
    path = _watched(rctx, lock)
    text = rctx.read(path)
    if lock == DEFAULT_LOCK and is_arm(rctx.os.arch):
        text = lock_on_arm(text, rctx.read(_watched(rctx, _ARM_LOCK)))
        path = rctx.path("requirements.lock")
        rctx.file(path, text, executable = False)
    version = _tensorflow_version(lock, text)
    python = pip_install(
        rctx,
        lock = path,
        package = "tensorflow",
        size = "304 MB to download, 1.5 GB on disk",
        title = "TensorFlow " + version,
    )

    # It changes with the packages. They are one directory, whose digest Bazel doesn't compute for a worker's tools.
    rctx.file("stamp", "{}\n{}".format(python["version"], text), executable = False)
    copy = _copy_interpreter(rctx, python)
    rctx.file("BUILD", _BUILD.format(
        interpreter = repr("python/" + copy["interpreter"]) if copy else None,
        interpreter_path = None if copy else repr(python["base"]),
        library = repr("python/" + copy["library"]) if copy else None,
        version = version,
    ), executable = False)

def packages_attrs(lock):
    """Returns the attributes of a repository rule that calls `pip_install`.

    Args:
      lock: (Label) the default lock

    Returns:
      (dict[str, Attribute]) `python_interpreter` and `requirements_lock`
    """
    return {
        "python_interpreter": attr.label(
            allow_single_file = True,
            doc = "Python 3.10 to 3.13 for TensorFlow 2.21; default $TFAOT_PYTHON, then python3 on PATH.",
        ),
        "requirements_lock": attr.label(
            allow_single_file = True,
            default = lock,
            doc = "A hash-locked requirements file.",
        ),
    }

tfaot_tensorflow_repository = repository_rule(
    implementation = _tfaot_tensorflow_repository_impl,
    doc = "Installs TensorFlow with pip, and creates a toolchain from it.",
    attrs = packages_attrs(DEFAULT_LOCK),
    environ = PIP_ENVIRONMENT,
)

def _tfaot_graphviz_repository_impl(rctx):
    pip_install(rctx, package = "pygraphviz", size = "5 MB to download, 110 MB on disk", title = "Graphviz")
    rctx.file("BUILD", PACKAGES_BUILD.format(name = "graphviz"), executable = False)

tfaot_graphviz_repository = repository_rule(
    implementation = _tfaot_graphviz_repository_impl,
    doc = "Installs Graphviz with pip, for NAME_report. No other target needs it.",
    attrs = packages_attrs(Label("//tools/python:graphviz_requirements.lock")),
    environ = PIP_ENVIRONMENT,
)

def declare_tensorflow(*, python_interpreter = None, requirements_lock = None):
    """Declares the repositories `tfaot_tensorflow` and `tfaot_graphviz`, for both WORKSPACE and the module extension.

    Args:
      python_interpreter: (Label) Python 3.10 to 3.13 for TensorFlow 2.21
      requirements_lock: (Label) a hash-locked requirements file, for TensorFlow
    """
    tfaot_graphviz_repository(name = "tfaot_graphviz", python_interpreter = python_interpreter)
    tfaot_tensorflow_repository(
        name = "tfaot_tensorflow",
        python_interpreter = python_interpreter,
        requirements_lock = requirements_lock or DEFAULT_LOCK,
    )

def rules_tfaot_dependencies():
    """Declares the rule sets that rules_tfaot uses, except those that the WORKSPACE has already declared."""

    # rules_cc 0.2 would need another call in each WORKSPACE, and 0.1.1 needs protobuf.
    maybe(
        http_archive,
        name = "rules_cc",
        sha256 = "b8b918a85f9144c01f6cfe0f45e4f2838c7413961a8ff23bc0c6cdf8bb07a3b6",
        strip_prefix = "rules_cc-0.1.5",
        url = "https://github.com/bazelbuild/rules_cc/releases/download/0.1.5/rules_cc-0.1.5.tar.gz",
    )
    maybe(
        http_archive,
        name = "rules_python",
        sha256 = "098ba13578e796c00c853a2161f382647f32eb9a77099e1c88bc5299333d0d6e",
        strip_prefix = "rules_python-1.9.0",
        url = "https://github.com/bazel-contrib/rules_python/releases/download/1.9.0/rules_python-1.9.0.tar.gz",
    )
    maybe(
        http_archive,
        name = "bazel_skylib",
        sha256 = "6e78f0e57de26801f6f564fa7c4a48dc8b36873e416257a92bbb0937eeac8446",
        url = "https://github.com/bazelbuild/bazel-skylib/releases/download/1.8.2/bazel-skylib-1.8.2.tar.gz",
    )
    maybe(
        http_archive,
        name = "platforms",
        sha256 = "3384eb1c30762704fbe38e440204e114154086c8fc8a8c2e3e28441028c019a8",
        url = "https://github.com/bazelbuild/platforms/releases/download/1.0.0/platforms-1.0.0.tar.gz",
    )
    maybe(
        http_archive,
        name = "bazel_features",
        sha256 = "5450bfb2c8b4bc961c75368838f86156f563cc9adef1be7d504fc5619d54daab",
        strip_prefix = "bazel_features-1.51.0",
        url = "https://github.com/bazel-contrib/bazel_features/releases/download/v1.51.0/bazel_features-v1.51.0.tar.gz",
    )

# buildifier: disable=unnamed-macro
def rules_tfaot_setup(*, python_interpreter = None, requirements_lock = None):
    """Declares TensorFlow's repository and registers its toolchain.

    Args:
      python_interpreter: (Label) Python 3.10 to 3.13; by default, $TFAOT_PYTHON, then python3 on PATH
      requirements_lock: (Label) a hash-locked requirements file; by default, that of rules_tfaot
    """
    declare_tensorflow(
        python_interpreter = python_interpreter,
        requirements_lock = requirements_lock,
    )

    # The toolchains are declared in rules_tfaot, so registering them doesn't fetch TensorFlow.
    native.register_toolchains("@rules_tfaot//rules:default_toolchain", "@rules_tfaot//rules:aarch64_toolchain")
