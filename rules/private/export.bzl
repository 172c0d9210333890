"""The export stage: from a described model to a graph, its configs, and the manifest."""

load("@rules_python//python:defs.bzl", "PyInfo")
load(":providers.bzl", "TfaotGraphInfo", "TfaotModelInfo")
load(":stage.bzl", "TOOLCHAIN_TYPE", "run_stage", "stage_attrs")

visibility(["//rules/...", "//tests/..."])

_CONFIG = ".config.pbtxt"
_GOLDEN_INPUTS = ".golden_inputs.safetensors"
_GRAPH = ".pb"
_SOURCES = ".sources.json"
_VARIABLES = ".variables.safetensors"

def opening(ctx, model, *, export = False):
    """Returns the flags of a stage that opens a model, and the files that it reads.

    Args:
      ctx: the rule's context
      model: (TfaotModelInfo) the model
      export: (bool) whether the stage is export, which has more flags

    Returns:
      (Args, list[File])
    """
    flags = ctx.actions.args()
    inputs = list(model.inputs)
    for part in [model] + ([model.export] if export else []):
        flags.add_all(part.flags)
        for named in part.files:
            flags.add(named.file, format = named.format)
    if export:
        inputs += [named.file for named in model.export.files]
    return flags, inputs

def _declared(ctx, model, stem, extension):
    """Declares an output. It has another name if a rule of the user makes a file of the model under this one."""
    folder = [part for part in (ctx.bin_dir.path, ctx.label.workspace_root, ctx.label.package) if part]
    taken = [file.path for file in model.inputs + [named.file for named in model.export.files]]
    if "/".join(folder + [stem + extension]) in taken:
        stem += ".exported"
    return ctx.actions.declare_file(stem + extension)

def report(ctx, model, stem):
    """Declares the report stage, which reads the model itself, because a model with blockers may have no graph to export.

    Args:
      ctx: the context of a rule with `exporting_attrs`
      model: (TfaotModelInfo) the model
      stem: (str) the start of the output files' names

    Returns:
      (list[File]) the report as text, JSON, and HTML
    """
    flags, inputs = opening(ctx, model)
    outputs = {kind: ctx.actions.declare_file("{}.report.{}".format(stem, end)) for kind, end in _REPORTS.items()}
    for kind, file in outputs.items():
        flags.add(file, format = "--out_{}=%s".format(kind))
    run_stage(
        ctx,
        mnemonic = "TfaotReport",
        progress_message = "Checking what stands in the way of compiling %{label}",
        flags = flags,
        inputs = inputs,
        outputs = outputs.values(),
        code = model.code,
        library = ctx.attr._report_library,
        main = ctx.file._report_main,
    )
    return outputs.values()

_REPORTS = {"html": "html", "json": "json", "text": "txt"}

def exported(ctx, model, *, stem, edge = "cpp", taps = [], report = []):
    """Declares the export action.

    Args:
      ctx: the context of a rule with `exporting_attrs`
      model: (TfaotModelInfo) the model
      stem: (str) the start of the output files' names
      edge: (str) what uses the model: `cpp`, a C++ program, for which float16, bfloat16, and complex inputs and outputs are converted
        to and from their bits, or `hlo`, another compiler, for which they aren't
      taps: (list[str]) patterns of nodes whose values become outputs, before the model's own outputs
      report: (list[File]) from `report`

    Returns:
      (TfaotGraphInfo) the graph, whose class has no name
    """
    many = len(model.entry_points) > 1
    graph = _declared(ctx, model, stem, _GRAPH)
    configs = [
        _declared(ctx, model, stem + ("." + name if many else ""), _CONFIG)
        for name in model.entry_points
    ]
    manifest = ctx.actions.declare_file(stem + ".export.json")
    variables = ctx.actions.declare_file(stem + _VARIABLES)
    golden_inputs = ctx.actions.declare_file(stem + _GOLDEN_INPUTS)
    sources = ctx.actions.declare_file(stem + _SOURCES)
    weights = ctx.actions.declare_file(stem + ".weights.txt")
    flags, inputs = opening(ctx, model, export = True)
    flags.add(edge, format = "--edge=%s")
    flags.add_all(taps, format_each = "--tap=%s")
    flags.add(graph, format = "--out_graph=%s")
    flags.add_all(configs, format_each = "--out_config=%s")
    flags.add(manifest, format = "--out_manifest=%s")
    flags.add(variables, format = "--out_variables=%s")
    flags.add(golden_inputs, format = "--out_golden_inputs=%s")
    flags.add(sources, format = "--out_sources=%s")
    flags.add(weights, format = "--out_weights=%s")
    run_stage(
        ctx,
        mnemonic = "TfaotExport",
        progress_message = "Exporting the graph of %{label}",
        flags = flags,
        inputs = inputs,
        outputs = [graph] + configs + [manifest, variables, golden_inputs, sources, weights],
        code = model.code,
        library = ctx.attr._export_library,
        main = ctx.file._export_main,
    )
    return TfaotGraphInfo(
        label = ctx.label,
        cpp_class = "",
        graph = graph,
        configs = configs,
        entry_points = model.entry_points,
        batch_sizes = model.batch_sizes,
        manifest = manifest,
        variables = variables,
        golden_inputs = golden_inputs,
        program = model.program,
        sources = sources,
        weights = weights,
        report = report,
    )

def exporting_attrs():
    """Returns the attributes of a rule that calls `exported` or `report`.

    Returns:
      (dict[str, Attribute]) private attributes
    """
    return {
        "_export_library": attr.label(default = "//py/tfaot/export:with_calibrate", providers = [PyInfo], cfg = "exec"),
        "_export_main": attr.label(default = "//tools:export.py", allow_single_file = [".py"], cfg = "exec"),
        "_report_library": attr.label(default = "//py/tfaot/preflight:with_calibrate", providers = [PyInfo], cfg = "exec"),
        "_report_main": attr.label(default = "//tools:report.py", allow_single_file = [".py"], cfg = "exec"),
    }

def graph_files(graph):
    """Returns all files of a TfaotGraphInfo but its report and its program."""
    return [graph.graph] + graph.configs + [
        graph.manifest,
        graph.variables,
        graph.golden_inputs,
        graph.sources,
        graph.weights,
    ]

def _tf_aot_export_impl(ctx):
    model = ctx.attr.model[TfaotModelInfo]
    stem = ctx.attr.stem or ctx.label.name
    graph = model.hlo if ctx.attr.edge == "hlo" else ctx.attr.model[TfaotGraphInfo]
    if ctx.attr.taps:
        graph = exported(ctx, model, stem = stem + ".tapped", edge = ctx.attr.edge, taps = ctx.attr.taps, report = model.report)

    def named(file, extension, part = ""):
        """Gives a file of the model this target's name."""
        link = _declared(ctx, model, stem + part, extension)
        ctx.actions.symlink(output = link, target_file = file)
        return link

    many = len(model.entry_points) > 1
    manifest = ctx.actions.declare_file(stem + ".model.json")
    weights = ctx.actions.declare_file(stem + ".weights.S")
    flags = ctx.actions.args()
    flags.add(graph.manifest, format = "--manifest=%s")
    flags.add(graph.weights, format = "--weights=%s")
    flags.add(ctx.attr.cpp_class, format = "--cpp_class=%s")
    flags.add(manifest, format = "--out_manifest=%s")
    flags.add(weights, format = "--out_weights=%s")
    run_stage(
        ctx,
        mnemonic = "TfaotName",
        progress_message = "Naming the class of %{label}",
        flags = flags,
        inputs = [graph.manifest, graph.weights],
        outputs = [manifest, weights],
    )
    result = TfaotGraphInfo(
        label = ctx.label,
        cpp_class = ctx.attr.cpp_class,
        graph = named(graph.graph, _GRAPH),
        configs = [
            named(config, _CONFIG, "." + name if many else "")
            for name, config in zip(model.entry_points, graph.configs)
        ],
        entry_points = graph.entry_points,
        batch_sizes = graph.batch_sizes,
        manifest = manifest,
        variables = named(graph.variables, _VARIABLES),
        golden_inputs = named(graph.golden_inputs, _GOLDEN_INPUTS),
        program = graph.program,
        sources = named(graph.sources, _SOURCES),
        weights = weights,
        report = [named(file, ".report." + file.extension) for file in graph.report],
    )
    return [DefaultInfo(files = depset(graph_files(result))), result]

tf_aot_export = rule(
    implementation = _tf_aot_export_impl,
    doc = "Names the class of a `tf_model`, whose graph, tf2xla configs, and variables serve all such targets, and writes its manifest.",
    attrs = {
        "cpp_class": attr.string(
            doc = "The generated class with its namespaces, `a::b::Class`.",
            default = "hlo::Model",
        ),
        "edge": attr.string(
            doc = "What uses the model: `cpp`, a C++ program, for which float16, bfloat16, and complex inputs and outputs are " +
                  "converted to and from their bits, or `hlo`, another compiler, for which they aren't.",
            default = "cpp",
            values = ["cpp", "hlo"],
        ),
        "model": attr.label(
            doc = "A `tf_model`.",
            mandatory = True,
            providers = [TfaotModelInfo, TfaotGraphInfo],
        ),
        "stem": attr.string(
            doc = "The start of the output files' names. By default, the target's name.",
        ),
        "taps": attr.string_list(
            doc = "Patterns of nodes whose values become outputs, before the model's own outputs; `!pattern` excludes some again. " +
                  "With them, the model is exported once more.",
        ),
    } | exporting_attrs() | stage_attrs("//tools:name.py", "//py/tfaot/core"),
    provides = [TfaotGraphInfo],
    toolchains = [TOOLCHAIN_TYPE],
)
