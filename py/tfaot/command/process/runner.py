"""A process that has imported TensorFlow, and forks a child for each stage: `python runner.py LEGACY_KERAS`.

It reads a request as a line of JSON, runs the stage as Bazel's worker does, and answers with its status and what it printed.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
import tempfile

from tfaot.core import environment
from tfaot.worker import stage

_MODULES = ("jinja2", "tensorflow", "tensorflow.python._pywrap_tfcompile", "tf_keras")


def main() -> None:
    """Serves requests until the end of their stream."""
    answers = os.dup(1)
    os.dup2(2, 1)
    environment.prepare(legacy_keras=sys.argv[1] == "1")
    for name in _MODULES:
        try:
            importlib.import_module(name)
        except ImportError:
            break  # the stage that needs it says what is missing
    gc.freeze()
    for line in sys.stdin:
        fields = json.loads(line)
        status, printed = _run(stage.Stage.of(fields["arguments"]))
        os.write(answers, (json.dumps({"status": status, "printed": printed}) + "\n").encode())


def _run(wanted: stage.Stage) -> tuple[int, str]:
    with tempfile.TemporaryFile() as log:
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                nothing = os.open(os.devnull, os.O_RDONLY)
                for descriptor, target in ((nothing, 0), (log.fileno(), 1), (log.fileno(), 2)):
                    os.dup2(descriptor, target)
                status = stage.run(wanted)
            finally:
                os._exit(status)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        log.seek(0)
        return code, log.read().decode(errors="replace")


if __name__ == "__main__":
    main()
