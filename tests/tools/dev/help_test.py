"""Everything that a person runs explains itself: `--help` prints the usage, does nothing else, and succeeds."""

from __future__ import annotations

import os
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).absolute().parents[3]
PROGRAMS = os.environ.get("TFAOT_PROGRAMS", "").split()
"""Binaries and scripts, by their path below the root."""


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs a program: a binary, a script of a shell, or a Python file, alone or as a module of its package."""
    path = ROOT / program
    command = [str(path)]
    if path.suffix == ".py" and "\nfrom ." in path.read_text(encoding="utf-8"):
        command = [sys.executable, "-m", program.removesuffix(".py").replace("/", ".")]
    elif path.suffix == ".py":
        command.insert(0, sys.executable)
    elif (first := path.read_bytes()[:30].splitlines()[0]) in (b"#!/usr/bin/env bash", b"#!/bin/sh"):
        command.insert(0, first.decode().rsplit("/", 1)[1].split()[-1])
    path_of_python = os.pathsep.join([str(path.parent), str(ROOT), *sys.path])
    return subprocess.run(
        [*command, *arguments],
        check=False,
        capture_output=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path_of_python},
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=100,
    )


class HelpTest(unittest.TestCase):
    """Programs, each asked for help."""

    def test_help(self) -> None:
        """Protects people who try a program: asking for help starts nothing."""
        self.assertGreater(len(PROGRAMS), 20)
        for program in PROGRAMS:
            with self.subTest(program=program):
                done = run(program, "--help")
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                self.assertRegex(done.stdout, r"(?im)usage: \S|^ +\S*/(readers|run|wheel) ")

    def test_generated(self) -> None:
        """Protects `bazel run :NAME_benchmark -- --help`, where the target's own arguments come first, and misspelled flags."""
        benchmark = next(program for program in PROGRAMS if program.endswith("_benchmark"))
        for arguments in (["goldens", "--steps=2", "--help"], ["-h"]):
            done = run(benchmark, *arguments)
            self.assertEqual(done.returncode, 0)
            self.assertIn("[GOLDENS] [VARIABLES] [--steps=N]", done.stdout)
            self.assertNotIn("median 0", done.stdout)
        goldens = str(ROOT / os.environ["TFAOT_GOLDENS"])
        done = run(benchmark, goldens, "--step=2")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertEqual(done.stderr, "unknown flag --step=2; --help lists all flags\n")
        self.assertRegex(run(benchmark, goldens, "--steps=2").stdout, r", x86-64-v[34]: 2 steps, min ")


if __name__ == "__main__":
    unittest.main()
