"""The report on a compiled model: one HTML file."""

load(":providers.bzl", "TfaotGraphInfo", "TfaotHloInfo", "TfaotObjectInfo")
load(":stage.bzl", "TOOLCHAIN_TYPE", "run_stage", "stage_attrs")

visibility(["//rules/..."])

def _tf_aot_page_impl(ctx):
    graph = ctx.attr.graph[TfaotGraphInfo]
    compiled = ctx.attr.compiled[TfaotObjectInfo]
    hlo = ctx.attr.hlo[TfaotHloInfo]
    page = ctx.actions.declare_file((ctx.attr.stem or ctx.label.name) + "_report.html")
    files = {
        "fingerprints": compiled.fingerprints,
        "hlo": hlo.text,
        "objects": compiled.objects + compiled.constants,
        "optimized": hlo.optimized,
        "passes": compiled.passes,
        "pictures": hlo.picture,
        "sources": compiled.sources[compiled.isa[-1]],
    }
    flags = ctx.actions.args()
    flags.add(ctx.attr.stem or ctx.label.name, format = "--name=%s")
    flags.add(graph.manifest, format = "--manifest=%s")
    for name, each in files.items():
        flags.add_all(each, format_each = "--" + name + "=%s")
    flags.add(page, format = "--out_page=%s")
    run_stage(
        ctx,
        mnemonic = "TfaotPage",
        progress_message = "Writing the report on %{label}",
        flags = flags,
        inputs = [graph.manifest] + [file for each in files.values() for file in each],
        outputs = [page],
    )
    return [DefaultInfo(files = depset([page]))]

tf_aot_page = rule(
    implementation = _tf_aot_page_impl,
    doc = "Shows in STEM_report.html what was compiled: names, kernels, memory, HLO, sizes, and fingerprints.",
    attrs = {
        "compiled": attr.label(
            doc = "Target of the compile stage.",
            mandatory = True,
            providers = [TfaotObjectInfo],
        ),
        "graph": attr.label(
            doc = "Target of the export stage.",
            mandatory = True,
            providers = [TfaotGraphInfo],
        ),
        "hlo": attr.label(
            doc = "Target of `tf_aot_lower`.",
            mandatory = True,
            providers = [TfaotHloInfo],
        ),
        "stem": attr.string(
            doc = "The start of the file's name. By default, the target's name.",
        ),
    } | stage_attrs("//tools:page.py", "//py/tfaot/page"),
    toolchains = [TOOLCHAIN_TYPE],
)
