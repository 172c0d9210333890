"""Compiles models with one XLA flag after another, and reports the effect of each on time and results.

    python3 benchmarks/flags.py [--models mobilenet_v2 lstm …] [--sets width_128 fast_math …] [--page docs/reference/xla_flags.md]
    python3 benchmarks/flags.py --models mobilenet_v2 --without fold_batch_norm

or `./bazelw run //benchmarks:flags -- …`. The second form leaves out our own passes instead of setting flags. All variants of a
model and the default run in interleaved rounds, each in its own process, pinned to one core.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import pathlib
import shlex
import sys
import tempfile
from collections.abc import Sequence

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[1] / "py"))

from benchmarks import catalog, compare, harness, summary
from benchmarks.pages import number, put, table
from benchmarks.variants import Builder, NotBuilt, Variant

DEFAULT = Variant("default")

SETS: dict[str, tuple[str, bool, str]] = {
    "width_128": ("--xla_cpu_prefer_vector_width=128", True, "vectors of 16 bytes"),
    "width_512": ("--xla_cpu_prefer_vector_width=512", True, "vectors of 64 bytes, where the CPU level has them"),
    "fast_math": (
        "--xla_cpu_enable_fast_math=true",
        False,
        "sums in any order; NaN, infinity, division, and functions as they are",
    ),
    "fast_math_all": (
        "--xla_cpu_enable_fast_math=true --xla_cpu_fast_math_honor_nans=false --xla_cpu_fast_math_honor_infs=false "
        "--xla_cpu_fast_math_honor_functions=false --xla_cpu_fast_math_honor_division=false",
        False,
        "fast math without exception",
    ),
    "fast_min_max": (
        "--xla_cpu_enable_fast_min_max=true",
        False,
        "XLA's default: minimum and maximum of several values may lose a NaN",
    ),
    "old_emitters": ("--xla_cpu_use_fusion_emitters=false", True, "the older code generator for fusions"),
    "least_memory": (
        "--xla_cpu_enable_concurrency_optimized_scheduler=false",
        True,
        "kernels in the order that needs the least memory",
    ),
    "more_copies": (
        "--xla_cpu_copy_insertion_use_region_analysis=false",
        True,
        "XLA's default: what must be copied is decided without looking at regions",
    ),
    "level_1": ("--xla_backend_optimization_level=1", True, "LLVM's -O1"),
    "level_3": ("--xla_backend_optimization_level=3", True, "XLA's default: LLVM's -O3"),
    "cheap_passes": ("--xla_llvm_disable_expensive_passes=true", True, "without LLVM's expensive passes"),
    "no_slp": ("--xla_backend_extra_options=xla_cpu_disable_slp_vectorizer", True, "no vectors of straight code"),
    "no_unrolling": ("--xla_backend_extra_options=xla_cpu_disable_loop_unrolling", True, "loops as they are"),
    "gemv_rows_4": (
        "--xla_backend_extra_options=xla_llvm_dot_tiling_factor=4",
        True,
        "products of one row take 4 rows of the matrix at a time, not 8",
    ),
    "gemv_rows_16": ("--xla_backend_extra_options=xla_llvm_dot_tiling_factor=16", True, "the same, 16"),
    "small_code": ("--xla_backend_extra_options=xla_cpu_optimize_for_size", True, "code for size"),
    "small_loops": (
        "--xla_backend_extra_options=xla_cpu_small_while_loop_byte_threshold=1024",
        True,
        "small loops as one kernel, which makes objects irreproducible",
    ),
    "ynn": ("--xla_cpu_experimental_ynn_fusion_type=dot", True, "products and what is around them to YNNPACK"),
    "xnn": ("--xla_cpu_use_xnnpack=true", True, "products to XNNPACK"),
    "onednn": ("--xla_cpu_use_onednn=true", True, "products to oneDNN"),
}
"""Flags, whether results should still follow IEEE arithmetic according to the flags' meaning, and that meaning."""


@dataclasses.dataclass(frozen=True)
class Effect:
    """A variant of a model compared with the default."""

    ratio: summary.Ratio
    """The default's time divided by this one's. Above 1, the variant is faster."""
    difference: float
    """Of the results, as a fraction of the largest magnitude."""
    size: int
    """Bytes of the stripped program."""


@dataclasses.dataclass(frozen=True)
class Model:
    """The effects of variants on a model."""

    name: str
    microseconds: float
    """Time of the default."""
    effects: dict[str, Effect]
    missing: dict[str, str]
    """Variants that couldn't be built or run, and why."""


def variants(sets: Sequence[str], without: Sequence[str]) -> list[Variant]:
    """Returns what to compare with the default: sets of flags, or omitted passes, each alone and all together."""
    others = [Variant(name, tuple(SETS[name][0].split())) for name in sets]
    others += [Variant(f"without_{name}", passes=("*", f"!{name}")) for name in without]
    return others + ([Variant("without_any_pass", passes=("*", "!*"))] if len(without) > 1 else [])


def measure(
    name: str,
    library: str,
    builder: Builder,
    wanted: Sequence[Variant],
    plan: harness.Plan,
    folder: pathlib.Path,
    starts: int = 3,
) -> Model:
    """Builds all variants of a model and times them.

    Args:
      name: its name in the catalog.
      library: the path of the export stage's outputs without their extensions.
      builder: builds drivers.
      wanted: variants to compare with the default.
      plan: rounds for each start, and the core.
      folder: a folder for inputs.
      starts: how often to restart all processes. The location of a process's memory changes its times by some percent.

    Raises:
      NotBuilt: the default can't be built.
    """
    inputs = catalog.write_inputs(library, str(folder / name))
    paths = [str(tensor["path"]) for tensor in inputs]
    builder.compile(library, DEFAULT)
    peers, missing = [builder.driver(library, DEFAULT, paths)], {}
    for variant in wanted:
        try:
            builder.compile(library, variant)
            if builder.same_code(library, variant, DEFAULT):
                missing[variant.name] = "it compiles to the same code"
                continue
            peers.append(builder.driver(library, variant, paths))
        except NotBuilt as error:
            missing[variant.name] = str(error)
    training = catalog.MODELS[name].training
    results = [
        harness.compare(name, peers, training=training, reference=DEFAULT.name, plan=plan, missing=missing)
        for _ in range(starts)
    ]
    for result in results:
        missing |= result.missing
    rounds = {
        peer.name: tuple(times for result in results for times in result.measured[peer.name].rounds)
        for peer in peers
        if peer.name not in missing
    }
    if DEFAULT.name not in rounds:
        raise NotBuilt(missing[DEFAULT.name])
    measured_variants = {}
    for variant_name in (variant for variant in rounds if variant != DEFAULT.name):
        ratio = summary.best_ratio(rounds[variant_name], {DEFAULT.name: rounds[DEFAULT.name]})
        measured = results[0].measured[variant_name]
        if ratio is not None:
            measured_variants[variant_name] = Effect(ratio, measured.difference.largest, measured.size)
    return Model(name, summary.times(rounds[DEFAULT.name]).minimum, measured_variants, missing)


def page(models: Sequence[Model], wanted: Sequence[Variant], command: str, machine: str) -> str:
    """Returns the measurements as Markdown.

    Args:
      models: in the order of the tables' columns.
      wanted: in the order of the tables' rows.
      command: the command that updates the page.
      machine: a sentence about the machine.
    """
    titles = [catalog.MODELS[model.name].title for model in models]
    gains, differences = [], []
    for variant in wanted:
        results = [model.effects.get(variant.name) for model in models]
        words = " ".join(f"`{flag}`" for flag in variant.xla_flags)
        if not any(results):
            continue
        cells = [f"{f.ratio.value:.2f} ({f.ratio.low:.2f} to {f.ratio.high:.2f})" if f else "–" for f in results]
        gains.append([variant.name, *cells])
        ieee = "" if variant.name not in SETS else ("yes" if SETS[variant.name][1] else "no")
        meaning = SETS[variant.name][2] if variant.name in SETS else ""
        differences.append(
            [variant.name, words, meaning, ieee, *(f"{f.difference:.1e}" if f else "–" for f in results)]
        )
    lines = [
        "### Time of the default, divided by that of the variant",
        "",
        "Ratio of the smallest batches, and the smallest and largest ratio of one round. Above 1 means that the variant is faster.",
        "",
        *table(["variant", *titles], [["default, µs", *(number(model.microseconds) for model in models)], *gains]),
        "### Largest difference from the default's results, as a share of the largest value",
        "",
        *table(["variant", "flags", "what it does", "IEEE results", *titles], differences),
    ]
    reasons: dict[tuple[str, str], list[str]] = {}
    for model in models:
        for name, why in model.missing.items():
            # The compiler's own message begins with the model's class.
            reasons.setdefault((name, why.removeprefix("error: ").partition(": ")[2] or why), []).append(model.name)
    if reasons:
        rows = [[name, why, ", ".join(names)] for (name, why), names in sorted(reasons.items())]
        lines += ["### Not measured", "", *table(["variant", "why", "models"], rows)]
    return "\n".join([f"    {command}", "", machine, "", *lines])


def main() -> None:
    """Builds, measures, and writes the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", choices=[*catalog.MODELS], metavar="MODEL", default=["mobilenet_v2"])
    parser.add_argument("--sets", nargs="*", choices=[*SETS], metavar="SET", help="sets of flags (default: all)")
    parser.add_argument("--without", nargs="*", default=[], metavar="PASS", help="passes of ours to leave out, instead")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds of each start (default: 5)")
    parser.add_argument("--starts", type=int, default=3, help="starts of all processes (default: 3)")
    parser.add_argument("--batch_ms", type=float, default=10, help="length of a batch, at least one call (default: 10)")
    parser.add_argument("--cpu", type=int, help="the core to run on (default: the last one)")
    parser.add_argument("--exported", metavar="FOLDER", help="MODEL_aot.pb and so on are here; else Bazel makes them")
    parser.add_argument("--packages", help="PYTHONPATH of TensorFlow (default: what the rules installed)")
    parser.add_argument("--bazel_flags", default="", help="flags of the build, as a shell would split them")
    parser.add_argument("--startup_flags", default="", help="Bazel's startup flags")
    parser.add_argument("--page", type=pathlib.Path, help="put the tables into this page")
    flags = parser.parse_args()
    cpus = harness.last_cpus() if flags.cpu is None else (flags.cpu,)
    wanted = variants([] if flags.without else flags.sets or [*SETS], flags.without)
    build = catalog.Build(shlex.split(flags.startup_flags), shlex.split(flags.bazel_flags))
    if not flags.exported:
        build.exported(flags.models)
    plan = harness.Plan(rounds=flags.rounds, batch_nanoseconds=flags.batch_ms * 1e6, cold_starts=1, cpus=cpus)
    results = []
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        try:
            builder = Builder(folder, flags.packages or build.packages())
            for name in flags.models:
                entry = catalog.MODELS[name]
                library = f"{flags.exported}/{entry.library}"
                if not flags.exported:
                    library = str(build.output(f"{entry.package}/{entry.library}"))
                results.append(measure(name, library, builder, wanted, plan, folder, flags.starts))
        except NotBuilt as error:
            sys.exit(f"flags: {error}")
    asked = ["--models", *flags.models, *(["--sets", *flags.sets] if flags.sets else [])]
    asked += [*(["--without", *flags.without] if flags.without else []), "--rounds", str(flags.rounds)]
    asked += ["--starts", str(flags.starts)]
    command = "python3 benchmarks/flags.py " + shlex.join(asked)
    on = compare.machine(cpus)
    where = f"{on['cpu']}, {on['cores']} cores, pinned to core {on['pinned_to']}"
    how = f"{flags.starts} starts of {flags.rounds} rounds"
    machine = f"{where}; {datetime.date.today().isoformat()}; {how}."
    text = page(results, wanted, command, machine)
    print(text)
    if flags.page:
        put(catalog.ROOT / flags.page, "benchmarks/flags.py", text)


if __name__ == "__main__":
    main()
