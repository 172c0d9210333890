"""The whole harness on two small models, with TensorFlow as the peer."""

import dataclasses
import json
import os
import pathlib
import stat
import struct
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

from benchmarks import catalog, harness
from benchmarks.harness import Peer
from benchmarks.process import Failed, Process

BUILT = pathlib.Path("benchmarks")
PLAN = harness.Plan(rounds=2, batches=2, batch_nanoseconds=1e5, cold_starts=1, cpus=harness.last_cpus(), limit=300)


class SmokeTest(unittest.TestCase):
    """Real processes. No assertion depends on timings."""

    def setUp(self) -> None:
        self.folder = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))

    def inputs(self, name: str) -> list[dict[str, object]]:
        """Returns files with the first step's inputs."""
        return catalog.write_inputs(f"{BUILT}/{name}_aot", f"{self.folder}/{name}")

    def ours(self, name: str, threads: int = 1) -> Peer:
        """Returns the driver of a compiled model."""
        binary = str((BUILT / catalog.program(name, "ours", threads)).resolve())
        asked = [f"--threads={threads}"] if threads > 1 else []
        return Peer("ours", (binary, *asked, *(str(i["path"]) for i in self.inputs(name))), binary=binary)

    def tensorflow(self, name: str, kind: str) -> Peer:
        """Returns TensorFlow on the same graph."""
        files = {
            k: f"{BUILT}/{name}_aot{end}"
            for k, end in (("graph", ".pb"), ("manifest", ".model.json"), ("variables", ".variables.safetensors"))
        }
        case = json.dumps({"model": name, "inputs": self.inputs(name), "files": files, "folder": self.folder})
        return Peer(
            kind, (sys.executable, "-m", f"benchmarks.workers.{kind}", case), {"PYTHONPATH": ":".join(sys.path)}
        )

    def test_inference_and_training(self) -> None:
        """Both models run, agree with TensorFlow in a session and with jit_compile, and have a best peer."""
        results = []
        for name, training in (("mlp", False), ("fc_bn_adam_train", True)):
            peers = [
                self.ours(name),
                *(self.tensorflow(name, kind) for kind in ("tensorflow_session", "tensorflow_jit")),
            ]
            result = harness.compare(
                name,
                peers,
                training=training,
                reference="tensorflow_session",
                plan=PLAN,
                missing={"jax": "not asked for"},
            )
            self.assertEqual(result.missing, {"jax": "not asked for"})
            self.assertEqual([*result.measured], ["ours", "tensorflow_session", "tensorflow_jit"])
            ours = result.measured["ours"]
            self.assertEqual([len(batches) for batches in ours.rounds], [2, 2])
            self.assertGreater(ours.size, 10_000)
            self.assertGreater(ours.resident, 100_000)
            self.assertGreater(min(map(min, ours.rounds)), 0)
            self.assertEqual(result.measured["tensorflow_session"].difference.largest, 0)
            results.append(result)
        self.assertEqual([harness.as_json(result)["ratio"]["peer"][:10] for result in results], ["tensorflow"] * 2)

    def test_wrong_outputs_are_not_timed(self) -> None:
        """A peer with different outputs is listed as missing, with its error."""
        other = self.ours("mlp")
        path = f"{self.folder}/other"
        with open(other.command[1], "rb") as file, open(path, "wb") as out:
            out.write(file.read()[::-1])  # another input gives another output
        wrong = Peer("wrong", (other.command[0], path), binary=other.binary)
        result = harness.compare("mlp", [other, wrong], training=False, reference="ours", plan=PLAN, missing={})
        self.assertEqual([*result.measured], ["ours"])
        self.assertRegex(result.missing["wrong"], r"^its outputs are \S+ off ours's, and 0\.0001 is tolerated$")

    def test_failures_are_named(self) -> None:
        """A peer that doesn't start, dies, or rejects its inputs is missing with the reason that it gave."""
        dying = pathlib.Path(self.folder) / "dying"
        dying.write_text("#!/bin/sh\necho no such luck >&2\nexit 3\n", encoding="utf-8")
        dying.chmod(dying.stat().st_mode | stat.S_IXUSR)
        peers = [
            Peer("dying", (str(dying),)),
            Peer("absent", (self.folder + "/absent",)),
            Peer("unfed", self.ours("mlp").command[:1]),
        ]
        result = harness.compare("mlp", peers, training=False, reference="ours", plan=PLAN, missing={})
        self.assertEqual(result.measured, {})
        self.assertEqual(result.missing["dying"], "ended with status 3: no such luck")
        self.assertIn("No such file", result.missing["absent"])
        self.assertEqual(result.missing["unfed"], "inputs don't fit the model")

    def test_pinned(self) -> None:
        """A peer runs on the specified core, with only its own single thread."""
        with Process(self.ours("mlp").command, cpus=PLAN.cpus, environment={}, folder=self.folder) as process:
            self.assertEqual(os.sched_getaffinity(process.pid), set(PLAN.cpus or ()))
            self.assertEqual(len(os.listdir(f"/proc/{process.pid}/task")), 1)

    def test_two_threads(self) -> None:
        """Protects the page of all cores: peers have the same cores and as many threads, and wait for those of the last one."""
        threads = min(2, len(os.sched_getaffinity(0)))  # Bazel's server may be pinned to one core
        name, plan = "fc_bn_adam_train", dataclasses.replace(PLAN, cpus=harness.last_cpus(threads))
        peers = [self.ours(name, threads), self.tensorflow(name, "tensorflow_session")]
        with mock.patch("time.sleep") as pause:
            result = harness.compare(name, peers, training=True, reference="tensorflow_session", plan=plan, missing={})
        self.assertEqual([*result.measured], ["ours", "tensorflow_session"], result.missing)
        self.assertEqual(
            pause.call_args_list, [mock.call(harness.PAUSE)] * 2 * (1 + plan.rounds) if threads > 1 else []
        )
        for peer in peers:
            with Process(
                peer.command, cpus=plan.cpus, environment=peer.environment, folder=self.folder, limit=plan.limit
            ) as process:
                self.assertEqual(os.sched_getaffinity(process.pid), set(plan.cpus or ()))
                self.assertIn(
                    f"BENCHMARK_THREADS={threads}", pathlib.Path(f"/proc/{process.pid}/environ").read_text().split("\0")
                )
                if peer.name == "ours":
                    self.assertEqual(len(os.listdir(f"/proc/{process.pid}/task")), threads)

    def test_cores(self) -> None:
        """Protects figures from sharing a core: no plan has more threads than the process can use cores."""
        usable = os.sched_getaffinity(0)
        self.assertEqual(set(harness.last_cpus(len(usable))), usable)
        for count in (-1, 0, len(usable) + 1):
            with self.assertRaisesRegex(ValueError, f"^{count} threads need {count} cores, and this process can use"):
                harness.last_cpus(count)

    def test_start(self) -> None:
        """A cold start has no part that grows with the harness: Python starts the peer without a copy of its own process."""
        before = os.sched_getaffinity(0)
        with mock.patch("subprocess.Popen", wraps=subprocess.Popen) as started:
            with Process(self.ours("mlp").command, cpus=PLAN.cpus, environment={}, folder=self.folder):
                self.assertEqual(os.sched_getaffinity(0), before)
            with self.assertRaises(Failed):
                Process(["/absent"], cpus=PLAN.cpus, environment={}, folder=self.folder)
        self.assertEqual(os.sched_getaffinity(0), before)
        self.assertNotIn("preexec_fn", started.call_args.kwargs)

    def test_deployed(self) -> None:
        """Protects first results: our programs are as we tell users to deploy them, stripped and without shared libraries."""
        file = pathlib.Path(self.ours("mlp").command[0])
        self.assertEqual(file.suffix, ".stripped")
        program = file.read_bytes()
        start, size, count = *struct.unpack_from("<Q", program, 32), *struct.unpack_from("<HH", program, 54)
        kinds = [struct.unpack_from("<I", program, start + index * size)[0] for index in range(count)]
        self.assertIn(1, kinds, "segments to load")
        self.assertNotIn(3, kinds, "the name of a dynamic linker")

    def test_no_answer(self) -> None:
        """A peer that hangs is abandoned after the limit."""
        with self.assertRaisesRegex(Failed, "^no answer in 0 s$"):
            Process(["/bin/sleep", "60"], cpus=None, environment={}, folder=self.folder, limit=0.2)


if __name__ == "__main__":
    unittest.main()
