"""Checks what the stages' rules declare, before anything runs."""

load("@bazel_skylib//lib:unittest.bzl", "analysistest", "asserts")
load("@rules_cc//cc/common:cc_info.bzl", "CcInfo")
load(
    "//rules:defs.bzl",
    "TfaotGoldensInfo",
    "TfaotGraphInfo",
    "TfaotHloInfo",
    "TfaotObjectInfo",
    "TfaotSourcesInfo",
    "TfaotStablehloInfo",
    "tf_aot_compile",
    "tf_aot_export",
)

def _basenames(files):
    return sorted([file.basename for file in files])

def _stage_test_impl(ctx):
    """Protects what a stage passes to the next: actions with its mnemonic, and a provider with the files that they write."""
    env = analysistest.begin(ctx)
    target = analysistest.target_under_test(env)
    providers = {
        "TfaotCompile": TfaotObjectInfo,
        "TfaotHlo": TfaotHloInfo,
        "TfaotName": TfaotGraphInfo,
        "TfaotRender": TfaotSourcesInfo,
        "TfaotStablehlo": TfaotStablehloInfo,
        "TfaotVerify": TfaotGoldensInfo,
    }
    actions = [action for action in analysistest.target_actions(env) if action.mnemonic == ctx.attr.mnemonic]
    asserts.equals(env, ctx.attr.actions, len(actions))
    outputs = _basenames([
        file
        for action in actions
        for file in action.outputs.to_list()
        if not file.basename.endswith(".unused_inputs")  # for Bazel only
    ])
    asserts.equals(env, sorted(ctx.attr.outputs), outputs)
    asserts.equals(env, sorted(outputs + ctx.attr.hands_on), _basenames(target[DefaultInfo].files.to_list()))
    info = target[providers[ctx.attr.mnemonic]]
    asserts.equals(env, target.label, info.label)
    return analysistest.end(env)

stage_test = analysistest.make(_stage_test_impl, attrs = {
    "actions": attr.int(default = 1),
    "hands_on": attr.string_list(doc = "Files of the stage before that belong to its output."),
    "mnemonic": attr.string(),
    "outputs": attr.string_list(),
})

def _exported_once_test_impl(ctx):
    """Protects build times: what is made of a model exports nothing again, but names a class, and links to the model's files."""
    env = analysistest.begin(ctx)
    target = analysistest.target_under_test(env)
    made = [action.mnemonic for action in analysistest.target_actions(env) if action.mnemonic.startswith("Tfaot")]
    asserts.equals(env, ctx.attr.actions, made)
    links = {
        file.basename: action.inputs.to_list()[0].basename
        for action in analysistest.target_actions(env)
        if action.mnemonic == "Symlink"
        for file in action.outputs.to_list()
    }
    graph = target[TfaotGraphInfo]
    asserts.equals(env, ctx.attr.graph, links[graph.graph.basename])
    for file in [graph.variables, graph.golden_inputs, graph.sources] + graph.configs + graph.report:
        asserts.true(env, file.basename in links, file.basename + " is made again")
    return analysistest.end(env)

exported_once_test = analysistest.make(_exported_once_test_impl, attrs = {
    "actions": attr.string_list(),
    "graph": attr.string(),
})

def _strict_test_impl(ctx):
    """Protects users' builds: what a test can't see is an error only if the attribute or the flag says so."""
    env = analysistest.begin(ctx)
    (action,) = [action for action in analysistest.target_actions(env) if action.mnemonic == "TfaotVerify"]
    asserts.equals(env, ctx.attr.strict, "--strict" in action.argv)
    return analysistest.end(env)

_STRICT = str(Label("//rules:strict"))

strict_test = analysistest.make(
    _strict_test_impl,
    attrs = {"strict": attr.bool(default = True)},
    config_settings = {_STRICT: True},
)

lenient_test = analysistest.make(
    _strict_test_impl,
    attrs = {"strict": attr.bool()},
    config_settings = {_STRICT: False},
)

def _inputs_test_impl(ctx):
    """Protects incremental builds and the sandbox: a stage reads only what it needs, with Python packages as one directory."""
    env = analysistest.begin(ctx)
    action = [action for action in analysistest.target_actions(env) if action.mnemonic == ctx.attr.mnemonic][0]
    files = action.inputs.to_list()
    names = [file.basename for file in files]
    for name in ctx.attr.reads:
        asserts.true(env, name in names, "{} doesn't read {}".format(ctx.attr.mnemonic, name))
    for name in ctx.attr.reads_not:
        asserts.false(env, name in names, "{} waits for {}".format(ctx.attr.mnemonic, name))
    packages = {file.short_path.split("py/tfaot/")[1].rpartition("/")[0]: None for file in files if "py/tfaot/" in file.short_path}
    asserts.equals(env, sorted(ctx.attr.packages + ["worker"]), sorted(packages.keys()))
    asserts.true(env, "site-packages" in names)
    asserts.true(env, len(files) < 170, "{} inputs: each is a link in the sandbox".format(len(files)))
    asserts.equals(env, "0", action.env["PYTHONHASHSEED"])

    # Without it, one of 25 graphs whose sizes depend on values kills the compiler: XLA reads memory that nothing has written.
    asserts.equals(env, "glibc.malloc.tcache_count=0", action.env["GLIBC_TUNABLES"])
    asserts.equals(env, "1", action.env["PYTHONSAFEPATH"])

    # What a worker's key contains. If it depended on the stage or the model, each would import TensorFlow again.
    asserts.equals(env, ["-s", "-S", "-B", "tools/stage.py"], action.argv[1:5])
    python_path = action.env["PYTHONPATH"].split(":")
    asserts.equals(env, "py", python_path[0])
    asserts.true(env, len(python_path) == 2 and python_path[1].endswith("tfaot_tensorflow/site-packages"), str(python_path))
    asserts.true(env, "stamp" in names, "another TensorFlow doesn't restart the worker")
    return analysistest.end(env)

inputs_test = analysistest.make(_inputs_test_impl, attrs = {
    "mnemonic": attr.string(),
    "packages": attr.string_list(doc = "Folders below py/tfaot: a change in any other runs nothing again."),
    "reads": attr.string_list(),
    "reads_not": attr.string_list(),
})

def _library_test_impl(ctx):
    """Protects what users depend on: the library is a C++ library, with every output group and one public header."""
    env = analysistest.begin(ctx)
    target = analysistest.target_under_test(env)
    headers = target[CcInfo].compilation_context.direct_public_headers
    asserts.equals(env, ["small_aot.h"], _basenames(headers))
    groups = {
        "config": ["small_aot.config.pbtxt"],
        "goldens": ["small_aot.goldens.safetensors"],
        "graph": ["small_aot.pb"],
        "header": ["small_aot.h"],
        "hlo": ["small_aot.hlo.pb", "small_aot.hlo.txt"],
        "hlo_graph": ["small_aot.hlo.dot"],
        "explain": [
            "small_aot.fingerprint.json",
            "small_aot.model.json",
            "small_aot.pb",
            "small_aot.sources.json",
            "small_aot.variables.safetensors",
        ],
        "manifest": ["small_aot.fingerprint.json", "small_aot.model.json", "small_aot.passes.json"],
        "object": ["small_aot.constants.o", "small_aot.x86-64.kernels.o"],
        "optimized_hlo": ["small_aot.optimized_hlo.txt"],
        "stablehlo": ["small_aot.stablehlo.mlir", "small_aot.stablehlo.mlirbc"],
        "variables": ["small_aot.variables.safetensors"],
    }
    for name, files in groups.items():
        asserts.equals(env, files, _basenames(target[OutputGroupInfo][name].to_list()))

    # Users who need only the C++ library don't wait for HLO.
    for file in target[DefaultInfo].files.to_list() + target[DefaultInfo].default_runfiles.files.to_list():
        asserts.false(env, "hlo" in file.basename, "{} is built by default".format(file.basename))
    for provider in (TfaotGraphInfo, TfaotObjectInfo, TfaotSourcesInfo):
        asserts.true(env, provider in target)
    asserts.equals(env, ["x86-64"], target[TfaotObjectInfo].isa)
    return analysistest.end(env)

library_test = analysistest.make(_library_test_impl)

def _family_test_impl(ctx):
    """Protects models with several functions: one class, one set of variables, and files for each function in a fixed order."""
    env = analysistest.begin(ctx)
    target = analysistest.target_under_test(env)
    asserts.equals(
        env,
        ["family_aot.h"],
        _basenames(target[CcInfo].compilation_context.direct_public_headers),
    )
    functions = ["Again.b1", "Again.b4", "Forward.b1", "Forward.b4"]
    entries = ["Again", "Forward"]
    groups = {
        "config": ["family_aot.%s.config.pbtxt" % entry for entry in entries],
        "graph": ["family_aot.pb"],
        "hlo_graph": ["family_aot.%s.hlo.dot" % entry for entry in entries],
        "manifest": [
            "family_aot.{}.{}.json".format(f, kind)
            for f in functions
            for kind in ("fingerprint", "passes")
        ] + ["family_aot.model.json"],
        "object": [
            "family_aot.{}.{}.o".format(f, kind)
            for f in functions
            for kind in ("constants", "x86-64-v3.kernels", "x86-64.kernels")
        ],
        "optimized_hlo": ["family_aot.%s.optimized_hlo.txt" % entry for entry in entries],
        "variables": ["family_aot.variables.safetensors"],
    }
    for name, files in groups.items():
        asserts.equals(env, files, _basenames(target[OutputGroupInfo][name].to_list()))
    graph = target[TfaotGraphInfo]
    asserts.equals(env, (["Forward", "Again"], [1, 4]), (graph.entry_points, graph.batch_sizes))
    compiled = target[TfaotObjectInfo]
    order = ["Forward.b1", "Forward.b4", "Again.b1", "Again.b4"]
    levels = ["x86-64", "x86-64-v3"]  # lowest first
    asserts.equals(env, levels, compiled.isa)
    asserts.equals(
        env,
        ["family_aot.{}.{}.kernels.o".format(f, level) for f in order for level in levels],
        [f.basename for f in compiled.objects],
    )
    asserts.equals(env, ["family_aot.%s.executor.h" % f for f in order], [f.basename for f in compiled.headers])
    asserts.equals(
        env,
        {level: ["family_aot.{}.{}.executor.cc".format(f, level) for f in order] for level in levels},
        {level: [f.basename for f in files] for level, files in compiled.sources.items()},
    )

    # Not part of the library, so it must be available when it runs.
    asserts.false(env, target[TfaotSourcesInfo].embed)
    runfiles = _basenames(target[DefaultInfo].default_runfiles.files.to_list())
    asserts.true(env, "family_aot.variables.safetensors" in runfiles, "the variables are no runfile: %s" % runfiles)
    for action in analysistest.target_actions(env):
        if action.mnemonic == "CppCompile":
            names = _basenames(action.inputs.to_list())
            asserts.false(env, "family_aot.variables.safetensors" in names, "the library waits for the variables")
    return analysistest.end(env)

family_test = analysistest.make(_family_test_impl)

def _one_function_test_impl(ctx):
    """Protects incremental builds: each function is compiled from its own config, in parallel with the others."""
    env = analysistest.begin(ctx)
    actions = [action for action in analysistest.target_actions(env) if action.mnemonic == "TfaotCompile"]
    for action in actions:
        configs = [name for name in _basenames(action.inputs.to_list()) if name.endswith(".config.pbtxt")]
        header = [name for name in _basenames(action.outputs.to_list()) if name.endswith(".executor.h")][0]
        asserts.equals(env, [header.rpartition(".b")[0] + ".config.pbtxt"], configs)
        asserts.false(env, "--tolerant" in action.argv, "a pass that raises an exception must be an error in this repository")
    return analysistest.end(env)

one_function_test = analysistest.make(_one_function_test_impl)

def _compile_flags_test_impl(ctx):
    """Protects speed and size: generated code is optimized in every build mode, what computes with -O3 for its level."""
    env = analysistest.begin(ctx)
    levels = analysistest.target_under_test(env)[TfaotObjectInfo].isa
    for source, given, never in [
        (
            ctx.attr.executor % level,
            ["-O3", "-fno-fast-math", "-march=" + level],
            ["-ffast-math", "-march=native"] + ["-march=" + other for other in levels if other != level],
        )
        for level in levels
    ] + [
        (ctx.attr.source, ["-Os", "-fno-fast-math"], ["-ffast-math", "-march=native"] + ["-march=" + level for level in levels]),
    ]:
        actions = [
            action
            for action in analysistest.target_actions(env)
            if action.mnemonic == "CppCompile" and action.argv and [arg for arg in action.argv if arg.endswith("/" + source)]
        ]
        asserts.true(env, len(actions) > 0, source + " isn't compiled")
        for action in actions:
            for flag in given:
                asserts.true(env, flag in action.argv, "{} is missing".format(flag))
            for flag in never:
                asserts.false(env, flag in action.argv, "{} is set".format(flag))
    return analysistest.end(env)

compile_flags_test = analysistest.make(_compile_flags_test_impl, attrs = {
    "executor": attr.string(),
    "source": attr.string(),
})

def _wrong_provider_test_impl(ctx):
    """Protects readers of an error: a stage that gets the wrong target says which provider it needs."""
    env = analysistest.begin(ctx)
    asserts.expect_failure(env, "TfaotGraphInfo")
    return analysistest.end(env)

wrong_provider_test = analysistest.make(_wrong_provider_test_impl, expect_failure = True)

_PACKAGES = {
    "export": [
        "",
        "core",
        "export",
        "export/rewrites",
        "export/rewrites/random",
        "export/batch_independence",
        "export/sources",
        "graph",
        "xla",
    ],
    "compile": [
        "",
        "compile",
        "compile/passes",
        "compile/passes/loops",
        "compile/passes/padding",
        "compile/program",
        "compile/program/codegen",
        "compile/program/codegen/templates",
        "compile/program/objects",
        "compile/program/packing",
        "compile/program/passes",
        "compile/program/thunks",
        "compile/program/values",
        "core",
        "graph",
        "tfcompile",
        "xla",
    ],
    "render": ["", "core", "render", "render/templates"],
    "verify": ["", "core", "graph", "verify", "xla"],
    "hlo": ["", "core", "graph", "hlo", "tfcompile", "xla"],
    "stablehlo": ["", "core", "graph", "hlo", "tfcompile", "xla"],
}

def rules_test_suite(*, name, library, family):
    """Declares all tests in this file.

    Args:
      name: (str) the suite's name
      library: (str) a tf_aot_library target named small_aot, for x86-64
      family: (str) another one named family_aot, for x86-64 and x86-64-v3, with entry points Forward and Again, batches of
        1 and 4, variables in a file, and a strict test
    """
    tests = []
    for stage, mnemonic, outputs in [
        ("compile", "TfaotCompile", [
            "small_aot.constants.o",
            "small_aot.executor.h",
            "small_aot.fingerprint.S",
            "small_aot.fingerprint.json",
            "small_aot.hlo_snapshot.pb",
            "small_aot.passes.json",
            "small_aot.program.json",
            "small_aot.x86-64.executor.cc",
            "small_aot.x86-64.kernels.o",
        ]),
        ("render", "TfaotRender", [
            "small_aot.cc",
            "small_aot.h",
            "small_aot.stub.cc",
            "small_aot.variables.S",
            "small_aot_benchmark.cc",
            "small_aot_test.cc",
        ]),
        ("verify", "TfaotVerify", ["small_aot.goldens.safetensors"]),
        ("hlo", "TfaotHlo", [
            "small_aot.hlo.dot",
            "small_aot.hlo.pb",
            "small_aot.hlo.txt",
            "small_aot.optimized_hlo.dot",
            "small_aot.optimized_hlo.txt",
        ]),
        ("stablehlo", "TfaotStablehlo", [
            "small_aot.stablehlo.mlir",
            "small_aot.stablehlo.mlirbc",
        ]),
    ]:
        stage_test(
            name = stage + "_test",
            mnemonic = mnemonic,
            outputs = outputs,
            target_under_test = "{}.{}".format(library, stage),
        )
        tests.append(stage + "_test")
    stage_test(
        name = "export_test",
        hands_on = ["small_aot." + file for file in ["config.pbtxt", "golden_inputs.safetensors", "pb", "sources.json", "variables.safetensors"]],
        mnemonic = "TfaotName",
        outputs = ["small_aot.model.json", "small_aot.weights.S"],
        target_under_test = library + ".export",
    )
    tests.append("export_test")
    for kind, attributes, actions, graph in [
        ("class", {"cpp_class": "other::Small"}, ["TfaotName"], "small_aot.model.pb"),
        ("hlo", {"edge": "hlo"}, ["TfaotName"], "small_aot.model.raw.pb"),
        ("taps", {"taps": ["*"]}, ["TfaotExport", "TfaotName"], "small_taps.tapped.pb"),
    ]:
        stem = "small_" + kind
        tf_aot_export(name = name + "." + stem, model = library + ".model", stem = stem, tags = ["manual"], testonly = True, **attributes)
        exported_once_test(
            name = kind + "_exported_once_test",
            actions = actions,
            graph = graph,
            target_under_test = name + "." + stem,
        )
        tests.append(kind + "_exported_once_test")
    for stage, mnemonic, packages, reads, reads_not in [
        ("model", "TfaotExport", _PACKAGES["export"], ["small.py"], []),
        ("export", "TfaotName", ["", "core"], ["small_aot.model.export.json", "small_aot.model.weights.txt"], ["small_aot.pb", "small_aot.variables.safetensors"]),
        ("compile", "TfaotCompile", _PACKAGES["compile"], ["small_aot.pb"], ["small_aot.variables.safetensors", "small_aot.weights.S", "small.py"]),
        ("render", "TfaotRender", _PACKAGES["render"], ["small_aot.model.json"], ["small_aot.x86-64.kernels.o", "small_aot.executor.h", "small_aot.pb"]),
        ("verify", "TfaotVerify", _PACKAGES["verify"], ["small_aot.variables.safetensors"], ["small_aot.x86-64.kernels.o", "small.py"]),
        ("hlo", "TfaotHlo", _PACKAGES["hlo"], ["small_aot.pb"], ["small_aot.x86-64.kernels.o", "small_aot.variables.safetensors"]),
        ("stablehlo", "TfaotStablehlo", _PACKAGES["stablehlo"], ["small_aot.pb"], ["small_aot.hlo.pb", "small_aot.variables.safetensors"]),
    ]:
        inputs_test(
            name = stage + "_inputs_test",
            mnemonic = mnemonic,
            packages = packages,
            reads = reads,
            reads_not = reads_not,
            target_under_test = "{}.{}".format(library, stage),
        )
        tests.append(stage + "_inputs_test")
    strict_test(name = "strict_flag_test", target_under_test = library + ".verify")
    lenient_test(name = "lenient_test", target_under_test = library + ".verify")
    lenient_test(name = "strict_attribute_test", strict = True, target_under_test = family + ".verify")
    tests += ["strict_flag_test", "lenient_test", "strict_attribute_test"]
    library_test(name = "library_test", target_under_test = library)
    for kind, executor, source, target in [
        ("", "small_aot.%s.executor.cc", "small_aot.cc", library),
        ("family_", "family_aot.Forward.b4.%s.executor.cc", "family_aot.cc", family),
    ]:
        compile_flags_test(
            name = kind + "compile_flags_test",
            executor = executor,
            source = source,
            target_under_test = target,
        )
        tests.append(kind + "compile_flags_test")
    tf_aot_compile(name = "wrong_provider", graph = library + ".verify", tags = ["manual"], testonly = True)
    wrong_provider_test(name = "wrong_provider_test", target_under_test = ":wrong_provider")
    tests += ["library_test", "wrong_provider_test"]
    for stage, mnemonic, actions, outputs in [
        ("compile", "TfaotCompile", 4, [
            "family_aot.{}.{}".format(function, kind)
            for function in ("Again.b1", "Again.b4", "Forward.b1", "Forward.b4")
            for kind in (
                "constants.o",
                "executor.h",
                "fingerprint.S",
                "fingerprint.json",
                "hlo_snapshot.pb",
                "passes.json",
                "program.json",
                "x86-64.executor.cc",
                "x86-64.kernels.o",
                "x86-64-v3.executor.cc",
                "x86-64-v3.kernels.o",
            )
        ]),
        ("stablehlo", "TfaotStablehlo", 2, [
            "family_aot.{}.stablehlo.{}".format(entry, kind)
            for entry in ("Again", "Forward")
            for kind in ("mlir", "mlirbc")
        ]),
    ]:
        stage_test(
            name = "family_{}_test".format(stage),
            actions = actions,
            mnemonic = mnemonic,
            outputs = outputs,
            target_under_test = "{}.{}".format(family, stage),
        )
        tests.append("family_{}_test".format(stage))
    family_test(name = "family_test", target_under_test = family)
    one_function_test(name = "one_function_test", target_under_test = family + ".compile")
    tests += ["family_test", "one_function_test"]
    native.test_suite(name = name, tests = tests)
