"""Attributes of a model that conflict. Each combination is a single error, before anything runs."""

load("@bazel_skylib//lib:unittest.bzl", "analysistest", "asserts")
load("//rules:defs.bzl", "TfaotGraphInfo", "TfaotModelInfo", "tf_aot_bundle", "tf_aot_clusters", "tf_aot_compile", "tf_aot_hlo", "tf_aot_library", "tf_aot_lower", "tf_aot_stub", "tf_model")

def _refused_test_impl(ctx):
    """Protects readers of an error: it says what was asked, what exists, and what to do."""
    env = analysistest.begin(ctx)
    asserts.expect_failure(env, ctx.attr.message)
    return analysistest.end(env)

_refused_test = analysistest.make(
    _refused_test_impl,
    attrs = {"message": attr.string()},
    expect_failure = True,
)

def _several_impl(ctx):
    return [TfaotGraphInfo(label = ctx.label, entry_points = ["init", "train"], batch_sizes = [], buckets = [])]

_several = rule(
    implementation = _several_impl,
    doc = "A graph with several entry points, as far as a bundle looks.",
    provides = [TfaotGraphInfo],
)

_A_MODEL_IS = ". A model is a Python file (.py), also one that loads a file of Keras, a GraphDef (.pb or .pbtxt), a MetaGraphDef (.meta), StableHLO (.mlir or .mlirbc), " + \
              "what tfaot.jax.export wrote (.jax), or the folder of a SavedModel. To do: name one of these; for a SavedModel, a filegroup of its folder, " + \
              "glob([\"folder/**\"]), or a rule that makes such a folder."

_REFUSED = {
    "graph_only": (
        {"checkpoint": ["small.ckpt"], "source": "small.py"},
        "checkpoint applies only to a GraphDef, but the source is a Python file. To do: remove it.",
    ),
    "memory": (
        {"source": "small.py", "tags": ["manual", "resources:memory:lots"]},
        "resources:memory:lots in tags has no number of megabytes. To do: write resources:memory:8000, for example",
    ),
    "no_load": (
        {"deps": [":folders"], "source": "small.py"},
        "//tests/rules:folders in deps is no Python library of rules_python. To do: if it is a py_library, load its rule in its BUILD " +
        "file: load(\"@rules_python//python:defs.bzl\", \"py_library\").",
    ),
    "no_model": (
        {"source": "small.h5"},
        "source names small.h5" + _A_MODEL_IS,
    ),
    "no_signature": (
        {"signature": {"x": "float32[2]"}, "source": "small.pb"},
        "signature applies only to a Python file, but the source is a GraphDef. To do: remove it, or use dims.",
    ),
    "no_tags": (
        {"saved_model_tags": ["serve"], "source": "small.mlir"},
        "saved_model_tags applies only to a SavedModel, but the source is StableHLO. To do: remove it.",
    ),
    "other_weights": (
        {"source": "small.py", "weights": {"bits": "8"}},
        "weights has the key bits; its keys are file, dtype, tolerance. To do: use only these.",
    ),
    "two_folders": (
        {"source": ":folders"},
        "source names 2 files, 2 of them saved_model.pb" + _A_MODEL_IS,
    ),
    "two_models": (
        {"source": ["small.pb", "small.py"]},
        "source names 2 files, 0 of them saved_model.pb" + _A_MODEL_IS,
    ),
}

_REFUSED_LEVELS = {
    "no_level": (
        {"cpu": []},
        "cpu = [] names no CPU level; the levels are x86-64, x86-64-v2, x86-64-v3, x86-64-v4. To do: name at least one, or remove cpu.",
    ),
    "twice": (
        {"cpu": ["x86-64-v2", "x86-64-v3", "x86-64-v2"]},
        "cpu = [\"x86-64-v2\", \"x86-64-v3\", \"x86-64-v2\"] names x86-64-v2 twice. To do: name each level once.",
    ),
    "unknown_level": (
        {"cpu": ["x86-64-v2", "native"]},
        "native isn't a CPU level; the levels are x86-64, x86-64-v2, x86-64-v3, x86-64-v4. To do: name one or more of these.",
    ),
}

# Attributes that targets had before there was a tf_model. The message has a target to copy, which BUILD declares, too.
_MOVED = {
    "clusters_config": (
        tf_aot_clusters,
        {"config": "small.config.pbtxt", "cpp_class": "small::Small", "graph": "small.pb"},
        """config, graph moved to tf_model, which describes a model once. To do: remove them here, set model = ":NAME_model", and add:

load("@rules_tfaot//rules:defs.bzl", "tf_model")

tf_model(
    name = "NAME_model",
    config = "small.config.pbtxt",
    source = "small.pb",
)
""",
    ),
    "hlo_deps": (
        tf_aot_hlo,
        {"deps": [Label("//py/tfaot/core")], "model": "small.py"},
        """deps moved to tf_model, which describes a model once. To do: remove it here, set model = ":NAME_model", and add:

load("@rules_tfaot//rules:defs.bzl", "tf_model")

tf_model(
    name = "NAME_model",
    deps = ["CORE"],
    frozen = [],
    source = "small.py",
)
""".replace("CORE", str(Label("//py/tfaot/core"))),
    ),
    "library_isa": (
        tf_aot_library,
        {"cpp_class": "small::Small", "isa": ["x86-64-v2", "x86-64-v3"], "model": "small.py"},
        "isa is cpu now, which takes one level or several. To do: replace it with cpu = [\"x86-64-v2\", \"x86-64-v3\"]",
    ),
    "library_no_model": (
        tf_aot_library,
        {"cpp_class": "small::Small"},
        "model isn't set. To do: name a tf_model, or a model's file: model = \"model.py\"",
    ),
    "library_saved_model": (
        tf_aot_library,
        {"cpp_class": "small::Small", "dims": {"x": [2, None]}, "saved_model": ":saved"},
        """dims, saved_model moved to tf_model, which describes a model once. To do: remove them here, set model = ":NAME_model", and add:

load("@rules_tfaot//rules:defs.bzl", "tf_model")

tf_model(
    name = "NAME_model",
    dims = {"x": [2, None]},
    source = ":saved",
)
""",
    ),
    "library_unknown": (
        tf_aot_library,
        {"cpp_class": "small::Small", "model": "small.py", "optimize": True},
        "there is no attribute optimize. To do: see docs/reference/rules.md for those that there are",
    ),
}

def _typed_test_impl(ctx):
    """Protects who copies a tf_model from such an error: it is one."""
    env = analysistest.begin(ctx)
    model = analysistest.target_under_test(env)[TfaotModelInfo]
    asserts.equals(env, {"dims": {"x": ["2", "?"]}, "saved_model": "tests/rules/saved"}, model.request)
    return analysistest.end(env)

_typed_test = analysistest.make(_typed_test_impl)

def attributes_test_suite(*, name):
    """Declares all tests in this file.

    Args:
      name: (str) the suite's name
    """
    private = {"tags": ["manual"], "testonly": True, "visibility": ["//visibility:private"]}
    native.filegroup(name = "folders", srcs = ["a/saved_model.pb", "b/saved_model.pb"], **private)
    tests = []
    for case, (attributes, message) in _REFUSED.items():
        tf_model(name = name + "." + case, **(private | attributes))
        _refused_test(name = case + "_test", message = message, target_under_test = name + "." + case)
        tests.append(case + "_test")
    for case, (macro, attributes, message) in _MOVED.items():
        target = "moved_" + case
        macro(name = target, tags = ["manual"], testonly = True, **attributes)
        message = "//tests/rules:{}: {}".format(target, message.replace("NAME", target))
        _refused_test(name = target + "_test", message = message, target_under_test = target)
        tests.append(target + "_test")
    _typed_test(name = "moved_typed_test", target_under_test = "moved_library_saved_model_model")
    tests.append("moved_typed_test")
    for case, (attributes, message) in _REFUSED_LEVELS.items():
        for rule_name, stage in (("compile", tf_aot_compile), ("lower", tf_aot_lower)):
            test = "{}_{}_test".format(case, rule_name)
            stage(name = name + "." + test, graph = ":small_aot.export", **(attributes | private))
            _refused_test(name = test, message = message, target_under_test = name + "." + test)
            tests.append(test)
    _several(name = name + ".several", **private)
    tf_aot_bundle(
        name = name + ".bundle",
        goldens = ":small_aot.verify",
        graph = name + ".several",
        hlo = ":small_aot.hlo",
        stablehlo = ":small_aot.stablehlo",
        **private
    )
    _refused_test(
        name = "bundle_of_several_test",
        message = ".several has several: init, train. " +
                  "To do: bundle a target with one of its entry points, without batch_sizes and sizes.",
        target_under_test = name + ".bundle",
    )
    tests.append("bundle_of_several_test")
    for case, attributes in {
        "half_a_copy": {"header": "small.h", "include": "p/small.h"},
        "no_sources": {},
        "sources_and_copies": {"header": "small.h", "include": "p/s.h", "source": "small.cc", "sources": ":small_aot.render"},
    }.items():
        tf_aot_stub(name = name + "." + case, **(attributes | private))
        _refused_test(
            name = case + "_test",
            message = "a stub is made from the render stage or from copies of what it wrote. " +
                      "To do: set either sources, or all of header, source, and include.",
            target_under_test = name + "." + case,
        )
        tests.append(case + "_test")
    native.test_suite(name = name, tests = tests)
