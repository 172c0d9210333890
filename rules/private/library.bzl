"""All five stages in one macro."""

load("@bazel_skylib//rules:diff_test.bzl", "diff_test")
load("@rules_cc//cc:cc_test.bzl", "cc_test")
load("//runtime:copts.bzl", "CXX", "DEFAULT_LEVEL")
load(":common.bzl", "common_attributes")
load(":compile.bzl", "tf_aot_compile")
load(":export.bzl", "export_model")
load(":hlo.bzl", "hlo_targets")
load(":link.bzl", "tf_aot_link")
load(":package.bzl", "tf_aot_package")
load(":page.bzl", "tf_aot_page")
load(":render.bzl", "tf_aot_render")
load(":shared.bzl", "tf_aot_shared")
load(":stub.bzl", "tf_aot_stub")
load(":verify.bzl", "tf_aot_verify")

visibility(["//rules/..."])

def tf_aot_library(
        *,
        name,
        cpp_class,
        batch_sizes = [],
        checkpoint = None,
        compatible_with = None,
        config = None,
        config_golden = None,
        copts = [],
        cpu = None,
        data = [],
        debug_info = None,
        deprecation = None,
        deps = [],
        dims = {},
        embed_variables = True,
        entry_points = {},
        exec_properties = {},
        features = [],
        flush_denormals = True,
        frozen = None,
        gen_benchmark = True,
        gen_test = True,
        golden_calls = [],
        golden_steps = 3,
        graph = None,
        inputs = [],
        isa = None,
        linkopts = [],
        max_batch = None,
        measured = None,
        model = None,
        outputs = [],
        passes = ["*"],
        restricted_to = None,
        rows_independent = False,
        saved_model = None,
        saved_model_tags = ["serve"],
        saver = None,
        signature = {},
        stablehlo = None,
        strict = False,
        stub_golden = None,
        tags = [],
        taps = [],
        target_compatible_with = [],
        test_size = "small",
        testonly = None,
        unseen = [],
        visibility = None,
        weights = None,
        xla_flags = []):
    """Compiles a TensorFlow model into a C++ library, and tests its numbers against TensorFlow's.

    Exactly one of `model`, `saved_model`, `graph`, and `stablehlo` is required.

    Targets:
      NAME: the library (CcInfo). Include "PACKAGE/NAME.h". It has output groups (docs/reference/targets.md).
      NAME_test: runs several steps, and compares every output and every written variable with TensorFlow after each.
      NAME_config_test: with `config_golden`, compares it with the config. A failure prints the command that updates it.
      NAME_taps_test: with `taps`, compares values inside the model, and names the first to diverge (docs/guide/debugging.md).
      NAME_shared: libNAME_shared.so, with a C interface (docs/guide/embedding.md#a-shared-library). Bazel builds it only on
        request.
      NAME_stub: a library with the class and without the model (docs/guide/embedding.md#a-stub). Bazel builds it only on request.
      NAME_benchmark: times the model: `bazel run -c opt :NAME_benchmark -- --steps=1000`. As a test, it runs two steps.
      NAME_bundle: HLO, StableHLO, TensorFlow's numbers, and a script that replays them, in one archive (docs/guide/hlo.md).
        Bazel builds it only on request.
      NAME_package: headers, a static library, weights, and descriptions for CMake and pkg-config, in one archive for programs
        that Bazel doesn't build (docs/guide/without-bazel.md). Bazel builds it only on request.
      NAME_report: an HTML file that shows what was compiled: the graph, HLO before and after fusion, memory, time, numbers, names,
        sizes, and fingerprints (docs/guide/diagnostics.md#what-was-made). Bazel builds it only on request.
      NAME.export, NAME.compile, NAME.render, NAME.verify, NAME.hlo, NAME.stablehlo: the stages, if you need only one of them.

    Args:
      name: (str) the library's name
      cpp_class: (str) the generated class with its namespaces, `a::b::Class`
      batch_sizes: (list[int]) batch sizes to compile for, in increasing order. The class then takes any batch up to
        `max_batch`.
      checkpoint: (Label or list[Label]) with `graph`, the checkpoint that has the values of its variables: its `.index` file or
        its prefix in this package, or all its files
      compatible_with: (list[Label]) as in any rule, for all targets
      config: (Label) a partial tf2xla config to merge into the inferred ones; with `graph`, a complete config
      config_golden: (str) a checked-in copy of the config, in this package, so that reviews show changes to it
      copts: (list[str]) additional flags for the generated C++: the library, the test, and the benchmark. Each is one flag,
        and Make variables are expanded. The flags that guarantee numbers and CPU levels come later, so they win.
      cpu: (str) the only CPU level to compile for; by default, x86-64-v3 and x86-64-v4, or armv8-a on 64-bit ARM
        (docs/guide/cpu_levels.md)
      data: (list[Label]) files that the model's code reads
      debug_info: (Label) with `graph`, a GraphDebugInfo with the source lines of its nodes
      deprecation: (str) as in any rule, for the library
      deps: (list[Label]) Python libraries that the model's code imports
      dims: (dict[str, list]) sizes that inputs leave open: `{"x": [32, None, 3]}`; None keeps the model's own size
      embed_variables: (bool) whether the library contains the initial values of the variables. If False, the program calls
        Load(path) before it runs the model, and the file is in the library's runfiles.
      entry_points: (list[str] or dict[str, str]) names of the model's entry points, or a map from C++ names to them. By
        default, the model's first entry point, as `Run`.
      exec_properties: (dict[str, str]) as in any rule, for all targets, and so for the actions of all stages
      features: (list[str]) as in any rule, for the library, the test, and the benchmark
      flush_denormals: (bool) whether Run() treats denormal floats as zero, as TensorFlow does. This is up to a hundred times
        faster where values fall below 1e-38. If False, the caller's floating-point mode applies.
      frozen: (list[str]) patterns of the variables that become constants of the code; `!pattern` excludes some again. By
        default, all variables are frozen if the model writes none of them and compiles to one function; otherwise none is.
      gen_benchmark: (bool) whether to declare NAME_benchmark
      gen_test: (bool) whether to declare NAME_test
      golden_calls: (list[str]) the entry points that each verified step calls, in order. By default, all of them.
      golden_steps: (int) how many consecutive runs to verify
      graph: (Label) a GraphDef, or a MetaGraphDef (`.meta`)
      inputs: (list[str]) with `graph` and without `config`, its feeds, `node` or `node:port`. By default, its placeholders.
      isa: (list[str]) instead of `cpu`, several such levels. The class uses the fastest one that the machine supports.
      linkopts: (list[str]) flags for linking programs that depend on the library. Make variables are expanded.
      max_batch: (int) the largest batch; by default, the largest of `batch_sizes`
      measured: (Label) what `//tools:measure` wrote for this target. NAME_report then shows times and numbers
        (docs/guide/diagnostics.md#time-and-numbers). Nothing else reads it.
      model: (Label) a Python file that defines `input_fn()` and `model_fn(features, labels)`, or `model`, which is a function,
        a tf.function, a tf.Module, or a Keras model. It may define `golden_fn(step, rng)`, which returns the verified inputs.
      outputs: (list[str]) with `graph` and without `config`, its fetches. By default, the nodes that nothing consumes.
      passes: (list[str]) patterns of the passes that make the code faster; `!pattern` excludes some again. All by default.
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
      stub_golden: (str) the path of checked-in copies of NAME.h and NAME.stub.cc, without `.h` and `.cc`. NAME_stub is then made
        from them, without the toolchain, and tests compare them. A failure prints the command that updates a copy.
      tags: (list[str]) as in any rule, for all targets. For a large model, `resources:memory:16000` makes Bazel set aside 16,000 MB
        for each stage. Other sizes are rounded up to 4, 8, 16, 32, or 64 GB.
      taps: (list[str]) patterns of nodes inside the model; `!pattern` excludes some again. NAME_taps_test compares their
        values, and names the first one that diverges. The library doesn't change (docs/guide/debugging.md).
      target_compatible_with: (list[Label]) as in any rule, for all targets
      test_size: (str) Bazel's test size of the test and the benchmark
      testonly: (bool) as in any rule
      unseen: (list[str]) patterns of outputs and variables, by their TensorFlow names, that the test may be blind to. They
        cause no warning, and with `strict` no error.
      visibility: (list[Label]) as in any rule, for the library, its tests, the bundle, and the package
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
    levels = {"cpu": DEFAULT_LEVEL} if cpu == None and isa == None else {"cpu": cpu, "isa": isa}
    cpp = {"copts": copts, "features": features}
    exported_target = name + ".export"
    compiled = name + ".compile"
    sources = name + ".render"
    goldens = name + ".verify"
    export_model(name = exported_target, cpp_class = cpp_class, frozen = frozen, model = exported, **stages)
    tf_aot_compile(name = compiled, graph = exported_target, passes = passes, xla_flags = xla_flags, **(stages | levels))
    tf_aot_render(
        name = sources,
        embed_variables = embed_variables,
        flush_denormals = flush_denormals,
        graph = exported_target,
        **stages
    )
    tf_aot_verify(name = goldens, graph = exported_target, strict = strict, unseen = unseen, **stages)
    parts = hlo_targets(
        name = name,
        common = common,
        goldens = goldens,
        graph = exported_target,
        isa = levels,
        xla_flags = xla_flags,
    )
    tf_aot_link(
        name = name,
        compiled = compiled,
        deprecation = deprecation,
        goldens = goldens,
        graph = exported_target,
        linkopts = linkopts,
        sources = sources,
        **(common.public | cpp | parts)
    )
    tf_aot_package(
        name = name + "_package",
        compiled = compiled,
        graph = exported_target,
        linkopts = linkopts,
        sources = sources,
        stem = name,
        **(common.public | cpp | {"tags": common.private["tags"]})
    )
    tf_aot_page(
        name = name + "_report",
        compiled = compiled,
        graph = exported_target,
        hlo = parts["hlo"],
        measured = measured,
        stem = name,
        **(common.public | {"tags": common.private["tags"]})
    )
    tf_aot_shared(
        name = name + "_shared",
        features = features,
        library = name,
        **(common.public | {"tags": common.private["tags"]})
    )
    stub = {"sources": sources}
    if stub_golden:
        stub = {
            "header": stub_golden + ".h",
            "include": "/".join([part for part in [native.package_name(), name + ".h"] if part]),
            "source": stub_golden + ".cc",
        }
        _stub_tests(name = name, common = common, golden = stub_golden, sources = sources)
    tf_aot_stub(
        name = name + "_stub",
        features = features,
        **(common.public | stub | {"tags": common.private["tags"]})
    )
    files = [goldens]
    if not embed_variables:
        native.filegroup(
            name = name + ".variables",
            srcs = [name],
            output_group = "variables",
            **common.files
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
            **(common.files | {"testonly": True})
        )
        cc_test(
            name = "{}_{}".format(name, kind),
            size = test_size,
            srcs = ["{}.{}.cc".format(name, kind)],
            args = ["$(rootpath :{})".format(file) for file in files] + args,
            data = files,
            linkstatic = True,
            deps = [name, Label("//runtime:" + library)],
            **(common.test | cpp | {"copts": CXX + cpp["copts"]})
        )
    if taps:
        _taps_test(
            name = name,
            common = common,
            cpp = cpp,
            cpp_class = cpp_class,
            flush_denormals = flush_denormals,
            frozen = frozen,
            levels = levels,
            linkopts = linkopts,
            model = exported,
            passes = passes,
            taps = taps,
            test_size = test_size,
            xla_flags = xla_flags,
        )
    if config_golden:
        config_file = name + ".config"
        native.filegroup(
            name = config_file,
            srcs = [name],
            output_group = "config",
            **common.files
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
            **common.test
        )

def _stub_tests(*, name, common, golden, sources):
    """Declares NAME_stub_header_test and NAME_stub_source_test, which compare copies with what the render stage writes.

    Args:
      name: (str) the library's
      common: (struct) from `common_attributes`
      golden: (str) the copies' path without `.h` and `.cc`
      sources: (str) target of the render stage
    """
    package = native.package_name()
    for kind, made, copy in [("header", name + ".h", golden + ".h"), ("source", name + ".stub.cc", golden + ".cc")]:
        native.filegroup(
            name = "{}.stub.{}".format(name, kind),
            srcs = [sources],
            output_group = "stub_" + kind,
            **common.files
        )
        diff_test(
            name = "{}_stub_{}_test".format(name, kind),
            size = "small",
            failure_message = "The class changed. To accept the change: cp bazel-bin/{0}/{1} {0}/{2}".format(
                package,
                made,
                copy,
            ),
            file1 = copy,
            file2 = "{}.stub.{}".format(name, kind),
            **common.test
        )

def _taps_test(
        *,
        name,
        common,
        cpp,
        cpp_class,
        flush_denormals,
        frozen,
        levels,
        linkopts,
        model,
        passes,
        taps,
        test_size,
        xla_flags):
    """Declares all stages a second time, for a copy of the model with the taps as outputs, and a test of the result.

    Args:
      name: (str) the library's
      common: (struct) from `common_attributes`
      cpp: (dict) attributes of targets that compile C++: `copts`, `features`
      cpp_class: (str) the library's class
      flush_denormals: (bool) as in `tf_aot_library`
      frozen: (list[str]) as in `tf_aot_library`
      levels: (dict) `cpu` or `isa`, as in `tf_aot_library`
      linkopts: (list[str]) as in `tf_aot_library`
      model: (dict) attributes of the export stage
      passes: (list[str]) as in `tf_aot_library`
      taps: (list[str]) patterns of nodes
      test_size: (str) Bazel's test size
      xla_flags: (list[str]) as in `tf_aot_library`
    """
    stem = name + ".taps"
    private = common.private | {"testonly": True}
    stages = private | {"stem": stem}
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
        linkopts = linkopts,
        sources = sources,
        **(private | cpp)
    )
    native.filegroup(
        name = stem + ".test.cc",
        srcs = [sources],
        output_group = "test",
        **(common.files | {"testonly": True})
    )
    cc_test(
        name = name + "_taps_test",
        size = test_size,
        srcs = [stem + ".test.cc"],
        args = ["$(rootpath :{})".format(goldens)],
        data = [goldens],
        linkstatic = True,
        deps = [stem, Label("//runtime:verify")],
        **(common.test | cpp | {"copts": CXX + cpp["copts"]})
    )
