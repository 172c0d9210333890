"""A process that has imported TensorFlow, and forks a child for each stage: `python runner.py LEGACY_KERAS PARENT`.

It reads a request as a line of JSON, runs the stage as Bazel's worker does, and answers with its status and what it printed.
The answer has the request's token, because user code can write anything anywhere.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import sys
import tempfile

from tfaot.core import environment
from tfaot.worker import sandbox, stage

_MODULES = ("jinja2", "tensorflow", "tensorflow.python._pywrap_tfcompile", "tf_keras")


def main() -> None:
    """Serves requests until the end of their stream, or until the command, its parent, ends."""
    signal.signal(signal.SIGTERM, lambda *_: os.killpg(0, signal.SIGKILL))  # with the stage that runs
    sandbox.end_with_parent(int(sys.argv[2]), signal.SIGTERM)
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
        answer = {"token": fields["token"], "status": status, "printed": printed}
        os.write(answers, f"\n{json.dumps(answer)}\n".encode())


def _run(wanted: stage.Stage) -> tuple[int, str]:
    with tempfile.TemporaryFile() as log:
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                nothing = os.open(os.devnull, os.O_RDONLY)
                for descriptor, target in ((nothing, 0), (log.fileno(), 1), (log.fileno(), 2)):
                    os.dup2(descriptor, target)
                sandbox.close_descriptors()
                status = stage.run(wanted)
            finally:
                os._exit(status)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        log.seek(0)
        return code, log.read().decode(errors="replace")


if __name__ == "__main__":
    main()
