"""Which machines and Pythons are supported, and errors for those that aren't."""

visibility(["//rules/...", "//tests/..."])

# The packages that are TensorFlow, and the compiler.
_TENSORFLOWS = ["tensorflow-cpu", "tensorflow", "tf-nightly-cpu", "tf-nightly"]

# The versions for which TensorFlow's wheels exist. Older wheels exist for an older Python, too, which can't run the rules' code.
SUPPORTED_PYTHONS = {
    "2.20": ["3.10", "3.11", "3.12", "3.13"],
    "2.21": ["3.10", "3.11", "3.12", "3.13"],
    "2.22": ["3.11", "3.12", "3.13", "3.14"],
}

def tensorflow_version(lock):
    """Finds TensorFlow in a lock.

    Args:
      lock: (str) the text of a requirements file

    Returns:
      (str) the version, or None
    """
    for line in lock.splitlines():
        name, equals, rest = line.partition("==")
        if equals and name.strip() in _TENSORFLOWS:
            return rest.split(" ")[0].split(";")[0]
    return None

def supported_pythons(lock):
    """Tells which Pythons the wheel in a lock is for.

    Args:
      lock: (str) the text of a requirements file

    Returns:
      (list[str]) versions such as '3.11', oldest first. Of a later TensorFlow, those of the latest in the table; without
      TensorFlow, those of any.
    """
    version = tensorflow_version(lock)
    if not version:
        return {python: None for pythons in SUPPORTED_PYTHONS.values() for python in pythons}.keys()
    series = ".".join(version.split(".")[:2])
    return SUPPORTED_PYTHONS.get(series) or SUPPORTED_PYTHONS[max(SUPPORTED_PYTHONS)]

_HOW_TO_CHOOSE = "To choose a Python, put it first on PATH, or name it: --repo_env=TFAOT_PYTHON=/path/to/python3.11, " + \
                 "or the attribute python_interpreter of rules_tfaot_setup() and tfaot.tensorflow()."

def platform_error(os, arch):
    """Explains why TensorFlow can't be installed on this machine.

    Args:
      os: (str) as in repository_ctx.os.name
      arch: (str) as in repository_ctx.os.arch

    Returns:
      (str or None) the error, or None if the machine is supported
    """
    if os == "linux" and (arch in ("amd64", "x86_64") or is_arm(arch)):
        return None
    return ("rules_tfaot compiles models on linux x86-64 and linux aarch64 only; this machine is {} {}. TensorFlow's wheels contain the " +
            "compiler only for those platforms: build on such a machine, or use remote execution on one.").format(os, arch)

def is_arm(arch):
    """Tells whether a machine is for 64-bit ARM.

    Args:
      arch: (str) as in repository_ctx.os.arch

    Returns:
      (bool)
    """
    return arch in ("aarch64", "arm64")

def lock_on_arm(lock, tensorflow):
    """Replaces tensorflow-cpu, for which 64-bit ARM has no wheels, in a lock.

    Args:
      lock: (str) the text of a requirements file, as uv writes it
      tensorflow: (str) that of another one, with the package `tensorflow`

    Returns:
      (str) the text of the lock for 64-bit ARM
    """
    kept = []
    keeps = True
    for line in lock.splitlines(True):
        if line.strip() and line[0] not in " \t#":
            keeps = not line.startswith("tensorflow-cpu==")
        if keeps:
            kept.append(line)
    return "".join(kept) + tensorflow

def python_error(python, implementation, version, supported):
    """Explains why a Python isn't supported.

    Args:
      python: (str) path of the interpreter
      implementation: (str) such as 'cpython'
      version: (str) such as '3.9'
      supported: (list[str]) as from `supported_pythons`, like everywhere

    Returns:
      (str or None) the error, or None if it is supported
    """
    if implementation == "cpython" and version in supported:
        return None
    return "{python} is {implementation} {version}; TensorFlow needs cpython {supported}. {how}".format(
        python = python,
        implementation = implementation,
        version = version,
        supported = ", ".join(supported),
        how = _HOW_TO_CHOOSE,
    )

def broken_python_error(python, details, supported):
    """Reports a Python that doesn't even print its version.

    Args:
      python: (str) path of the interpreter
      details: (str) what it printed
      supported: (list[str]) versions

    Returns:
      (str) the error
    """
    return "{python} doesn't run: {details}. TensorFlow needs cpython {supported}. {how}".format(
        python = python,
        details = details,
        supported = ", ".join(supported),
        how = _HOW_TO_CHOOSE,
    )

def no_python_error(tried, supported):
    """Reports that no supported Python was found.

    Args:
      tried: (list[str]) what was tried, and why it failed
      supported: (list[str]) versions

    Returns:
      (str) the error
    """
    return "found no Python for TensorFlow, which needs cpython {supported}. {how}\nTried:\n{tried}".format(
        supported = ", ".join(supported),
        how = _HOW_TO_CHOOSE,
        tried = "\n".join(["  " + line for line in tried]),
    )

def no_pip_error(python):
    """Reports that Python has no pip.

    Args:
      python: (str) path of the interpreter

    Returns:
      (str) the error
    """
    return ("{python} has no pip, which installs TensorFlow. Add it: `{python} -m ensurepip`, or on Debian and Ubuntu " +
            "`apt-get install python3-pip`. {how}").format(python = python, how = _HOW_TO_CHOOSE)

def uncopied_python_warning(python, reason):
    """Says what follows if actions can't run a copy of Python.

    Args:
      python: (str) path of the interpreter
      reason: (str) why its copy doesn't run by itself

    Returns:
      (str) the warning
    """
    return ("actions run {python} in its place, because a copy of it doesn't run by itself: {reason}. Builds work, but they share " +
            "results only with machines that have the same Python at this path. {how}").format(
        python = python,
        reason = reason,
        how = _HOW_TO_CHOOSE,
    )
