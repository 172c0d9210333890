"""All five stages in one macro."""

load("@bazel_skylib//rules:diff_test.bzl", "diff_test")
load("@rules_cc//cc:cc_test.bzl", "cc_test")
load("//runtime:copts.bzl", "CXX")
load(":common.bzl", "common_attributes", "moved")
load(":compile.bzl", "tf_aot_compile")
load(":export.bzl", "tf_aot_export")
load(":hlo.bzl", "hlo_targets")
load(":isa.bzl", "levels_of")
load(":link.bzl", "tf_aot_link")
load(":model.bzl", "model_target")
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
        model = None,
        config_golden = None,
        copts = [],
        cpu = None,
        embed_variables = True,
        flush_denormals = True,
        gen_benchmark = True,
        gen_test = True,
        linkopts = [],
        measured = None,
        passes = ["*"],
        strict = False,
        stub_golden = None,
        taps = [],
        test_size = "small",
        unseen = [],
        xla_flags = [],
        **kwargs):
    """Compiles a TensorFlow model into a C++ library, and tests its numbers against TensorFlow's.

    What describes the model is in `tf_model`. A file that needs no description is a model by itself.

    Targets:
      NAME: the library (CcInfo). Include "PACKAGE/NAME.h". It has output groups (docs/reference/targets.md).
      NAME_test: runs several steps, and compares every output and every written variable with TensorFlow after each.
      NAME_config_test: with `config_golden`, compares it with the config. A failure prints the command that updates it.
      NAME_taps_test: with `taps`, compares values inside the model, and names the first to diverge (docs/guide/debugging.md).
      NAME_shared: libNAME_shared.so, with a C interface (docs/guide/embedding.md#a-shared-library). Bazel builds it only on
        request.
      NAME_stub: a library with the class and without the model (docs/guide/embedding.md#a-stub). Bazel builds it only on request.
      NAME_benchmark: times the model: `bazel run -c opt :NAME_benchmark -- --steps=1000`. As a test, it runs two steps,
        and has the tag `benchmark`: `--test_tag_filters=-benchmark` leaves it out.
      NAME_bundle: HLO, StableHLO, TensorFlow's numbers, and a script that replays them, in one archive (docs/guide/hlo.md).
        Bazel builds it only on request.
      NAME_package: headers, a static library, weights, and descriptions for CMake and pkg-config, in one archive for programs
        that Bazel doesn't build (docs/guide/without-bazel.md). Bazel builds it only on request.
      NAME_report: an HTML file that shows what was compiled: the graph, HLO before and after fusion, memory, time, numbers, names,
        sizes, and fingerprints (docs/guide/diagnostics.md#what-was-made). Bazel builds it only on request.
      NAME.model: the `tf_model`, if `model` is a file.
      NAME.export, NAME.compile, NAME.render, NAME.verify, NAME.hlo, NAME.stablehlo: the stages, if you need only one of them.

    Args:
      name: (str) the library's name
      cpp_class: (str) the generated class with its namespaces, `a::b::Class`
      model: (Label) a `tf_model`, or the file of a model: Python, a GraphDef, or StableHLO
      config_golden: (str) a checked-in copy of the config, in this package, so that reviews show changes to it
      copts: (list[str]) additional flags for the generated C++: the library, the test, and the benchmark. Each is one flag,
        and Make variables are expanded. The flags that guarantee numbers and CPU levels come later, so they win.
      cpu: (str or list[str]) the CPU level to compile for, or several, of which the class uses the fastest that the machine supports;
        by default, x86-64-v3 and x86-64-v4, or armv8-a on 64-bit ARM (docs/guide/cpu_levels.md)
      embed_variables: (bool) whether the library contains the initial values of the variables. If False, the program calls
        Load(path) before it runs the model, and the file is in the library's runfiles.
      flush_denormals: (bool) whether Run() treats denormal floats as zero, as TensorFlow does. This is up to a hundred times
        faster where values fall below 1e-38. If False, the caller's floating-point mode applies.
      gen_benchmark: (bool) whether to declare NAME_benchmark
      gen_test: (bool) whether to declare NAME_test
      linkopts: (list[str]) flags for linking programs that depend on the library. Make variables are expanded.
      measured: (Label) what `//tools:measure` wrote for this target. NAME_report then shows times and numbers
        (docs/guide/diagnostics.md#time-and-numbers). Nothing else reads it.
      passes: (list[str]) patterns of the passes that make the code faster (docs/reference/passes.md); `!pattern` excludes some
        again. All by default.
      strict: (bool) whether it is an error, and not a warning, if no comparison would notice that most values of an output or a
        variable are wrong. The flag `--@rules_tfaot//rules:strict` makes it one for all targets.
      stub_golden: (str) the path of checked-in copies of NAME.h and NAME.stub.cc, without `.h` and `.cc`. NAME_stub is then made
        from them, without the toolchain, and tests compare them. A failure prints the command that updates a copy.
      taps: (list[str]) patterns of nodes inside the model; `!pattern` excludes some again. NAME_taps_test compares their
        values, and names the first one that diverges. The library doesn't change (docs/guide/debugging.md).
      test_size: (str) Bazel's test size of the test and the benchmark
      unseen: (list[str]) patterns of outputs and variables, by their TensorFlow names, that the test may be blind to. They
        cause no warning, and with `strict` no error.
      xla_flags: (list[str]) additional XLA flags, `--xla_…=…`
      **kwargs: the attributes that any rule has: `compatible_with`, `exec_properties`, `restricted_to`, `tags`,
        `target_compatible_with`, and `testonly` of all targets, `visibility` of those listed here, `features` of those with C++,
        and `deprecation` of the library. For a large model, the tag `resources:memory:16000` makes Bazel set aside 16,000 MB for
        each stage. Other sizes are rounded up to 4, 8, 16, 32, or 64 GB. A `tf_model` has such attributes of its own.
    """
    if moved(name = name, model = model, attributes = kwargs):
        return
    common = common_attributes(kwargs)
    stages = common.private | {"stem": name}
    levels = levels_of(cpu)
    cpp = common.cpp | {"copts": copts}
    exported = name + ".export"
    compiled = name + ".compile"
    sources = name + ".render"
    goldens = name + ".verify"
    model = model_target(name = name, common = common.private, model = model)
    tf_aot_export(name = exported, cpp_class = cpp_class, model = model, **stages)
    tf_aot_compile(name = compiled, graph = exported, passes = passes, xla_flags = xla_flags, **(stages | levels))
    tf_aot_render(
        name = sources,
        embed_variables = embed_variables,
        flush_denormals = flush_denormals,
        graph = exported,
        **stages
    )
    tf_aot_verify(name = goldens, graph = exported, strict = strict, unseen = unseen, **stages)
    parts = hlo_targets(
        name = name,
        common = common,
        goldens = goldens,
        graph = exported,
        levels = levels,
        xla_flags = xla_flags,
    )
    tf_aot_link(
        name = name,
        compiled = compiled,
        goldens = goldens,
        graph = exported,
        linkopts = linkopts,
        sources = sources,
        **(common.public | common.main | cpp | parts)
    )
    tf_aot_package(
        name = name + "_package",
        compiled = compiled,
        graph = exported,
        linkopts = linkopts,
        sources = sources,
        stem = name,
        **(common.public | cpp | {"tags": common.private["tags"]})
    )
    tf_aot_page(
        name = name + "_report",
        compiled = compiled,
        graph = exported,
        hlo = parts["hlo"],
        measured = measured,
        stem = name,
        **(common.public | {"tags": common.private["tags"]})
    )
    tf_aot_shared(
        name = name + "_shared",
        library = name,
        **(common.public | common.cpp | {"tags": common.private["tags"]})
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
        **(common.public | common.cpp | stub | {"tags": common.private["tags"]})
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
    for kind, library, args, tags, wanted in [
        ("test", "verify", [], [], gen_test),
        ("benchmark", "benchmark", ["--steps=2"], ["benchmark"], gen_benchmark),
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
            **(common.test | cpp | {"copts": CXX + cpp["copts"], "tags": common.test["tags"] + tags})
        )
    if taps:
        _taps_test(
            name = name,
            common = common,
            cpp = cpp,
            cpp_class = cpp_class,
            flush_denormals = flush_denormals,
            levels = levels,
            linkopts = linkopts,
            model = model,
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
      levels: (dict) from `levels_of`
      linkopts: (list[str]) as in `tf_aot_library`
      model: (Label) the `tf_model`
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
    tf_aot_export(name = graph, cpp_class = cpp_class, model = model, taps = taps, **stages)
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
