"""Stock tfcompile output as a peer in the benchmark, built with nothing of ours except the exported graph."""

load("@rules_python//python:defs.bzl", "PyInfo")
load("//rules:defs.bzl", "TfaotGraphInfo")

visibility(["//benchmarks/..."])

def _stock_impl(ctx):
    graph = ctx.attr.graph[TfaotGraphInfo]
    toolchain = ctx.toolchains["//rules:toolchain_type"].tfaot
    outputs = {
        "out_" + kind: ctx.actions.declare_file("{}.stock.{}".format(ctx.attr.stem, ending))
        for kind, ending in {
            "constants": "constants.o",
            "header": "h",
            "main": "cc",
            "object": "o",
        }.items()
    }
    inputs = {"config": graph.configs[0], "graph": graph.graph, "manifest": graph.manifest, "variables": graph.variables}
    start = ctx.actions.args()
    start.add_all(["-s", "-S", "-B", ctx.file._main.path])
    start.add_all(["--{}={}".format(name, file.path) for name, file in (inputs | outputs).items()])
    ctx.actions.run(
        executable = toolchain.interpreter or toolchain.interpreter_path,
        arguments = [start],
        env = {
            "HOME": "/nonexistent",
            "PATH": "/usr/bin:/bin",
            "PYTHONHASHSEED": "0",
            "PYTHONPATH": ":".join(["py"] + toolchain.imports.to_list()),
        },
        inputs = depset(
            inputs.values() + [ctx.file._main],
            transitive = [
                toolchain.packages,
                toolchain.interpreter_files,
                ctx.attr._tfaot[DefaultInfo].default_runfiles.files,
                ctx.attr._tfaot[PyInfo].transitive_sources,
            ],
        ),
        outputs = outputs.values(),
        mnemonic = "BenchmarkStock",
        progress_message = "Compiling %{label} with stock tfcompile",
        toolchain = "//rules:toolchain_type",
    )
    return [
        DefaultInfo(files = depset([outputs["out_object"], outputs["out_constants"], outputs["out_main"]])),
        OutputGroupInfo(
            header = depset([outputs["out_header"]]),
            variables = depset([graph.variables]),
        ),
    ]

stock_tfcompile = rule(
    implementation = _stock_impl,
    doc = "Compiles an exported graph with tfcompile's defaults, and writes a main that drives it.",
    attrs = {
        "graph": attr.label(doc = "Target of the export stage, or a tf_aot_library.", mandatory = True, providers = [TfaotGraphInfo]),
        "stem": attr.string(doc = "How output files' names start.", mandatory = True),
        "_main": attr.label(default = "//benchmarks:stock.py", allow_single_file = [".py"], cfg = "exec"),
        "_tfaot": attr.label(default = "//py/tfaot", providers = [PyInfo], cfg = "exec"),
    },
    toolchains = ["//rules:toolchain_type"],
)
