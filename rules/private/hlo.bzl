"""The HLO stage: turns an exported graph into HLO and StableHLO for other compilers."""

load("//runtime:copts.bzl", "DEFAULT_LEVEL", "PLATFORMS")
load(":bundle.bzl", "tf_aot_bundle")
load(":common.bzl", "common_attributes")
load(":export.bzl", "export_model")
load(":isa.bzl", "isa_attrs", "isa_of", "platform_attrs", "platform_of")
load(":providers.bzl", "TfaotGoldensInfo", "TfaotGraphInfo", "TfaotHloInfo", "TfaotStablehloInfo")
load(":stage.bzl", "TOOLCHAIN_TYPE", "entries_of", "graph_attrs", "run_stage", "stage_attrs")
load(":verify.bzl", "tf_aot_verify")

visibility(["//rules/...", "//tests/..."])

def _tf_aot_lower_impl(ctx):
    graph = ctx.attr.graph[TfaotGraphInfo]
    made = []

    # HLO before optimization is for any machine, so no platform is refused.
    isa = isa_of(ctx, platform_of(ctx) or PLATFORMS["linux_x86_64"])
    for entry in entries_of(graph, ctx.attr.stem or ctx.label.name):
        files = struct(
            hlo = ctx.actions.declare_file(entry.stem + ".hlo.pb"),
            text = ctx.actions.declare_file(entry.stem + ".hlo.txt"),
            optimized = ctx.actions.declare_file(entry.stem + ".optimized_hlo.txt"),
            picture = ctx.actions.declare_file(entry.stem + ".hlo.svg"),
            optimized_picture = ctx.actions.declare_file(entry.stem + ".optimized_hlo.svg"),
        )
        flags = ctx.actions.args()
        flags.add(graph.manifest, format = "--manifest=%s")
        flags.add(graph.graph, format = "--graph=%s")
        flags.add(entry.config, format = "--config=%s")
        flags.add(graph.sources, format = "--sources=%s")
        flags.add(entry.entry_point, format = "--entry_point=%s")
        flags.add(entry.stem, format = "--name=%s")
        flags.add(isa[-1], format = "--cpu=%s")
        flags.add_all(ctx.attr.xla_flags, format_each = "--xla_flags=%s")
        flags.add(files.hlo, format = "--out_hlo=%s")
        flags.add(files.text, format = "--out_hlo_text=%s")
        flags.add(files.optimized, format = "--out_optimized_hlo=%s")
        flags.add(files.picture, format = "--out_picture=%s")
        flags.add(files.optimized_picture, format = "--out_optimized_picture=%s")
        run_stage(
            ctx,
            mnemonic = "TfaotHlo",
            progress_message = "Lowering {} of %{{label}} to HLO".format(entry.entry_point),
            flags = flags,
            inputs = [graph.manifest, graph.graph, entry.config],
            for_errors = [graph.sources],
            outputs = [files.hlo, files.text, files.optimized, files.picture, files.optimized_picture],
        )
        made.append(files)
    return [
        DefaultInfo(files = depset([
            file
            for f in made
            for file in (f.hlo, f.text, f.optimized, f.picture, f.optimized_picture)
        ])),
        TfaotHloInfo(
            label = ctx.label,
            hlo = [files.hlo for files in made],
            text = [files.text for files in made],
            optimized = [files.optimized for files in made],
            picture = [files.picture for files in made],
            optimized_picture = [files.optimized_picture for files in made],
        ),
    ]

tf_aot_lower = rule(
    implementation = _tf_aot_lower_impl,
    doc = "Lowers an exported graph to HLO, before and after optimization for the highest given CPU level, and draws it.",
    attrs = {
        "xla_flags": attr.string_list(
            doc = "Additional XLA flags, `--xla_…=…`.",
        ),
    } | platform_attrs() | isa_attrs() | graph_attrs() | stage_attrs("//tools:hlo.py", "//py/tfaot/hlo"),
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
        "report": graph.report,
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
        batch_sizes = [],
        checkpoint = None,
        compatible_with = None,
        config = None,
        cpu = DEFAULT_LEVEL,
        data = [],
        debug_info = None,
        deprecation = None,
        deps = [],
        dims = {},
        entry_points = {},
        exec_properties = {},
        frozen = [],
        golden_calls = [],
        golden_steps = 3,
        graph = None,
        inputs = [],
        max_batch = None,
        model = None,
        outputs = [],
        restricted_to = None,
        rows_independent = False,
        saved_model = None,
        saved_model_tags = ["serve"],
        saver = None,
        signature = {},
        stablehlo = None,
        strict = False,
        tags = [],
        target_compatible_with = [],
        testonly = None,
        unseen = [],
        visibility = None,
        weights = None,
        xla_flags = []):
    """Turns a TensorFlow model into HLO for another compiler.

    The requirements of C++ don't apply: the target can have any name, and inputs and outputs can be bfloat16, float16, or
    complex. Exactly one of `model`, `saved_model`, `graph`, and `stablehlo` is required.

    Targets:
      NAME: HLO before optimization as text, protobuf message, and drawing, HLO after optimization, and StableHLO.
        Output groups: hlo, optimized_hlo, stablehlo, hlo_graph, graph, config, manifest, report, variables, goldens.
      NAME_bundle: all of these in one archive, with TensorFlow's numbers and a script that replays them (manual).
      NAME.export, NAME.verify, NAME.hlo, NAME.stablehlo: the stages, if you need only one of them.

    Args:
      name: (str) the name of the target and of the module
      batch_sizes: (list[int]) batch sizes to make modules for, in increasing order
      checkpoint: (Label or list[Label]) with `graph`, the checkpoint that has the values of its variables: its `.index` file or
        its prefix in this package, or all its files
      compatible_with: (list[Label]) as in any rule, for all targets
      config: (Label) a partial tf2xla config to merge into the inferred ones; with `graph`, a complete config
      cpu: (str) the CPU level that the optimized HLO is for; by default, x86-64-v4, or armv8-a on 64-bit ARM
      data: (list[Label]) files that the model's code reads
      debug_info: (Label) with `graph`, a GraphDebugInfo with the source lines of its nodes
      deprecation: (str) as in any rule, for the target
      deps: (list[Label]) Python libraries that the model's code imports
      dims: (dict[str, list]) sizes that inputs leave open: `{"x": [32, None, 3]}`; None keeps the model's own size
      entry_points: (list[str] or dict[str, str]) names of the model's entry points, or a map from C++ names to them. By
        default, the model's first entry point, as `Run`.
      exec_properties: (dict[str, str]) as in any rule, for all targets, and so for the actions of all stages
      frozen: (list[str]) patterns of variables that become constants; `!pattern` excludes some again. By default, none does,
        and all are parameters.
      golden_calls: (list[str]) the entry points that each verified step calls, in order. By default, all of them.
      golden_steps: (int) how many consecutive runs to verify
      graph: (Label) a GraphDef, or a MetaGraphDef (`.meta`)
      inputs: (list[str]) with `graph` and without `config`, its feeds, `node` or `node:port`. By default, its placeholders.
      max_batch: (int) the largest batch; by default, the largest of `batch_sizes`
      model: (Label) a Python file that defines `input_fn()` and `model_fn(features, labels)`, or `model`, which is a function,
        a tf.function, a tf.Module, or a Keras model. It may define `golden_fn(step, rng)`, which returns the verified inputs.
      outputs: (list[str]) with `graph` and without `config`, its fetches. By default, the nodes that nothing consumes.
      restricted_to: (list[Label]) as in any rule, for all targets
      rows_independent: (bool) with `batch_sizes`, whether you vouch that no row of a batch affects another row's results,
        where the analysis can't show it
      saved_model: (Label) a SavedModel: a filegroup of its folder, or a rule that makes such a folder
      saved_model_tags: (list[str]) tags of the SavedModel's meta graph
      saver: (Label) with `graph`, a SaverDef that says how to restore `checkpoint`
      signature: (dict[str, str]) dtypes and shapes of a Python file's parameters: `{"x": "float32[64, None]"}`
      stablehlo: (Label) a program in StableHLO, such as `jax.export` writes: a portable artifact, or text
      strict: (bool) whether it is an error, and not a warning, if no comparison would notice that most values of an output or a
        variable are wrong. The flag `--@rules_tfaot//rules:strict` makes it one for all targets.
      tags: (list[str]) as in any rule, for all targets. For a large model, `resources:memory:16000` makes Bazel set aside 16,000 MB
        for each stage. Other sizes are rounded up to 4, 8, 16, 32, or 64 GB.
      target_compatible_with: (list[Label]) as in any rule, for all targets
      testonly: (bool) as in any rule
      unseen: (list[str]) patterns of outputs and variables, by their TensorFlow names, that the test may be blind to. They
        cause no warning, and with `strict` no error.
      visibility: (list[Label]) as in any rule, for the target and the bundle
      weights: (Label or dict[str, str]) a safetensors file with values for all variables, which replace the model's own initial
        values. Or a dictionary with some of `file`, such a file; `dtype`, in which frozen weights of matrix products are stored,
        `bfloat16` or `int8`; and `tolerance`, how much that may change outputs, relative to an output's largest value.
      xla_flags: (list[str]) additional XLA flags, `--xla_…=…`
    """
    exported = {
        "batch_sizes": batch_sizes,
        "checkpoint": checkpoint,
        "config": config,
        "data": data,
        "debug_info": debug_info,
        "deps": deps,
        "dims": dims,
        "entry_points": entry_points,
        "golden_calls": golden_calls,
        "golden_steps": golden_steps,
        "graph": graph,
        "inputs": inputs,
        "max_batch": max_batch,
        "model": model,
        "outputs": outputs,
        "rows_independent": rows_independent,
        "saved_model": saved_model,
        "saved_model_tags": saved_model_tags,
        "saver": saver,
        "signature": signature,
        "stablehlo": stablehlo,
        "weights": weights,
    }
    common = common_attributes(
        compatible_with = compatible_with,
        exec_properties = exec_properties,
        restricted_to = restricted_to,
        tags = tags,
        target_compatible_with = target_compatible_with,
        testonly = testonly,
        visibility = visibility,
    )
    stages = common.private | {"stem": name}
    exported_target = name + ".export"
    export_model(
        name = exported_target,
        cpp_class = "hlo::Model",
        edge = "hlo",
        frozen = frozen,
        model = exported,
        **stages
    )
    goldens = name + ".verify"
    tf_aot_verify(name = goldens, graph = exported_target, strict = strict, unseen = unseen, **stages)
    parts = hlo_targets(
        name = name,
        common = common,
        goldens = goldens,
        graph = exported_target,
        isa = {"cpu": cpu},
        xla_flags = xla_flags,
    )
    _hlo_product(
        name = name,
        deprecation = deprecation,
        goldens = goldens,
        graph = exported_target,
        **(common.public | parts)
    )

def hlo_targets(*, name, common, goldens, graph, isa, xla_flags):
    """Declares NAME.hlo, NAME.stablehlo, and NAME_bundle. Bazel builds them only on request.

    Args:
      name: (str) name of the model's target
      common: (struct) from `common_attributes`
      goldens: (Label) target of the verify stage
      graph: (Label) target of the export stage
      isa: (dict) `cpu` or `isa`, as in `tf_aot_library`; the optimized HLO is for the highest of these levels
      xla_flags: (list[str]) additional XLA flags

    Returns:
      (dict[str, str]) names of the first two, `hlo` and `stablehlo`
    """
    of = {"graph": graph, "stem": name}
    parts = {"hlo": name + ".hlo", "stablehlo": name + ".stablehlo"}
    tf_aot_lower(name = parts["hlo"], xla_flags = xla_flags, **(common.private | of | isa))
    tf_aot_stablehlo(name = parts["stablehlo"], **(common.private | of))
    bundle = common.public | {"tags": common.private["tags"]}
    tf_aot_bundle(name = name + "_bundle", goldens = goldens, **(bundle | of | parts))
    return parts
