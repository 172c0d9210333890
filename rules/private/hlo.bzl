"""The HLO stage: turns an exported graph into HLO and StableHLO for other compilers."""

load(":bundle.bzl", "tf_aot_bundle")
load(":export.bzl", "export_model")
load(":isa.bzl", "DEFAULT_LEVEL", "isa_attrs", "isa_of")
load(":providers.bzl", "TfaotGoldensInfo", "TfaotGraphInfo", "TfaotHloInfo", "TfaotStablehloInfo")
load(":stage.bzl", "TOOLCHAIN_TYPE", "entries_of", "graph_attrs", "run_stage", "stage_attrs")
load(":verify.bzl", "tf_aot_verify")

visibility(["//rules/...", "//tests/..."])

def _tf_aot_lower_impl(ctx):
    graph = ctx.attr.graph[TfaotGraphInfo]
    made = []
    for entry in entries_of(graph, ctx.attr.stem or ctx.label.name):
        files = struct(
            hlo = ctx.actions.declare_file(entry.stem + ".hlo.pb"),
            text = ctx.actions.declare_file(entry.stem + ".hlo.txt"),
            optimized = ctx.actions.declare_file(entry.stem + ".optimized_hlo.txt"),
            picture = ctx.actions.declare_file(entry.stem + ".hlo.svg"),
        )
        flags = ctx.actions.args()
        flags.add(graph.manifest, format = "--manifest=%s")
        flags.add(graph.graph, format = "--graph=%s")
        flags.add(entry.config, format = "--config=%s")
        flags.add(graph.sources, format = "--sources=%s")
        flags.add(entry.entry_point, format = "--entry_point=%s")
        flags.add(entry.stem, format = "--name=%s")
        flags.add(isa_of(ctx)[-1], format = "--cpu=%s")
        flags.add_all(ctx.attr.xla_flags, format_each = "--xla_flags=%s")
        flags.add(files.hlo, format = "--out_hlo=%s")
        flags.add(files.text, format = "--out_hlo_text=%s")
        flags.add(files.optimized, format = "--out_optimized_hlo=%s")
        flags.add(files.picture, format = "--out_picture=%s")
        run_stage(
            ctx,
            mnemonic = "TfaotHlo",
            progress_message = "Lowering {} of %{{label}} to HLO".format(entry.entry_point),
            flags = flags,
            inputs = [graph.manifest, graph.graph, entry.config],
            for_errors = [graph.sources],
            outputs = [files.hlo, files.text, files.optimized, files.picture],
        )
        made.append(files)
    return [
        DefaultInfo(files = depset([file for f in made for file in (f.hlo, f.text, f.optimized, f.picture)])),
        TfaotHloInfo(
            label = ctx.label,
            hlo = [files.hlo for files in made],
            text = [files.text for files in made],
            optimized = [files.optimized for files in made],
            picture = [files.picture for files in made],
        ),
    ]

tf_aot_lower = rule(
    implementation = _tf_aot_lower_impl,
    doc = "Lowers an exported graph to HLO, before and after optimization for the highest given CPU level, and draws it.",
    attrs = {
        "xla_flags": attr.string_list(
            doc = "Additional XLA flags, `--xla_…=…`.",
        ),
    } | isa_attrs() | graph_attrs() | stage_attrs("//tools:hlo.py", "//py/tfaot/hlo"),
    provides = [TfaotHloInfo],
    toolchains = [TOOLCHAIN_TYPE],
)

def _tf_aot_stablehlo_impl(ctx):
    graph = ctx.attr.graph[TfaotGraphInfo]
    made = []
    for entry in entries_of(graph, ctx.attr.stem or ctx.label.name):
        files = struct(
            text = ctx.actions.declare_file(entry.stem + ".stablehlo.mlir"),
            bytecode = ctx.actions.declare_file(entry.stem + ".stablehlo.mlirbc"),
        )
        flags = ctx.actions.args()
        flags.add(graph.manifest, format = "--manifest=%s")
        flags.add(graph.graph, format = "--graph=%s")
        flags.add(graph.sources, format = "--sources=%s")
        flags.add(entry.entry_point, format = "--entry_point=%s")
        flags.add(entry.stem, format = "--name=%s")
        flags.add(files.text, format = "--out_text=%s")
        flags.add(files.bytecode, format = "--out_bytecode=%s")
        run_stage(
            ctx,
            mnemonic = "TfaotStablehlo",
            progress_message = "Translating {} of %{{label}} to StableHLO".format(entry.entry_point),
            flags = flags,
            inputs = [graph.manifest, graph.graph],
            for_errors = [graph.sources],
            outputs = [files.text, files.bytecode],
        )
        made.append(files)
    return [
        DefaultInfo(files = depset([file for f in made for file in (f.text, f.bytecode)])),
        TfaotStablehloInfo(
            label = ctx.label,
            text = [files.text for files in made],
            bytecode = [files.bytecode for files in made],
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
        "hlo_graph": hlo.picture,
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
        "variables": [graph.variables],
    }
    return [
        DefaultInfo(files = depset(
            hlo.text + hlo.hlo + hlo.optimized + hlo.picture + stablehlo.text + stablehlo.bytecode,
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

def tf_aot_hlo(
        *,
        name,
        cpu = DEFAULT_LEVEL,
        frozen = [],
        tags = [],
        testonly = None,
        visibility = None,
        xla_flags = [],
        **model):
    """Turns a TensorFlow model into HLO for another compiler.

    The requirements of C++ don't apply: the target can have any name, and inputs and outputs can be bfloat16, float16, or
    complex.

    Targets:
      NAME: HLO before optimization as text, protobuf message, and drawing, HLO after optimization, and StableHLO.
        Output groups: hlo, optimized_hlo, stablehlo, hlo_graph, graph, config, manifest, variables, goldens.
      NAME_bundle: all of these in one archive, with TensorFlow's numbers and a script that replays them (manual).

    Args:
      name: (str) the name of the target and of the module
      cpu: (str) x86-64 psABI level that the optimized HLO is for
      frozen: (list[str]) patterns of variables that become constants. By default, none does, and all are parameters.
      tags: (list[str]) tags of the target and the bundle
      testonly: (bool) as in any rule
      visibility: (list[Label]) as in any rule
      xla_flags: (list[str]) additional XLA flags
      **model: the model and how to verify it: attributes of `tf_aot_export`, as in `tf_aot_library`
    """
    stages = {"stem": name, "tags": tags + ["manual"], "testonly": testonly, "visibility": ["//visibility:private"]}
    graph = name + ".export"
    export_model(
        name = graph,
        cpp_class = "hlo::Model",
        edge = "hlo",
        frozen = frozen,
        model = model,
        **stages
    )
    goldens = name + ".verify"
    tf_aot_verify(name = goldens, graph = graph, **stages)
    parts = hlo_targets(
        name = name,
        goldens = goldens,
        graph = graph,
        isa = {"cpu": cpu},
        tags = tags,
        testonly = testonly,
        visibility = visibility,
        xla_flags = xla_flags,
    )
    _hlo_product(
        name = name,
        goldens = goldens,
        graph = graph,
        tags = tags,
        testonly = testonly,
        visibility = visibility,
        **parts
    )

def hlo_targets(*, name, goldens, graph, isa, tags, testonly, visibility, xla_flags):
    """Declares NAME.hlo, NAME.stablehlo, and NAME_bundle. Bazel builds them only on request.

    Args:
      name: (str) name of the model's target
      goldens: (Label) target of the verify stage
      graph: (Label) target of the export stage
      isa: (dict) `cpu` or `isa`, as in `tf_aot_library`; the optimized HLO is for the highest of these levels
      tags: (list[str]) tags of the targets, besides manual
      testonly: (bool) as in any rule
      visibility: (list[Label]) of the bundle
      xla_flags: (list[str]) additional XLA flags

    Returns:
      (dict[str, str]) names of the first two, `hlo` and `stablehlo`
    """
    stages = {"graph": graph, "stem": name, "tags": tags + ["manual"], "testonly": testonly}
    parts = {"hlo": name + ".hlo", "stablehlo": name + ".stablehlo"}
    tf_aot_lower(
        name = parts["hlo"],
        visibility = ["//visibility:private"],
        xla_flags = xla_flags,
        **(stages | isa)
    )
    tf_aot_stablehlo(name = parts["stablehlo"], visibility = ["//visibility:private"], **stages)
    tf_aot_bundle(name = name + "_bundle", goldens = goldens, visibility = visibility, **(stages | parts))
    return parts
