"""The export stage: from a model's Python source to a graph, its config, and the manifest."""

load("@rules_python//python:defs.bzl", "PyInfo")
load(":providers.bzl", "TfaotGraphInfo")
load(":stage.bzl", "TOOLCHAIN_TYPE", "run_stage", "stage_attrs")

visibility(["//rules/...", "//tests/..."])

def _tf_aot_export_impl(ctx):
    stem = ctx.attr.stem or ctx.label.name
    graph = ctx.actions.declare_file(stem + ".pb")
    config = ctx.actions.declare_file(stem + ".config.pbtxt")
    manifest = ctx.actions.declare_file(stem + ".model.json")
    variables = ctx.actions.declare_file(stem + ".variables.safetensors")
    golden_inputs = ctx.actions.declare_file(stem + ".golden_inputs.safetensors")
    sources = ctx.actions.declare_file(stem + ".sources.json")

    flags = ctx.actions.args()
    flags.add(ctx.file.model, format = "--model=%s")
    flags.add(ctx.attr.cpp_class, format = "--cpp_class=%s")
    flags.add(ctx.attr.edge, format = "--edge=%s")
    flags.add(ctx.attr.golden_steps, format = "--golden_steps=%s")
    if ctx.file.config:
        flags.add(ctx.file.config, format = "--user_config=%s")
    flags.add(graph, format = "--out_graph=%s")
    flags.add(config, format = "--out_config=%s")
    flags.add(manifest, format = "--out_manifest=%s")
    flags.add(variables, format = "--out_variables=%s")
    flags.add(golden_inputs, format = "--out_golden_inputs=%s")
    flags.add(sources, format = "--out_sources=%s")
    outputs = [graph, config, manifest, variables, golden_inputs, sources]
    run_stage(
        ctx,
        mnemonic = "TfaotExport",
        progress_message = "Exporting the graph of %{label}",
        flags = flags,
        inputs = [ctx.file.model] + ([ctx.file.config] if ctx.file.config else []) + ctx.files.data,
        outputs = outputs,
        deps = ctx.attr.deps,
    )
    return [
        DefaultInfo(files = depset(outputs)),
        TfaotGraphInfo(
            label = ctx.label,
            graph = graph,
            config = config,
            manifest = manifest,
            variables = variables,
            golden_inputs = golden_inputs,
            sources = sources,
        ),
    ]

tf_aot_export = rule(
    implementation = _tf_aot_export_impl,
    doc = "Runs a model's Python code and writes its graph, its tf2xla config, and the manifest.",
    attrs = {
        "config": attr.label(
            doc = "A partial tf2xla config in protobuf's text format. An entry is found by its node name; each field " +
                  "that it sets replaces the inferred one.",
            allow_single_file = [".pbtxt"],
        ),
        "cpp_class": attr.string(
            doc = "The generated class with its namespaces, `a::b::Class`.",
            mandatory = True,
        ),
        "data": attr.label_list(
            doc = "Files that the model's code reads.",
            allow_files = True,
        ),
        "deps": attr.label_list(
            doc = "Python libraries that the model's code imports.",
            providers = [PyInfo],
        ),
        "edge": attr.string(
            doc = "What the model's edge is met by, which decides what dtypes may cross it: `cpp`, a C++ program, or " +
                  "`hlo`, another compiler, for which bfloat16, float16, and complex numbers will do.",
            default = "cpp",
            values = ["cpp", "hlo"],
        ),
        "golden_steps": attr.int(
            doc = "How many runs in a row are verified.",
            default = 3,
        ),
        "model": attr.label(
            doc = "A Python file with `input_fn()`, which returns the placeholders `(features, labels)`, and " +
                  "`model_fn(features, labels)`, which returns the loss. `golden_fn(step, rng)` may give the inputs " +
                  "that are verified.",
            allow_single_file = [".py"],
            mandatory = True,
        ),
        "stem": attr.string(
            doc = "How output files' names start; the target's name by default.",
        ),
    } | stage_attrs("//tools:export.py"),
    provides = [TfaotGraphInfo],
    toolchains = [TOOLCHAIN_TYPE],
)
