"""The report on a compiled model: one HTML file."""

load(":providers.bzl", "TfaotGraphInfo", "TfaotHloInfo", "TfaotObjectInfo")
load(":stage.bzl", "TOOLCHAIN_TYPE", "run_stage", "stage_attrs")

visibility(["//rules/..."])

def _tf_aot_page_impl(ctx):
    graph = ctx.attr.graph[TfaotGraphInfo]
    stem = ctx.attr.stem or ctx.label.name
    page = ctx.actions.declare_file(stem + "_report.html")
    (report,) = [file for file in graph.report if file.extension == "json"]
    request = {
        "name": stem,
        "label": "//{}:{}".format(ctx.label.package, stem),
        "clusters": ctx.file.clusters,
        "graph": ctx.file.uncut or graph.graph,
        "manifest": graph.manifest,
        "measured": ctx.file.measured,
        "report": report,
        "sources": graph.sources,
    }
    if ctx.attr.compiled:
        compiled = ctx.attr.compiled[TfaotObjectInfo]
        request |= {
            "fingerprints": compiled.fingerprints,
            "objects": compiled.objects + compiled.constants,
            "passes": compiled.passes,
            "programs": compiled.programs,
        }
    if ctx.attr.hlo:
        hlo = ctx.attr.hlo[TfaotHloInfo]
        request |= {
            "drawings": hlo.drawing,
            "hlo": hlo.text,
            "optimized": hlo.optimized,
            "optimized_drawings": hlo.optimized_drawing,
        }
    run_stage(
        ctx,
        mnemonic = "TfaotPage",
        progress_message = "Writing the report on %{label}",
        request = request,
        outputs = {"page": page},
    )
    return [DefaultInfo(files = depset([page]))]

tf_aot_page = rule(
    implementation = _tf_aot_page_impl,
    doc = "Shows in STEM_report.html what was compiled: the graph, HLO, memory, time, numbers, names, sizes, and fingerprints.",
    attrs = {
        "clusters": attr.label(
            doc = "The plan of the cluster stage, if the graph was cut.",
            allow_single_file = [".json"],
        ),
        "compiled": attr.label(
            doc = "Target of the compile stage.",
            providers = [TfaotObjectInfo],
        ),
        "graph": attr.label(
            doc = "Target of the export stage.",
            mandatory = True,
            providers = [TfaotGraphInfo],
        ),
        "hlo": attr.label(
            doc = "Target of `tf_aot_lower`.",
            providers = [TfaotHloInfo],
        ),
        "measured": attr.label(
            doc = "What `//tools:measure` wrote.",
            allow_single_file = [".json"],
        ),
        "stem": attr.string(
            doc = "The start of the file's name. By default, the target's name.",
        ),
        "uncut": attr.label(
            doc = "The graph before the cluster stage cut it, which the page then shows.",
            allow_single_file = True,
        ),
    } | stage_attrs("//tools:page.py", "//py/tfaot/page"),
    toolchains = [TOOLCHAIN_TYPE],
)
