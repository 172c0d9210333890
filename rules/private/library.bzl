"""All five stages in one macro."""

load("@bazel_skylib//rules:diff_test.bzl", "diff_test")
load("@rules_cc//cc:defs.bzl", "cc_test")
load(":compile.bzl", "tf_aot_compile")
load(":export.bzl", "export_model")
load(":hlo.bzl", "hlo_targets")
load(":isa.bzl", "DEFAULT_LEVEL")
load(":link.bzl", "tf_aot_link")
load(":render.bzl", "tf_aot_render")
load(":verify.bzl", "tf_aot_verify")

visibility(["//rules/..."])

def tf_aot_library(
        *,
        name,
        cpp_class,
        config_golden = None,
        cpu = None,
        embed_variables = True,
        flush_denormals = True,
        frozen = None,
        gen_benchmark = True,
        gen_test = True,
        isa = None,
        passes = ["*"],
        tags = [],
        taps = [],
        test_size = "small",
        testonly = None,
        unseen = [],
        visibility = None,
        xla_flags = [],
        **model):
    """Compiles a TensorFlow model into a C++ library, and tests its numbers against TensorFlow's.

    Targets:
      NAME: the library (CcInfo). Include "PACKAGE/NAME.h". Output groups: graph, config, manifest, variables, goldens, object,
        header, sources, hlo, optimized_hlo, stablehlo, hlo_graph.
      NAME_test: compares the linked code with TensorFlow.
      NAME_config_test: with `config_golden`, compares it with the config. A failure prints the command that updates it.
      NAME_taps_test: with `taps`, compares values inside the model with TensorFlow's, in the order of execution.
      NAME_benchmark: times the model: `bazel run -c opt :NAME_benchmark -- --steps=1000`. As a test, it runs two steps.
      NAME_bundle: HLO, StableHLO, TensorFlow's numbers, and a script that replays them, in one archive (manual).
      NAME.export, NAME.compile, NAME.render, NAME.verify, NAME.hlo, NAME.stablehlo: the stages, if you need only one of them.

    Args:
      name: (str) the library's name
      cpp_class: (str) the generated class with its namespaces, `a::b::Class`
      config_golden: (str) a checked-in copy of the config, in this package, so that reviews show changes to it
      cpu: (str) the x86-64 psABI level to compile for; x86-64-v3 by default
      embed_variables: (bool) whether the library contains the initial values of the variables. If False, the program calls
        Load(path) before it runs the model, and the file is in the library's runfiles.
      flush_denormals: (bool) whether Run() treats denormal floats as zero, as TensorFlow does. This is up to a hundred times
        faster where values fall below 1e-38. If False, the caller's floating-point mode applies.
      frozen: (list[str]) patterns of the variables that become constants of the code; `!pattern` excludes some again. By
        default, all variables are frozen if the model writes none of them and compiles to one function; otherwise none is.
      gen_benchmark: (bool) whether to declare NAME_benchmark
      gen_test: (bool) whether to declare NAME_test
      isa: (list[str]) instead of `cpu`, several such levels. The class uses the highest one that the machine supports.
      passes: (list[str]) patterns of the passes that make the code faster; `!pattern` excludes some again. All by default.
      tags: (list[str]) tags of the library and its tests
      taps: (list[str]) patterns of nodes inside the model; `!pattern` excludes some again. NAME_taps_test compares their
        values, and names the first one that diverges. The library doesn't change (docs/guide/debugging.md).
      test_size: (str) Bazel's test size of the test and the benchmark
      testonly: (bool) as in any rule
      unseen: (list[str]) patterns of outputs and variables, by their TensorFlow names, that the test may be blind to. Without
        a matching pattern, it is an error if no comparison would notice that one of them is wrong.
      visibility: (list[Label]) as in any rule
      xla_flags: (list[str]) additional XLA flags
      **model: the model and how to verify it. Give exactly one of the first three; all are attributes of `tf_aot_export`.
          model: (Label) a Python file
          saved_model: (Label) the files of a SavedModel, or a rule that makes its folder
          graph: (Label) a GraphDef; with `config`, `checkpoint`, `saver`, `debug_info`, `inputs`, `outputs`
          config: (Label) a partial tf2xla config to merge into the inferred ones; with `graph`, a complete config
          entry_points: (list[str] or dict[str, str]) names of the model's entry points, or a map from C++ names to them
          signature: (dict[str, str]) dtypes and shapes of a Python file's parameters: `{"x": "float32[64, None]"}`
          dims: (dict[str, list]) sizes that inputs leave open: `{"x": [32, None, 3]}`; None keeps the model's own size
          batch_sizes: (list[int]) batch sizes to compile for. The class then takes any batch up to `max_batch`.
          max_batch: (int) the largest batch; by default, the largest of `batch_sizes`
          rows_independent: (bool) with `batch_sizes`, whether you vouch that no row of a batch affects another row's results,
            where the analysis can't show it
          weights: (Label) a safetensors file with values for all variables
          saved_model_tags: (list[str]) tags of the meta graph
          golden_steps: (int) how many consecutive runs to verify; 3 by default
          golden_calls: (list[str]) the entry points that each step calls, in order
          deps: (list[Label]) Python libraries that the model's code imports
          data: (list[Label]) files that the model's code reads
    """
    stages = {"stem": name, "tags": tags + ["manual"], "testonly": testonly, "visibility": ["//visibility:private"]}
    levels = {"cpu": DEFAULT_LEVEL} if cpu == None and isa == None else {"cpu": cpu, "isa": isa}
    graph = name + ".export"
    compiled = name + ".compile"
    sources = name + ".render"
    goldens = name + ".verify"
    export_model(name = graph, cpp_class = cpp_class, frozen = frozen, model = model, **stages)
    tf_aot_compile(name = compiled, graph = graph, passes = passes, xla_flags = xla_flags, **(stages | levels))
    tf_aot_render(
        name = sources,
        embed_variables = embed_variables,
        flush_denormals = flush_denormals,
        graph = graph,
        **stages
    )
    tf_aot_verify(name = goldens, graph = graph, unseen = unseen, **stages)
    parts = hlo_targets(
        name = name,
        goldens = goldens,
        graph = graph,
        isa = levels,
        tags = tags,
        testonly = testonly,
        visibility = visibility,
        xla_flags = xla_flags,
    )
    tf_aot_link(
        name = name,
        compiled = compiled,
        goldens = goldens,
        graph = graph,
        sources = sources,
        tags = tags,
        testonly = testonly,
        visibility = visibility,
        **parts
    )
    files = [goldens]
    if not embed_variables:
        native.filegroup(
            name = name + ".variables",
            srcs = [name],
            output_group = "variables",
            tags = ["manual"],
            testonly = testonly,
            visibility = ["//visibility:private"],
        )
        files.append(name + ".variables")
    for kind, library, args, wanted in [
        ("test", "verify", [], gen_test),
        ("benchmark", "benchmark", ["--steps=2"], gen_benchmark),
    ]:
        if not wanted:
            continue
        native.filegroup(
            name = "{}.{}.cc".format(name, kind),
            srcs = [sources],
            output_group = kind,
            tags = ["manual"],
            testonly = True,
            visibility = ["//visibility:private"],
        )
        cc_test(
            name = "{}_{}".format(name, kind),
            size = test_size,
            srcs = ["{}.{}.cc".format(name, kind)],
            args = ["$(rootpath :{})".format(file) for file in files] + args,
            data = files,
            linkstatic = True,
            tags = tags,
            visibility = visibility,
            deps = [name, Label("//runtime:" + library)],
        )
    if taps:
        _taps_test(
            name = name,
            cpp_class = cpp_class,
            flush_denormals = flush_denormals,
            frozen = frozen,
            levels = levels,
            model = model,
            passes = passes,
            tags = tags,
            taps = taps,
            test_size = test_size,
            visibility = visibility,
            xla_flags = xla_flags,
        )
    if config_golden:
        config_file = name + ".config"
        native.filegroup(
            name = config_file,
            srcs = [name],
            output_group = "config",
            tags = ["manual"],
            testonly = testonly,
            visibility = ["//visibility:private"],
        )
        package = native.package_name()
        diff_test(
            name = name + "_config_test",
            size = "small",
            failure_message = "The config changed. To accept the change: cp bazel-bin/{0}/{1}.config.pbtxt {0}/{2}".format(
                package,
                name,
                config_golden,
            ),
            file1 = config_golden,
            file2 = config_file,
            tags = tags,
        )

def _taps_test(
        *,
        name,
        cpp_class,
        flush_denormals,
        frozen,
        levels,
        model,
        passes,
        tags,
        taps,
        test_size,
        visibility,
        xla_flags):
    """Declares all stages a second time, for a copy of the model with the taps as outputs, and a test of the result.

    Args:
      name: (str) the library's
      cpp_class: (str) the library's class
      flush_denormals: (bool) as in `tf_aot_library`
      frozen: (list[str]) as in `tf_aot_library`
      levels: (dict) `cpu` or `isa`, as in `tf_aot_library`
      model: (dict) attributes of the export stage
      passes: (list[str]) as in `tf_aot_library`
      tags: (list[str]) tags of the library
      taps: (list[str]) patterns of nodes
      test_size: (str) Bazel's test size
      visibility: (list[Label]) of the test
      xla_flags: (list[str]) as in `tf_aot_library`
    """
    stem = name + ".taps"
    stages = {"stem": stem, "tags": tags + ["manual"], "testonly": True, "visibility": ["//visibility:private"]}
    graph = stem + ".export"
    sources = stem + ".render"
    goldens = stem + ".verify"
    export_model(name = graph, cpp_class = cpp_class, frozen = frozen, model = model | {"taps": taps}, **stages)
    tf_aot_compile(name = stem + ".compile", graph = graph, passes = passes, xla_flags = xla_flags, **(stages | levels))
    tf_aot_render(name = sources, flush_denormals = flush_denormals, graph = graph, show_sources = True, **stages)

    # NAME_test already reports what it can't see.
    tf_aot_verify(name = goldens, graph = graph, unseen = ["*"], **stages)
    tf_aot_link(
        name = stem,
        compiled = stem + ".compile",
        goldens = goldens,
        graph = graph,
        sources = sources,
        tags = tags + ["manual"],
        testonly = True,
        visibility = ["//visibility:private"],
    )
    native.filegroup(
        name = stem + ".test.cc",
        srcs = [sources],
        output_group = "test",
        tags = ["manual"],
        testonly = True,
        visibility = ["//visibility:private"],
    )
    cc_test(
        name = name + "_taps_test",
        size = test_size,
        srcs = [stem + ".test.cc"],
        args = ["$(rootpath :{})".format(goldens)],
        data = [goldens],
        linkstatic = True,
        tags = tags,
        visibility = visibility,
        deps = [stem, Label("//runtime:verify")],
    )
