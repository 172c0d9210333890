"""Python and Python packages of this repository, as rules_python's `pip.parse` declares them.

Every file of a package is listed, except byte code and RECORD, and each package has a folder and a py_library of its own.
"""

_BUILD = """\
load("@rules_python//python:defs.bzl", "py_library")

py_library(
    name = "{name}",
    srcs = glob(["site-packages/**/*.py"], allow_empty = True),
    data = glob(
        ["site-packages/**/*"],
        exclude = ["**/* *", "**/*.py", "**/*.pyc", "**/*.dist-info/RECORD"],
    ),
    imports = ["site-packages"],
    visibility = ["//visibility:public"],
    deps = {deps},
)
"""

# What the packages need that models or the rules import. pip.parse reads it from each wheel.
_NEEDS = {
    "jinja2": ["markupsafe"],
    "keras": ["absl_py", "h5py", "ml_dtypes", "namex", "optree", "packaging", "rich"],
    "markdown_it_py": ["mdurl"],
    "requests": ["certifi", "charset_normalizer", "idna", "urllib3"],
    "rich": ["markdown_it_py", "pygments"],
    "tensorflow_cpu": [
        "absl_py",
        "astunparse",
        "flatbuffers",
        "gast",
        "google_pasta",
        "h5py",
        "keras",
        "ml_dtypes",
        "numpy",
        "opt_einsum",
        "packaging",
        "protobuf",
        "requests",
        "six",
        "termcolor",
        "typing_extensions",
        "wrapt",
    ],
    "tf_keras": ["tensorflow_cpu"],
}

def _python(rctx):
    return rctx.os.environ.get("TFAOT_PYTHON") or str(rctx.which("python3"))

def _pip_repository_impl(rctx):
    python = _python(rctx)

    # Packages that are already in a folder, for a test that doesn't want to install them again.
    folder = rctx.os.environ.get("MONOREPO_SITE_PACKAGES")
    if not folder:
        folder = str(rctx.path("installed"))
        lock = rctx.path(rctx.attr.requirements_lock)
        rctx.watch(lock)
        result = rctx.execute(
            [python, "-m", "pip", "install", "--target", folder, "--no-deps", "--require-hashes", "--only-binary=:all:"] +
            ["--no-compile", "--requirement", str(lock)],
            timeout = 3600,
        )
        if result.return_code != 0:
            fail(result.stderr)
    found = {}
    for record in rctx.path(folder).readdir():
        if record.basename.endswith(".dist-info"):
            found[record.basename.partition("-")[0].lower()] = record
    for name, record in found.items():
        entries = {line.partition("/")[0].partition(",")[0]: None for line in rctx.read(record.get_child("RECORD")).splitlines()}
        for entry in entries:
            if entry not in ("..", "bin", "__pycache__"):
                rctx.symlink("{}/{}".format(folder, entry), "{}/site-packages/{}".format(name, entry))
        needs = ["//" + need for need in _NEEDS.get(name, []) if need in found]
        rctx.file(name + "/BUILD", _BUILD.format(deps = needs, name = name), executable = False)
    rctx.file("BUILD", "", executable = False)
    rctx.file("python.bzl", "PYTHON = {}\n".format(repr(python)), executable = False)

_pip_repository = repository_rule(
    implementation = _pip_repository_impl,
    attrs = {"requirements_lock": attr.label(allow_single_file = True, mandatory = True)},
    environ = ["MONOREPO_SITE_PACKAGES", "TFAOT_PYTHON"],
)

def _pip_impl(_module_ctx):
    _pip_repository(name = "pip", requirements_lock = Label("@rules_tfaot//tools/python:requirements.lock"))

pip = module_extension(implementation = _pip_impl)
