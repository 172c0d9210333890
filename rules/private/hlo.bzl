"""The HLO stage: turns an exported graph into HLO and StableHLO for other compilers."""

load("//runtime:copts.bzl", "PLATFORMS")
load(":bundle.bzl", "tf_aot_bundle")
load(":common.bzl", "common_attributes", "moved")
load(":export.bzl", "tf_aot_export")
load(":files.bzl", "HLO", "STABLEHLO", "entries_of")
load(":isa.bzl", "isa_attrs", "isa_of", "levels_of", "platform_attrs", "platform_of")
load(":model.bzl", "model_target")
load(":page.bzl", "tf_aot_page")
load(":providers.bzl", "TfaotGoldensInfo", "TfaotGraphInfo", "TfaotHloInfo", "TfaotStablehloInfo")
load(":stage.bzl", "TOOLCHAIN_TYPE", "declare", "graph_attrs", "read", "run_stage", "stage_attrs")
load(":verify.bzl", "tf_aot_verify")

visibility(["//rules/...", "//tests/..."])

def _tf_aot_lower_impl(ctx):
    graph = ctx.attr.graph[TfaotGraphInfo]
    made = []

    # HLO before optimization is for any machine, so no platform is refused.
    isa = isa_of(ctx, platform_of(ctx) or PLATFORMS["linux_x86_64"])
    stem = ctx.attr.stem or ctx.label.name
    for entry, config in zip(entries_of(graph.entry_points, stem), graph.configs):
        files = declare(ctx, entry.stem, HLO)
        run_stage(
            ctx,
            mnemonic = "TfaotHlo",
            progress_message = "Lowering {} of %{{label}} to HLO".format(entry.entry_point),
            request = read(graph, "hlo") | {
                "config": config,
                "entry_point": entry.entry_point,
                "name": entry.stem,
                "cpu": isa[-1],
                "xla_flags": ctx.attr.xla_flags,
            },
            for_errors = [graph.sources],
            outputs = files,
        )
        made.append(files)
    return [
        DefaultInfo(files = depset([file for files in made for file in files.values()])),
        TfaotHloInfo(
            label = ctx.label,
            hlo = [files["hlo"] for files in made],
            text = [files["hlo_text"] for files in made],
            optimized = [files["optimized_hlo"] for files in made],
            drawing = [files["drawing"] for files in made],
            optimized_drawing = [files["optimized_drawing"] for files in made],
        ),
    ]

tf_aot_lower = rule(
    implementation = _tf_aot_lower_impl,
    doc = "Lowers an exported graph to HLO, before and after optimization for the highest given CPU level, and draws it.",
    attrs = {
        "xla_flags": attr.string_list(
            doc = "As in `tf_aot_library`.",
        ),
    } | platform_attrs() | isa_attrs() | graph_attrs() | stage_attrs("//tools:hlo.py", "//py/tfaot/hlo"),
    provides = [TfaotHloInfo],
    toolchains = [TOOLCHAIN_TYPE],
)

def _tf_aot_stablehlo_impl(ctx):
    graph = ctx.attr.graph[TfaotGraphInfo]
    made = []
    for entry in entries_of(graph.entry_points, ctx.attr.stem or ctx.label.name):
        files = declare(ctx, entry.stem, STABLEHLO)
        run_stage(
            ctx,
            mnemonic = "TfaotStablehlo",
            progress_message = "Translating {} of %{{label}} to StableHLO".format(entry.entry_point),
            request = read(graph, "stablehlo") | {"entry_point": entry.entry_point, "name": entry.stem},
            for_errors = [graph.sources],
            outputs = files,
        )
        made.append(files)
    return [
        DefaultInfo(files = depset([file for files in made for file in files.values()])),
        TfaotStablehloInfo(
            label = ctx.label,
            text = [files["text"] for files in made],
            bytecode = [files["bytecode"] for files in made],
        ),
    ]

tf_aot_stablehlo = rule(
    implementation = _tf_aot_stablehlo_impl,
    doc = "Translates an exported graph to portable StableHLO.",
    attrs = graph_attrs() | stage_attrs("//tools:stablehlo.py", "//py/tfaot/hlo"),
    provides = [TfaotStablehloInfo],
    toolchains = [TOOLCHAIN_TYPE],
)

def hlo_groups(*, hlo, stablehlo):
    """Returns the output groups for a target's HLO.

    Args:
      hlo: (TfaotHloInfo) from `tf_aot_lower`
      stablehlo: (TfaotStablehloInfo) from `tf_aot_stablehlo`

    Returns:
      (dict[str, list[File]]) files by group
    """
    return {
        "hlo": hlo.text + hlo.hlo,
        "hlo_graph": hlo.drawing,
        "optimized_hlo": hlo.optimized,
        "stablehlo": stablehlo.text + stablehlo.bytecode,
    }

def _hlo_product_impl(ctx):
    graph = ctx.attr.graph[TfaotGraphInfo]
    hlo = ctx.attr.hlo[TfaotHloInfo]
    stablehlo = ctx.attr.stablehlo[TfaotStablehloInfo]
    groups = hlo_groups(hlo = hlo, stablehlo = stablehlo) | {
        "config": graph.configs,
        "goldens": [ctx.attr.goldens[TfaotGoldensInfo].goldens],
        "graph": [graph.graph],
        "manifest": [graph.manifest],
        "report": graph.report,
        "variables": [graph.variables],
    }
    return [
        DefaultInfo(files = depset(
            hlo.text + hlo.hlo + hlo.optimized + hlo.drawing + stablehlo.text + stablehlo.bytecode,
        )),
        OutputGroupInfo(**{name: depset(group) for name, group in groups.items()}),
        graph,
        hlo,
        stablehlo,
    ]

_hlo_product = rule(
    implementation = _hlo_product_impl,
    doc = "Collects the outputs of all stages up to HLO.",
    attrs = {
        "goldens": attr.label(mandatory = True, providers = [TfaotGoldensInfo]),
        "graph": attr.label(mandatory = True, providers = [TfaotGraphInfo]),
        "hlo": attr.label(mandatory = True, providers = [TfaotHloInfo]),
        "stablehlo": attr.label(mandatory = True, providers = [TfaotStablehloInfo]),
    },
    provides = [TfaotGraphInfo, TfaotHloInfo, TfaotStablehloInfo],
)

def tf_aot_hlo(*, name, model = None, cpu = None, strict = False, unseen = [], xla_flags = [], **kwargs):
    """Turns a TensorFlow model into HLO for another compiler.

    The requirements of C++ don't apply: the target can have any name, and inputs and outputs can be bfloat16, float16, or
    complex.

    Targets:
      NAME: HLO before optimization as text, protobuf message, and drawing, HLO after optimization, and StableHLO.
        Output groups: hlo, optimized_hlo, stablehlo, hlo_graph, graph, config, manifest, report, variables, goldens.
      NAME_bundle: all of these in one archive, with TensorFlow's numbers and a script that replays them (manual).
      NAME_report: an HTML file with the graph and the HLO, drawn and as text (manual).
      NAME.export, NAME.verify, NAME.hlo, NAME.stablehlo: the stages, if you need only one of them.

    Args:
      name: (str) the name of the target and of the module
      model: (Label) a `tf_model`, or a model's file. All variables of a file are parameters; `tf_model` can freeze them.
      cpu: (str or list[str]) the CPU level that the optimized HLO is for, the highest of several; by default, x86-64-v4, or armv8-a
        on 64-bit ARM
      strict: (bool) as in `tf_aot_library`
      unseen: (list[str]) as in `tf_aot_library`
      xla_flags: (list[str]) as in `tf_aot_library`
      **kwargs: the attributes that any rule has, as in `tf_aot_library`
    """
    described = {"frozen": []}
    if moved(name = name, attributes = kwargs, described = described, model = model):
        return
    common = common_attributes(kwargs)
    stages = common.private | {"stem": name}
    graph = name + ".export"
    goldens = name + ".verify"
    model = model_target(name = name, common = common.private, model = model, **described)
    tf_aot_export(name = graph, edge = "hlo", model = model, **stages)
    tf_aot_verify(name = goldens, graph = graph, strict = strict, unseen = unseen, **stages)
    parts = hlo_targets(
        name = name,
        common = common,
        goldens = goldens,
        graph = graph,
        levels = levels_of(cpu),
        xla_flags = xla_flags,
    )
    tf_aot_page(
        name = name + "_report",
        graph = graph,
        hlo = parts["hlo"],
        stem = name,
        **(common.public | {"tags": common.private["tags"]})
    )
    _hlo_product(
        name = name,
        goldens = goldens,
        graph = graph,
        **(common.public | common.main | parts)
    )

def hlo_targets(*, name, common, goldens, graph, levels, xla_flags):
    """Declares NAME.hlo, NAME.stablehlo, and NAME_bundle. Bazel builds them only on request.

    Args:
      name: (str) name of the model's target
      common: (struct) from `common_attributes`
      goldens: (Label) target of the verify stage
      graph: (Label) target of the export stage
      levels: (dict) from `levels_of`; the optimized HLO is for the highest of these levels
      xla_flags: (list[str]) additional XLA flags

    Returns:
      (dict[str, str]) names of the first two, `hlo` and `stablehlo`
    """
    of = {"graph": graph, "stem": name}
    parts = {"hlo": name + ".hlo", "stablehlo": name + ".stablehlo"}
    tf_aot_lower(name = parts["hlo"], xla_flags = xla_flags, **(common.private | of | levels))
    tf_aot_stablehlo(name = parts["stablehlo"], **(common.private | of))
    bundle = common.public | {"tags": common.private["tags"]}
    tf_aot_bundle(name = name + "_bundle", goldens = goldens, **(bundle | of | parts))
    return parts
