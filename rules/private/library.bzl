"""All five stages in one macro."""

load("@bazel_skylib//rules:diff_test.bzl", "diff_test")
load("@rules_cc//cc:defs.bzl", "cc_test")
load(":compile.bzl", "tf_aot_compile")
load(":export.bzl", "tf_aot_export")
load(":hlo.bzl", "hlo_targets")
load(":link.bzl", "tf_aot_link")
load(":render.bzl", "tf_aot_render")
load(":verify.bzl", "tf_aot_verify")

visibility(["//rules/..."])

def tf_aot_library(
        *,
        name,
        model,
        cpp_class,
        config = None,
        config_golden = None,
        cpu = "x86-64-v3",
        data = [],
        deps = [],
        golden_steps = 3,
        tags = [],
        test_size = "small",
        testonly = None,
        visibility = None,
        xla_flags = []):
    """Turns a TensorFlow model into a C++ library, proves its numbers, and hands out every intermediate result.

    Targets:
      NAME: the library (CcInfo); include "PACKAGE/NAME.h". Output groups: graph, config, manifest, variables,
        goldens, object, header, sources, hlo, optimized_hlo, stablehlo, hlo_graph.
      NAME_test: compares the linked code with TensorFlow.
      NAME_config_test: with `config_golden`, compares it with the config, and prints the command that renews it.
      NAME_benchmark: `bazel run -c opt :NAME_benchmark -- --steps=1000` times it; as a test it runs two steps.
      NAME_bundle: HLO, StableHLO, TensorFlow's numbers, and a script that replays them, in one archive (manual).
      NAME.export, NAME.compile, NAME.render, NAME.verify, NAME.hlo, NAME.stablehlo: the stages, for those who need only
        that far.

    Args:
      name: (str) the library's name
      model: (Label) a Python file with `input_fn()`, `model_fn(features, labels)`, and perhaps `golden_fn(step, rng)`
      cpp_class: (str) the generated class with its namespaces, `a::b::Class`
      config: (Label) a partial tf2xla config that is merged into the inferred one
      config_golden: (str) a file of this package: a checked-in copy of the config, so that reviews see it change
      cpu: (str) x86-64 psABI level to compile for
      data: (list[Label]) files that the model's code reads
      deps: (list[Label]) Python libraries that the model's code imports
      golden_steps: (int) how many runs in a row are verified
      tags: (list[str]) tags of the library and its tests
      test_size: (str) Bazel's test size of the test and the benchmark
      testonly: (bool) as everywhere
      visibility: (list[Label]) as everywhere
      xla_flags: (list[str]) further flags of XLA
    """
    stages = {"stem": name, "tags": tags + ["manual"], "testonly": testonly, "visibility": ["//visibility:private"]}
    graph = name + ".export"
    compiled = name + ".compile"
    sources = name + ".render"
    goldens = name + ".verify"
    tf_aot_export(
        name = graph,
        config = config,
        cpp_class = cpp_class,
        data = data,
        deps = deps,
        golden_steps = golden_steps,
        model = model,
        **stages
    )
    tf_aot_compile(name = compiled, cpu = cpu, graph = graph, xla_flags = xla_flags, **stages)
    tf_aot_render(name = sources, graph = graph, **stages)
    tf_aot_verify(name = goldens, graph = graph, **stages)
    parts = hlo_targets(
        name = name,
        cpu = cpu,
        goldens = goldens,
        graph = graph,
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
    for kind, library, args in [
        ("test", "verify", []),
        ("benchmark", "benchmark", ["--steps=2"]),
    ]:
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
            args = ["$(rootpath :{})".format(goldens)] + args,
            data = [goldens],
            linkstatic = True,
            tags = tags,
            visibility = visibility,
            deps = [name, Label("//tools/runtime/tfaot:" + library)],
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
            failure_message = "The config changed. To accept it: cp bazel-bin/{0}/{1}.config.pbtxt {0}/{2}".format(
                package,
                name,
                config_golden,
            ),
            file1 = config_golden,
            file2 = config_file,
            tags = tags,
        )
