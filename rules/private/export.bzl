"""The export stage: from a described model to a graph, its configs, and the manifest."""

load("@rules_python//python:defs.bzl", "PyInfo")
load(":files.bzl", "CONFIG", "EXPORT", "NAME", "entries_of")
load(":providers.bzl", "TfaotGraphInfo", "TfaotModelInfo")
load(":stage.bzl", "TOOLCHAIN_TYPE", "declare", "run_stage", "stage_attrs")

visibility(["//rules/...", "//tests/..."])

def _declared(ctx, model, stem, extension):
    """Declares an output. It has another name if a rule of the user makes a file of the model under this one."""
    folder = [part for part in (ctx.bin_dir.path, ctx.label.workspace_root, ctx.label.package) if part]
    taken = [file.path for file in model.inputs + [file for file in model.export_request.values() if type(file) == "File"]]
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
    outputs = declare(ctx, stem, _REPORTS)
    run_stage(
        ctx,
        mnemonic = "TfaotReport",
        progress_message = "Checking what stands in the way of compiling %{label}",
        request = model.request,
        inputs = model.inputs,
        outputs = outputs,
        code = model.code,
        library = ctx.attr._report_library,
        main = ctx.file._report_main,
    )
    return outputs.values()

_REPORTS = {"html": ".report.html", "json": ".report.json", "text": ".report.txt"}

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
    files = {name: _declared(ctx, model, stem, ending) for name, ending in EXPORT.items()}
    configs = [_declared(ctx, model, entry.stem, CONFIG) for entry in entries_of(model.entry_points, stem)]
    run_stage(
        ctx,
        mnemonic = "TfaotExport",
        progress_message = "Exporting the graph of %{label}",
        request = model.request | model.export_request | {"edge": edge, "taps": taps},
        inputs = model.inputs,
        outputs = files | {"configs": configs},
        code = model.code,
        library = ctx.attr._export_library,
        main = ctx.file._export_main,
    )
    return TfaotGraphInfo(
        label = ctx.label,
        cpp_class = "",
        configs = configs,
        entry_points = model.entry_points,
        batch_sizes = model.batch_sizes,
        buckets = model.buckets,
        own_names = model.own_names,
        program = model.program,
        report = report,
        **files
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

    def named(file, extension, stem = stem):
        """Gives a file of the model this target's name."""
        link = _declared(ctx, model, stem, extension)
        ctx.actions.symlink(output = link, target_file = file)
        return link

    outputs = declare(ctx, stem, NAME)
    run_stage(
        ctx,
        mnemonic = "TfaotName",
        progress_message = "Naming the class of %{label}",
        request = {"manifest": graph.manifest, "weights": graph.weights, "cpp_class": ctx.attr.cpp_class},
        outputs = outputs,
    )
    result = TfaotGraphInfo(
        label = ctx.label,
        cpp_class = ctx.attr.cpp_class,
        configs = [
            named(config, CONFIG, entry.stem)
            for entry, config in zip(entries_of(graph.entry_points, stem), graph.configs)
        ],
        entry_points = graph.entry_points,
        batch_sizes = graph.batch_sizes,
        buckets = graph.buckets,
        own_names = graph.own_names,
        program = graph.program,
        report = [named(file, ".report." + file.extension) for file in graph.report],
        **({name: named(getattr(graph, name), ending) for name, ending in EXPORT.items() if name not in NAME} | outputs)
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
