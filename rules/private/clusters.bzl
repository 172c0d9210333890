"""The cluster stage, and what follows it: models that don't compile whole, whose parts do."""

load("@rules_cc//cc:cc_test.bzl", "cc_test")
load("@rules_cc//cc:find_cc_toolchain.bzl", "use_cc_toolchain")
load("@rules_cc//cc/common:cc_common.bzl", "cc_common")
load("@rules_cc//cc/common:cc_info.bzl", "CcInfo")
load("//runtime:copts.bzl", "CXX", "EXACT")
load(":common.bzl", "common_attributes", "moved")
load(":compile.bzl", "tf_aot_compile")
load(":cxx.bzl", "cxx_of")
load(":files.bzl", "EXPORT", "NAME", "RENDER")
load(":isa.bzl", "levels_of")
load(":link.bzl", "tf_aot_link")
load(":model.bzl", "model_target")
load(":page.bzl", "tf_aot_page")
load(":providers.bzl", "TfaotGraphInfo", "TfaotModelInfo", "TfaotSourcesInfo")
load(":python.bzl", "py_test")
load(":render.bzl", "tf_aot_render")
load(":stage.bzl", "TOOLCHAIN_TYPE", "declare", "run_stage", "stage_attrs")
load(":verify.bzl", "tf_aot_verify")

visibility(["//rules/..."])

_FILES = EXPORT | NAME | {
    "inputs": ".inputs.safetensors",
    "plan": ".plan.json",
    "uncut": ".uncut.pb",
}
_PIPELINE = {
    "pipeline_goldens": ".pipeline_goldens.safetensors",
    "pipeline_header": "_pipeline.h",
    "pipeline_initial": ".pipeline.S",
    "pipeline_test": "_pipeline_test.cc",
    "pipeline_values": ".pipeline_values.bin",
}
_FOLDERS = {"configs": ".configs", "saved_model": ".saved_model"}

def _include(file):
    """Returns the path by which programs include a header: the one below its repository."""
    path = file.short_path
    return path.split("/", 2)[2] if path.startswith("../") else path

def _tf_aot_cluster_impl(ctx):
    stem = ctx.attr.stem or ctx.label.name
    files = declare(ctx, stem, _FILES) | declare(ctx, stem, _FOLDERS, folder = True)
    model = ctx.attr.model[TfaotModelInfo]
    exported = dict(model.export_request)
    request = {"cpp_class": ctx.attr.cpp_class, "golden_steps": exported.pop("golden_steps"), "min_ops": ctx.attr.min_ops}
    if exported:
        names = {"weights" if name.startswith("weights") else name: None for name in exported}.keys()
        fail(("{}: the parts of a model that compile are compiled as the model has them, but {} has {}. To do: use a tf_model without " +
              "{}.").format(ctx.label, model.label, ", ".join(names), "it" if len(names) == 1 else "them"))
    pipeline = declare(ctx, stem, _PIPELINE) if ctx.attr.pipeline else {}
    if pipeline:
        header = _include(pipeline["pipeline_header"])
        request |= {"pipeline_header": header, "library_header": header.removesuffix("_pipeline.h") + RENDER["header"]}
    outputs = files | pipeline
    run_stage(
        ctx,
        mnemonic = "TfaotCluster",
        progress_message = "Finding the clusters of %{label}",
        request = model.request | request,
        inputs = model.inputs,
        outputs = outputs,
        code = model.code,
    )
    groups = ["inputs", "plan", "saved_model", "uncut"] + pipeline.keys()
    return [
        DefaultInfo(files = depset(outputs.values())),
        OutputGroupInfo(**{name: depset([outputs[name]]) for name in groups}),
        TfaotGraphInfo(
            label = ctx.label,
            cpp_class = ctx.attr.cpp_class,
            configs = [files["configs"]],
            entry_points = [],
            batch_sizes = [],
            buckets = [],
            own_names = {},
            program = None,
            report = model.report,
            **{name: files[name] for name in EXPORT}
        ),
    ]

tf_aot_cluster = rule(
    implementation = _tf_aot_cluster_impl,
    doc = "Cuts the parts out of a model that compile, and writes them as a graph with an entry point for each, and the rest " +
          "as a SavedModel that calls them.",
    attrs = {
        "cpp_class": attr.string(
            doc = "The generated class with its namespaces, `a::b::Class`. It also names the op.",
            mandatory = True,
        ),
        "min_ops": attr.int(
            doc = "As in `tf_aot_clusters`.",
            default = 3,
        ),
        "model": attr.label(
            doc = "A `tf_model`. With batch sizes, clusters are compiled for them whose tensors have rows of a batch.",
            mandatory = True,
            providers = [TfaotModelInfo],
        ),
        "pipeline": attr.bool(
            doc = "Whether to write a C++ class that calls the program for what stays with TensorFlow.",
        ),
        "stem": attr.string(
            doc = "The start of the output files' names. By default, the target's name.",
        ),
    } | stage_attrs("//tools:cluster.py", "//py/tfaot/cluster:with_calibrate"),
    provides = [TfaotGraphInfo],
    toolchains = [TOOLCHAIN_TYPE],
)

def _tf_aot_ops_impl(ctx):
    own = ctx.attr._tensorflow.label == ctx.attr._wheel.label
    if own and not ctx.target_platform_has_constraint(ctx.attr._cpu[platform_common.ConstraintValueInfo]):
        fail(("{} links TensorFlow, and the TensorFlow of this build is for {}, and the platform {} isn't. To do: build " +
              "NAME_library, which doesn't link TensorFlow; or give TensorFlow's C API for the platform as a cc_library: " +
              "--@rules_tfaot//rules:target_tensorflow=//:tensorflow.").format(
            ctx.label,
            ctx.attr._cpu.label.name,
            ctx.fragments.platform.platform,
        ))
    library = ctx.attr.library
    stem = ctx.attr.stem or ctx.label.name
    cc_toolchain, features = cxx_of(ctx)
    include = _include(library[TfaotSourcesInfo].header)
    parts = [library[CcInfo]] + [part[CcInfo] for part in ctx.attr._parts + [ctx.attr._tensorflow]]
    _, op = cc_common.compile(
        name = ctx.label.name,
        actions = ctx.actions,
        cc_toolchain = cc_toolchain,
        feature_configuration = features,
        srcs = [ctx.file._source],
        compilation_contexts = [part.compilation_context for part in parts],
        local_defines = [
            "TFAOT_CLASS=" + library[TfaotGraphInfo].cpp_class.removeprefix("::"),
            "TFAOT_CLASS_HEADER=\"{}\"".format(include),
        ],
        user_compile_flags = CXX + EXACT + ["-O2", "-w"],
    )

    # It registers its op when it is loaded. Nothing else needs its symbols.
    script = ctx.actions.declare_file(stem + ".lds")
    ctx.actions.write(script, "{ local: *; };\n")
    linked = cc_common.link(
        name = stem,
        actions = ctx.actions,
        cc_toolchain = cc_toolchain,
        feature_configuration = features,
        additional_inputs = [script],
        compilation_outputs = op,
        linking_contexts = [part.linking_context for part in parts],
        output_type = "dynamic_library",
        user_link_flags = ["-Wl,--version-script=" + script.path, "-Wl,--no-undefined", "-Wl,--gc-sections"],
    )
    dynamic = linked.library_to_link.resolved_symlink_dynamic_library or linked.library_to_link.dynamic_library
    return [DefaultInfo(files = depset([dynamic]), runfiles = ctx.runfiles([dynamic]))]

tf_aot_ops = rule(
    implementation = _tf_aot_ops_impl,
    doc = "Links compiled clusters into libNAME.so, which TensorFlow loads: it registers the op that the cut SavedModel calls.",
    attrs = {
        "library": attr.label(
            doc = "Target of the link stage.",
            mandatory = True,
            providers = [CcInfo, TfaotGraphInfo, TfaotSourcesInfo],
        ),
        "stem": attr.string(
            doc = "The library's name, without `lib` and `.so`. By default, the target's name.",
        ),
        "_parts": attr.label_list(
            default = ["//runtime:message", "//runtime:sample", "//runtime:threads"],
            providers = [CcInfo],
        ),
        "_cpu": attr.label(default = "@tfaot_tensorflow//:cpu", providers = [platform_common.ConstraintValueInfo]),
        "_tensorflow": attr.label(default = "//rules:target_tensorflow", providers = [CcInfo]),
        "_wheel": attr.label(default = "@tfaot_tensorflow//:c_api"),
        "_source": attr.label(default = "//runtime:tfaot/tensorflow_op.cc", allow_single_file = [".cc"]),
    },
    fragments = ["cpp", "platform"],
    toolchains = use_cc_toolchain(),
)

def _tf_aot_pipeline_impl(ctx):
    cc_toolchain, features = cxx_of(ctx)
    compiled, outputs = cc_common.compile(
        name = ctx.label.name,
        actions = ctx.actions,
        cc_toolchain = cc_toolchain,
        feature_configuration = features,
        srcs = [ctx.file.initial],
        public_hdrs = [ctx.file.header],
        additional_inputs = [ctx.file.values],
        compilation_contexts = [ctx.attr.library[CcInfo].compilation_context],
        user_compile_flags = ["-DTFAOT_INITIAL=\"{}\"".format(ctx.file.values.path)],
    )
    linking, _ = cc_common.create_linking_context_from_compilation_outputs(
        name = ctx.label.name,
        actions = ctx.actions,
        cc_toolchain = cc_toolchain,
        feature_configuration = features,
        compilation_outputs = outputs,
        disallow_dynamic_library = True,
        linking_contexts = [ctx.attr.library[CcInfo].linking_context],
    )
    return [
        DefaultInfo(files = depset([ctx.file.header])),
        CcInfo(compilation_context = compiled, linking_context = linking),
    ]

tf_aot_pipeline = rule(
    implementation = _tf_aot_pipeline_impl,
    doc = "A C++ library: the class that runs the clusters, and calls the program for what is between them.",
    attrs = {
        "header": attr.label(mandatory = True, allow_single_file = [".h"]),
        "initial": attr.label(
            doc = "Assembler source with the variables' initial values.",
            mandatory = True,
            allow_single_file = [".S"],
        ),
        "library": attr.label(
            doc = "Target of the link stage.",
            mandatory = True,
            providers = [CcInfo],
        ),
        "values": attr.label(
            doc = "The initial values.",
            mandatory = True,
            allow_single_file = [".bin"],
        ),
    },
    fragments = ["cpp"],
    provides = [CcInfo],
    toolchains = use_cc_toolchain(),
)

def tf_aot_clusters(
        *,
        name,
        cpp_class,
        model = None,
        cpu = None,
        gen_test = True,
        min_ops = 3,
        passes = ["*"],
        pipeline = False,
        test_size = None,
        xla_flags = [],
        **kwargs):
    """Compiles the parts of a TensorFlow model that compile, for TensorFlow to run with the rest (docs/guide/clusters.md).

    Targets:
      NAME: libNAME.so, for tf.load_op_library: the op that runs the compiled clusters.
      NAME_saved_model: the model as a SavedModel that calls the op.
      NAME_plan: JSON: the clusters, and why each other op stays with TensorFlow.
      NAME_library: the clusters as a C++ library (CcInfo), with a function for each.
      NAME_test: compares each cluster with TensorFlow.
      NAME_whole_test: compares the SavedModel, run by TensorFlow with the library, with the model as it was.
      NAME_pipeline: with `pipeline = True`, a C++ library (CcInfo) with a class that runs the whole without TensorFlow. Your
        program computes what stays, in callbacks.
      NAME_pipeline_test: with `pipeline = True`, compares that class with TensorFlow.

    Args:
      name: (str) the library's name
      cpp_class: (str) the class of the clusters, `a::b::Class`. It also names the op.
      model: (Label) a `tf_model`, or the file of a model. Its `dims` can leave sizes open: what depends on them isn't compiled.
        With `batch_sizes`, such as `[1, 8, 64]`, clusters take batches of any number of rows, which run as parts of these sizes;
        all inputs that leave their first dimension open have the same rows (docs/guide/clusters.md). Its `entry_points` names at
        most one function, the one to cut. Inputs that are strings need `golden_inputs`.
      cpu: (str or list[str]) the CPU level to compile for, or several, as in `tf_aot_library`
      gen_test: (bool) whether to declare NAME_test and NAME_whole_test
      min_ops: (int) the smallest number of ops that compute, rather than move data, in a cluster
      passes: (list[str]) as in `tf_aot_library`
      pipeline: (bool) whether to declare NAME_pipeline
      test_size: (str) Bazel's test size of the tests. By default, small, and medium for NAME_whole_test, which imports TensorFlow.
      xla_flags: (list[str]) as in `tf_aot_library`
      **kwargs: the attributes that any rule has, as in `tf_aot_library`
    """
    if moved(name = name, model = model, attributes = kwargs):
        return
    common = common_attributes(kwargs)
    stages = common.private | {"stem": name}
    levels = levels_of(cpu)
    cut = name + ".cluster"
    model = model_target(name = name, common = common.private, model = model)
    tf_aot_cluster(name = cut, cpp_class = cpp_class, min_ops = min_ops, model = model, pipeline = pipeline, **stages)
    tf_aot_compile(name = name + ".compile", graph = cut, passes = passes, xla_flags = xla_flags, **(stages | levels))
    tf_aot_render(name = name + ".render", graph = cut, **stages)
    tf_aot_verify(name = name + ".verify", graph = cut, unseen = ["*"], **stages)
    tf_aot_link(
        name = name + "_library",
        compiled = name + ".compile",
        goldens = name + ".verify",
        graph = cut,
        sources = name + ".render",
        **(common.public | common.cpp)
    )
    tf_aot_ops(name = name, library = name + "_library", **(common.public | common.cpp | common.main))
    public = {key: value for key, value in common.public.items() if key != "exec_properties"}
    for group in ["plan", "saved_model"]:
        native.filegroup(name = name + "_" + group, srcs = [cut], output_group = group, **public)
    for group in ["inputs", "uncut"]:
        native.filegroup(name = "{}.{}".format(name, group), srcs = [cut], output_group = group, **(common.files | {"visibility": common.test["visibility"]}))
    tf_aot_page(
        name = name + "_report",
        clusters = name + "_plan",
        graph = cut,
        stem = name,
        uncut = name + ".uncut",
        **(common.public | {"tags": common.private["tags"]})
    )
    if pipeline:
        for kind in _PIPELINE:
            native.filegroup(name = "{}.{}".format(name, kind), srcs = [cut], output_group = kind, **common.files)
        tf_aot_pipeline(
            name = name + "_pipeline",
            header = name + ".pipeline_header",
            initial = name + ".pipeline_initial",
            library = name + "_library",
            values = name + ".pipeline_values",
            **(common.public | common.cpp)
        )
    if not gen_test:
        return
    if pipeline:
        cc_test(
            name = name + "_pipeline_test",
            size = test_size or "small",
            srcs = [name + ".pipeline_test"],
            args = ["$(rootpath :{}.pipeline_goldens)".format(name)],
            copts = CXX,
            data = [name + ".pipeline_goldens"],
            linkstatic = True,
            deps = [name + "_pipeline", Label("//runtime:verify")],
            **(common.test | common.cpp)
        )
    native.filegroup(
        name = name + ".test.cc",
        srcs = [name + ".render"],
        output_group = "test",
        **(common.files | {"testonly": True})
    )
    cc_test(
        name = name + "_test",
        size = test_size or "small",
        srcs = [name + ".test.cc"],
        args = ["$(rootpath :{}.verify)".format(name)],
        copts = CXX,
        data = [name + ".verify"],
        linkstatic = True,
        deps = [name + "_library", Label("//runtime:verify")],
        **(common.test | common.cpp)
    )
    files = [name, name + "_saved_model", name + "_plan", name + ".inputs", name + ".uncut"]
    py_test(
        name = name + "_whole_test",
        size = test_size or "medium",
        srcs = [Label("//tools:whole.py")],
        args = ["$(rootpath :{})".format(file) for file in files],
        data = files,
        main = Label("//tools:whole.py"),
        deps = [Label("//py/tfaot/cluster")],
        **common.test
    )
