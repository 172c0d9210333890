"""Compiles TensorFlow models into C++ libraries, without Bazel."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from tfaot import profile, values
from tfaot.command import cxx, ending, inspect, options, output
from tfaot.command.build import Build, check_tested, levels
from tfaot.command.progress import Progress
from tfaot.command.stages import StageFailed, Stages, check_model
from tfaot.core import caller, names, version
from tfaot.core.errors import TfaotError


@click.group(help=__doc__, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version.RULES, prog_name="tfaot")
def tfaot() -> None:
    """Groups the commands."""


_Function = TypeVar("_Function", bound=Callable[..., None])


def _command(name: str) -> Callable[[_Function], _Function]:
    """Declares one of `options.COMMANDS`, whose function gets the attributes as a dict, and its own options by name."""
    (command,) = (command for command in options.COMMANDS if command.name == name)

    def declare(function: _Function) -> _Function:
        made = options.options(command.rule)

        def call(source: str, **parsed: Any) -> None:
            values = {option.field.name: option.read(parsed.pop(option.field.name)) for option in made}
            function({**values, "source": source}, **parsed)

        parameters = [
            click.Argument(["source"], metavar="MODEL"),
            *(_own(own) for own in command.own),
            *(_option(option) for option in made),
        ]
        tfaot.add_command(click.Command(name, callback=call, params=parameters, help=command.help))
        return function

    return declare


def _own(own: options.Own) -> click.Option:
    kind = click.INT if own.metavar == "NUMBER" else click.FLOAT if own.metavar == "SECONDS" else click.STRING
    if own.switch:
        return click.Option([own.flag], is_flag=True, help=own.help)
    if own.required:
        return click.Option([own.flag], type=kind, metavar=own.metavar, help=own.help, required=True)
    shown = bool(own.default)
    return click.Option(
        [own.flag], type=kind, metavar=own.metavar, help=own.help, default=own.default, show_default=shown
    )


def _option(option: options.Option) -> click.Option:
    flag, text = option.flag, option.help
    if option.field.type == "bool":
        return click.Option([f"{flag}/--no-{flag[2:]}"], default=option.default, show_default=True, help=text)
    if option.many:
        return click.Option([flag], multiple=True, metavar=option.metavar, help=text)
    kind = click.INT if option.field.type == "int" else click.STRING
    if not option.field.default:
        return click.Option([flag], type=kind, metavar=option.metavar, help=text, required=True)
    default = option.default
    shown = default is not None
    return click.Option([flag], type=kind, default=default, show_default=shown, metavar=option.metavar, help=text)


@_command("compile")
def compile_model(
    values: dict[str, Any],
    *,
    out: str,
    name: str | None,
    header_folder: str,
    no_verify: bool,
    platform: str | None,
    untested_platforms: bool,
    run_under: str | None,
) -> None:
    """Writes a package, after the test that `verify` runs."""
    tools = _tools(values, platform, untested=untested_platforms)
    under = _runner(platform, run_under)
    unverified = "of --no-verify" if no_verify else ""
    if under is None and not no_verify:
        unverified = f"programs for {platform} don't run on {cxx.HERE}: give an emulator with --run-under"
    with output.replacing(out) as made, _build(values, name, header_folder, platform) as build:
        try:
            objects = _made(build, tools, under=None if unverified else under, interface=True)
        except _NotVerified as error:
            raise StageFailed(f"{error}\n  or: write the package without this test, with --no-verify") from None
        build.pack(tools, objects, folder=str(made), archive=None)
    click.echo(f"wrote {out}")
    if unverified:
        click.echo(
            f"NOT VERIFIED: NOBODY HAS COMPARED {values['cpp_class']} WITH TENSORFLOW, because {unverified}", err=True
        )


@_command("verify")
def verify(values: dict[str, Any], *, platform: str | None, untested_platforms: bool, run_under: str | None) -> None:
    """Runs what NAME_test is in Bazel."""
    tools = _tools(values, platform, untested=untested_platforms)
    under = _runner(platform, run_under)
    if under is None:
        raise TfaotError(
            f"verify runs a program for {platform}",
            exists=f"this machine is {cxx.HERE}, and there is no --run-under",
            do="give an emulator: --run-under 'qemu-aarch64 -L /usr/aarch64-linux-gnu'",
        )
    with _build(values, None, platform=platform) as build:
        _made(build, tools, under=under, table=True)


class _NotVerified(StageFailed):
    """The model's test can't be made, or fails."""


def _made(
    build: Build, tools: cxx.Tools, *, under: Sequence[str] | None, interface: bool = False, table: bool = False
) -> dict[str, str]:
    """Makes a model's objects, and verifies them unless `under`, what runs its test, is None.

    Args:
      build: does it.
      tools: the programs for C++.
      under: the words before the test's own.
      interface: as for `Build.objects`.
      table: whether to print the test's table if it passes.

    Raises:
      _NotVerified: the test fails.
    """
    build.check_flags(tools)
    build.export()
    if under is not None:
        try:
            build.verify()
        except StageFailed as error:
            raise _NotVerified(str(error)) from None
    build.compile()
    build.render()
    objects = build.objects(tools, interface=interface)
    if under is not None:
        command = build.program("test", tools=tools, objects=objects)
        build.step("running the test")
        done = subprocess.run([*under, *command], check=False, stdout=subprocess.PIPE, text=True)
        if table or done.returncode:
            click.echo(done.stdout, nl=False, err=not table)
        if done.returncode:
            wrong = TfaotError(
                f"{build.cpp_class}: the compiled model doesn't compute TensorFlow's numbers",
                exists=f"its test, whose table is above, ended with status {done.returncode}",
                do="see the rows that failed; docs/guide/debugging.md says how to find the first value that differs",
            )
            raise _NotVerified(f"error: {wrong}")
    return objects


@_command("profile")
def profile_model(values: dict[str, Any], *, seconds: float, core: int | None) -> None:
    """Samples what NAME_benchmark is in Bazel."""
    tools = _tools(values, None)
    if not shutil.which("perf"):
        raise TfaotError(
            "profile samples the model with perf",
            exists="no perf on PATH",
            do="install linux-perf (Debian), or your distribution's linux-tools",
        )
    with _build(values, None) as build:
        build.check_flags(tools)
        build.export()
        build.verify()
        build.compile()
        build.render()
        command = build.program("benchmark", tools=tools, objects=build.objects(tools))
        build.step("sampling the benchmark")

        def run(under: Sequence[str], steps: int) -> str:
            done = subprocess.run([*under, *command, f"--steps={steps}"], check=False, capture_output=True, text=True)
            if done.returncode:
                raise TfaotError(
                    f"the benchmark ended with status {done.returncode}",
                    details=done.stdout + done.stderr,
                    do="see its message above; in containers, perf can be forbidden",
                )
            return done.stdout

        lines = profile.measure(run, seconds=seconds, cpu=core, passes=build.passes)
    click.echo("\n".join(lines))


@_command("hlo")
def hlo(values: dict[str, Any], *, out: str, name: str | None, platform: str | None) -> None:
    """Writes HLO as text, protobuf message, and drawing."""
    _write_for_others(
        values,
        lambda build: [build.path(".variables.safetensors"), *build.hlo()],
        out=out,
        name=name,
        platform=platform,
    )


@_command("stablehlo")
def stablehlo(values: dict[str, Any], *, out: str, name: str | None) -> None:
    """Writes StableHLO as text and bytecode."""
    _write_for_others(
        values, lambda build: [build.path(".variables.safetensors"), *build.stablehlo()], out=out, name=name
    )


@_command("bundle")
def bundle(values: dict[str, Any], *, out: str, name: str | None, platform: str | None) -> None:
    """Writes NAME.bundle.tar.gz."""

    def make(build: Build) -> list[str]:
        build.verify()
        build.hlo()
        build.stablehlo()
        return [build.bundle()]

    _write_for_others(values, make, out=out, name=name, platform=platform)


@tfaot.command("check", context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def check(arguments: Sequence[str]) -> None:
    """Lists all that stands in the way of compiling a SavedModel, a GraphDef, or a Python file.

    It has options of its own: see `tfaot check --help`.
    """
    with ending.folder() as folder:
        status = check_model(arguments, temporary=folder)
    sys.exit(status)


@tfaot.command("inspect")
@click.argument("path", metavar="PACKAGE")
def inspect_package(path: str) -> None:
    """Says what a package contains: its class, inputs, outputs, variables, and what made it.

    PACKAGE is its folder, an archive of Bazel's target NAME_package, or a file NAME.model.json.
    """
    click.echo("\n".join(inspect.lines(path)))


@tfaot.command("values")
@click.argument("path", metavar="FILE")
@click.argument("other", metavar="[OTHER]", required=False)
@click.option(
    "--tolerance",
    type=click.FLOAT,
    default=values.TOLERANCE,
    show_default=True,
    metavar="NUMBER",
    help="The largest difference, relative to a tensor's largest value.",
)
def list_values(path: str, other: str | None, tolerance: float) -> None:
    """Lists the values that a generated test wrote with --values=FILE, in the order of execution.

    With OTHER, compares two such files, names the first tensor that diverges, and exits with 1 if there is one.
    """
    if other is None:
        click.echo("\n".join(values.lines(path)))
        return
    table, first = values.compared(path, other, tolerance=tolerance)
    click.echo("\n".join([*table, f"first to diverge: {first}" if first else "no tensor diverges"]))
    if first:
        sys.exit(1)


def _write_for_others(
    values: dict[str, Any],
    make: Callable[[Build], list[str]],
    *,
    out: str,
    name: str | None,
    platform: str | None = None,
) -> None:
    """Exports a model for another compiler, and writes its manifest beside what `make` returns."""
    values = {**values, "frozen": values["frozen"] or []}  # by default, all variables are parameters
    with output.replacing(out) as made, _build(values, name or _model_name(values), platform=platform) as build:
        build.export(edge="hlo")
        for file in [build.path(".model.json"), *make(build)]:
            shutil.copyfile(file, made / Path(file).name)
    click.echo(f"wrote {out}")


def _model_name(values: dict[str, Any]) -> str:
    """Returns a name for a model's files: that of its own file or folder."""
    return re.sub(r"\W", "_", Path(values["source"]).stem)


@contextlib.contextmanager
def _build(
    values: dict[str, Any], name: str | None, header_folder: str = "", platform: str | None = None
) -> Iterator[Build]:
    """Yields a build in a temporary folder, unless its class or its files can't have their names."""
    if "cpp_class" in values:
        names.split_class(values["cpp_class"])  # the export stage would say so much later
    name = name or _default_name(values["cpp_class"])
    for flag, path, parts in (("--name", name, [name]), ("--header-folder", header_folder, header_folder.split("/"))):
        if "." in parts[:1] or ".." in parts or (flag == "--name" and "/" in path):
            raise TfaotError(
                f"{flag} {path}: files would be outside of their folder",
                do="give a name without / and a relative folder without ..",
            )
    with ending.folder() as folder:
        work, temporary = folder / "work", folder / "tmp"
        temporary.mkdir()
        with Stages(temporary=temporary, deps=values["deps"]) as stages, Progress() as progress:
            yield Build(
                values,
                name=name,
                header_folder=header_folder,
                folder=work,
                stages=stages,
                step=progress.step,
                platform=platform,
            )


def _tools(values: dict[str, Any], platform: str | None, *, untested: bool = False) -> cxx.Tools:
    """Returns the programs for C++. It checks what the stages, which take longer, would find later."""
    levels(values, platform or cxx.HERE)
    check_tested(platform or cxx.HERE, untested=untested)
    return cxx.tools(platform or cxx.HERE)


def _runner(platform: str | None, run_under: str | None) -> list[str] | None:
    """Returns the words of `--run-under`, or None if programs for the platform need some.

    Raises:
      TfaotError: it isn't a program.
    """
    words = shlex.split(run_under or "")
    if words and shutil.which(words[0]) is None:
        raise TfaotError(
            f"--run-under: there is no program {words[0]!r}",
            exists="nothing on PATH",
            do="install it, or give its path",
        )
    return words if words or platform in (None, cxx.HERE) else None


def _default_name(cpp_class: str) -> str:
    """Maps `a::MyModel` to `my_model`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cpp_class.rpartition("::")[2]).lower()


def main() -> None:
    """Runs the command. An error is one message, with exit status 1, or 2 for wrong options."""
    os.environ[caller.VARIABLE] = "1"  # also for stages
    try:
        with ending.in_order():
            tfaot(standalone_mode=False)
    except click.exceptions.Exit as end:
        sys.exit(end.exit_code)
    except click.ClickException as error:
        sys.exit(f"error: {error.format_message()}\n  to do: see {_help_of(error)}")
    except StageFailed as error:
        sys.exit(str(error))
    except TfaotError as error:
        sys.exit(f"error: {error}")


def _help_of(error: click.ClickException) -> str:
    context = getattr(error, "ctx", None)
    return f"{context.command_path if context else 'tfaot'} --help"


if __name__ == "__main__":
    main()
