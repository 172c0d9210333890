"""A model, described once, for everything that is made of it."""

load("@rules_python//python:defs.bzl", "PyInfo")
load(":export.bzl", "exported", "exporting_attrs", "graph_files", "report")
load(":files.bzl", "JAX", "MODEL", "MODEL_EXPORT", "WEIGHTS")
load(":kinds.bzl", "BY_EXTENSION", "FRAMEWORKS", "KINDS", "MODELS", "ONLY")
load(":providers.bzl", "TfaotGraphInfo", "TfaotModelInfo")
load(":stage.bzl", "TOOLCHAIN_TYPE", "code_of", "declare", "run_stage", "stage_attrs")

visibility(["//rules/...", "//tests/..."])

def _source(ctx):
    """Returns the kind of the target's source, and the file, or for a SavedModel, its folder's path."""
    files = ctx.files.source
    folders = [file.path for file in files if file.is_directory]
    folders += [file.dirname for file in files if file.basename in ("saved_model.pb", "saved_model.pbtxt")]
    if len(folders) == 1 and (len(files) == 1 or not [file for file in files if file.is_directory]):
        return "saved_model", folders[0]
    if len(files) == 1 and files[0].extension in BY_EXTENSION and not folders:
        return BY_EXTENSION[files[0].extension], files[0]
    fail(("{}: source names {}. A model is {}. To do: name one of these; for a SavedModel, a filegroup of its folder, " +
          "glob([\"folder/**\"]), or a rule that makes such a folder.").format(
        ctx.label,
        files[0].basename if len(files) == 1 else "{} files, {} of them saved_model.pb".format(len(files), len(folders)),
        MODELS,
    ))

def _checkpoint(label, files):
    """Returns the file that stands for a checkpoint: its index, its folder, or in TensorFlow's first format, the first file."""
    named = {file.path: file for file in files}
    indices = [file for file in files if file.basename.endswith(".index")]
    if len(indices) > 1:
        fail("{}: checkpoint names {} checkpoints: {}. To do: name the files of one.".format(
            label,
            len(indices),
            ", ".join([file.basename for file in indices]),
        ))
    if not indices:
        # Beside these, savers write a text file of this name, and `.meta`.
        values = [file for path, file in named.items() if file.basename != "checkpoint" and not path.endswith(".meta")]
        return (values or files)[0]
    prefix = indices[0].path.removesuffix("index")
    if not [path for path in named if path.startswith(prefix + "data-")]:
        name = indices[0].basename.removesuffix(".index")
        fail("{0}: checkpoint names {1}.index, and none of the files with its values is beside it in the target's own package. \
To do: name all files, {1}.index and each {1}.data-?????-of-?????, or a filegroup of them.".format(label, name))
    return indices[0]

def _programs(ctx, source):
    """Declares the action that runs JAX, with the user's packages and without TensorFlow. Returns the file that export reads."""
    outputs = declare(ctx, ctx.label.name, JAX)
    names = ["entry_points", "golden_calls", "golden_steps", "replicas", "sizes", "state"]
    run_stage(
        ctx,
        mnemonic = "TfaotJax",
        progress_message = "Exporting %{label} from JAX",
        request = {name: getattr(ctx.attr, name) for name in names if getattr(ctx.attr, name)} | {"model": source},
        inputs = ctx.files.data,
        outputs = outputs,
        code = code_of(ctx, ctx.attr.deps),
        library = ctx.attr._jax_library,
        main = ctx.file._jax_main,
        own_packages = True,
    )
    return outputs["programs"]

def _tf_model_impl(ctx):
    kind, source = _source(ctx)
    of_jax = ctx.attr.framework == "jax"
    if of_jax and kind != "model":
        fail("{}: framework is jax, but the source is {}. To do: remove framework, or name a Python file.".format(ctx.label, KINDS[kind]))
    if ctx.attr.state and not of_jax:
        fail(("{}: state applies only to Python files with framework = \"jax\". To do: remove it; variables of TensorFlow are state " +
              "by themselves, and tfaot.jax.export takes the state of its programs.").format(ctx.label))
    if of_jax:
        kind, source = "jax", _programs(ctx, source)
    for name, only in ONLY.items():
        if getattr(ctx.attr, name) and only != kind:
            fail("{}: {} applies only to {}, but the source is {}. To do: remove it{}.".format(
                ctx.label,
                name,
                KINDS[only],
                KINDS[kind],
                ", or use dims" if name == "signature" else "",
            ))
    request = {name: getattr(ctx.file, name, None) or getattr(ctx.attr, name) for name in MODEL}
    request = {name: value for name, value in request.items() if value}
    request[kind] = source
    if ctx.files.checkpoint:
        request["checkpoint"] = _checkpoint(ctx.label, ctx.files.checkpoint)
    if not ctx.attr.default_frozen:
        request["frozen"] = ctx.attr.frozen
    if kind == "graph":
        request["config"] = ctx.file.config
    export_request = {name: getattr(ctx.attr, name) for name in MODEL_EXPORT}
    export_request |= {"config": ctx.file.config, "weights": ctx.file.weights}
    export_request = {name: value for name, value in export_request.items() if value and name not in request}
    for key, value in ctx.attr.weights_stored.items():
        if key not in WEIGHTS:
            fail("{}: weights has the key {}; its keys are {}. To do: use only these.".format(
                ctx.label,
                key,
                ", ".join(["file"] + WEIGHTS),
            ))
        export_request["weights_" + key] = value
    fields = {
        "label": ctx.label,
        "request": request,
        "export_request": export_request | {"golden_steps": ctx.attr.golden_steps},
        "inputs": ([] if of_jax else ctx.files.data + ctx.files.source) + ctx.files.checkpoint + [part for part in request.values() if type(part) == "File"],
        "code": code_of(ctx, [] if of_jax else ctx.attr.deps),
        "program": source if kind in ["jax", "stablehlo"] else None,
        "entry_points": ctx.attr.entry_points.keys() or ["Run"],
        "own_names": ctx.attr.entry_points,
        "batch_sizes": ctx.attr.batch_sizes,
        "buckets": [[int(bucket) for bucket in buckets if bucket.isdigit()] for buckets in ctx.attr.sizes.values()],
    }
    stem = ctx.label.name
    described = struct(**fields)
    made = report(ctx, described, stem)
    graph = exported(ctx, described, stem = stem, report = made)

    # By default, nothing is built, because not every model has a graph for C++: some have HLO, and parts of others compile.
    return [
        OutputGroupInfo(export = depset(graph_files(graph)), report = depset(made)),
        graph,
        TfaotModelInfo(
            hlo = exported(ctx, described, stem = stem + ".raw", edge = "hlo", report = made),
            report = made,
            **fields
        ),
    ]

_tf_model = rule(
    implementation = _tf_model_impl,
    doc = "Describes a model, and exports it: its graph, a tf2xla config for each entry point, and the manifest.",
    attrs = {
        "batch_sizes": attr.int_list(),
        "checkpoint": attr.label_list(allow_files = True),
        "config": attr.label(allow_single_file = [".pbtxt"]),
        "data": attr.label_list(allow_files = True),
        "debug_info": attr.label(allow_single_file = True),
        "default_frozen": attr.bool(),
        "deps": attr.label_list(),
        "dims": attr.string_list_dict(),
        "entry_points": attr.string_dict(),
        "framework": attr.string(default = FRAMEWORKS[0], values = FRAMEWORKS),
        "frozen": attr.string_list(),
        "golden_calls": attr.string_list(),
        "golden_inputs": attr.label(allow_single_file = [".npz", ".py", ".safetensors"]),
        "golden_steps": attr.int(),
        "inputs": attr.string_list(),
        "max_batch": attr.int(),
        "outputs": attr.string_list(),
        "replicas": attr.int(),
        "rows_independent": attr.bool(),
        "saved_model_tags": attr.string_list(),
        "saver": attr.label(allow_single_file = True),
        "signature": attr.string_dict(),
        "sizes": attr.string_list_dict(),
        "state": attr.string_dict(),
        "source": attr.label_list(allow_files = True, mandatory = True),
        "weights": attr.label(allow_single_file = [".safetensors"]),
        "weights_stored": attr.string_dict(),
        "_jax_library": attr.label(default = "//py/tfaot/jax", providers = [PyInfo], cfg = "exec"),
        "_jax_main": attr.label(default = "//tools:jax_export.py", allow_single_file = [".py"], cfg = "exec"),
    } | exporting_attrs() | stage_attrs("//tools:export.py", "//py/tfaot/export:with_calibrate"),
    provides = [TfaotGraphInfo, TfaotModelInfo],
    toolchains = [TOOLCHAIN_TYPE],
)

def _checkpoint_files(checkpoint):
    """Returns all files of a checkpoint that a target names by its prefix, or by one of its files."""
    if type(checkpoint) == "list" or type(checkpoint) == "select":
        return checkpoint
    if not checkpoint:
        return []
    path = str(checkpoint).removeprefix(":")
    if type(checkpoint) != "string" or ":" in path or path.startswith(("/", "@")):
        return [checkpoint]
    prefix = path.removesuffix(".index")
    files = native.glob([prefix + ".index", prefix + ".data-*"], allow_empty = True)
    return files if prefix + ".index" in files else [checkpoint]

def tf_model(
        *,
        name,
        source,
        batch_sizes = [],
        checkpoint = None,
        config = None,
        data = [],
        debug_info = None,
        deps = [],
        dims = {},
        entry_points = {},
        framework = "tensorflow",
        frozen = None,
        golden_calls = [],
        golden_inputs = None,
        golden_steps = 3,
        inputs = [],
        max_batch = None,
        outputs = [],
        replicas = None,
        rows_independent = False,
        saved_model_tags = [],
        saver = None,
        signature = {},
        sizes = {},
        state = {},
        weights = None,
        **kwargs):
    """Describes a model of TensorFlow or JAX. `tf_aot_library`, `tf_aot_hlo`, and `tf_aot_clusters` take it as their `model`.

    It is exported once for all libraries, and once for all HLO, whose edge keeps dtypes that C++ lacks. Bazel does so only when a
    target needs it. Clusters are cut from the model itself. The output group `report` says what stands in the way of compiling it.

    Args:
      name: (str) the target's name
      source: (Label) the model, whose file says what it is: a Python file; a SavedModel, as a filegroup of its folder or a rule that
        makes such a folder; a GraphDef (`.pb` or `.pbtxt`) or MetaGraphDef (`.meta`); or StableHLO, as a
        portable artifact (`.mlirbc`) or text (`.mlir`); or what `tfaot.jax.export` wrote (`.jax`). A Python file defines `input_fn()`
        and `model_fn(features, labels)`, or `model`, which is a function, a tf.function, a tf.Module, or a Keras model.
      batch_sizes: (list[int]) batch sizes to compile for, in increasing order. The class then takes any batch up to
        `max_batch`.
      checkpoint: (Label or list[Label]) of a GraphDef, the checkpoint that has the values of its variables: its `.index` file or
        its prefix in this package, or all its files
      config: (Label) a partial tf2xla config to merge into the inferred ones; of a GraphDef, a complete config
      data: (list[Label]) files that the model's code reads
      debug_info: (Label) of a GraphDef, a GraphDebugInfo with the source lines of its nodes
      deps: (list[Label]) Python libraries that the model's code imports
      dims: (dict[str, list]) sizes that inputs leave open: `{"x": [32, None, 3]}`; None keeps the model's own size, and a name is
        that of one of `sizes`
      entry_points: (list[str] or dict[str, str]) names of the model's entry points, or a map from C++ names to them. By
        default, the model's first entry point, as `Run`.
      framework: (str) what a Python file is of: `tensorflow`, or `jax`, which runs with the packages in `deps`
        (docs/guide/jax.md)
      frozen: (list[str]) patterns of the variables that become constants of the code; `!pattern` excludes some again. By
        default, all variables are frozen if the model writes none of them and compiles to one function; otherwise none is.
      golden_calls: (list[str]) the entry points that each verified step calls, in order. By default, all of them.
      golden_inputs: (Label) inputs to verify, in place of random ones: a Python file that defines `golden_fn(step, rng)`, or a file
        of arrays (`.npz` or `.safetensors`), named as the inputs, or `step0/x` for those of one call
        (docs/guide/models.md#inputs-to-verify). A model's own Python file can define `golden_fn`, too.
      golden_steps: (int) how many consecutive runs to verify
      inputs: (list[str]) of a GraphDef without `config`, its feeds, `node` or `node:port`. By default, its placeholders.
      max_batch: (int) the largest batch; by default, the largest of `batch_sizes`
      outputs: (list[str]) of a GraphDef without `config`, its fetches. By default, the nodes that nothing consumes.
      replicas: (int) how many instances of the class run together, and exchange values (docs/guide/distributed.md). In a Python
        file, a `tf.distribute` strategy has as many replicas, or JAX as many devices. By default, a strategy has one.
      rows_independent: (bool) with `batch_sizes`, whether you vouch that no row of a batch affects another row's results,
        where the analysis can't show it
      saved_model_tags: (list[str]) tags of a SavedModel's meta graph, by default `["serve"]`
      saver: (Label) of a GraphDef, a SaverDef that says how to restore `checkpoint`
      signature: (dict[str, str]) dtypes and shapes of a Python file's parameters: `{"x": "float32[64, None]"}`
      sizes: (dict[str, list[int]]) sizes that differ from call to call, such as lengths: by name, what to compile for, in increasing
        order: `{"time": [16, 64, 256]}`. `dims` says where inputs have them: `{"tokens": [None, "time"]}`. The class takes any
        size up to the largest (docs/guide/sizes.md).
      state: (dict[str, str]) of a Python file of JAX, arguments that become variables of the class, and where results have their
        new values: `{"params": "params"}`, or `{"params": "0"}` in a tuple. An argument that is only read has an empty one.
      weights: (Label or dict[str, str]) a safetensors file with values for all variables, which replace the model's own initial
        values. Or a dictionary with some of `file`, such a file; `dtype`, in which frozen weights of matrix products are stored,
        `bfloat16` or `int8`; and `tolerance`, how much that may change outputs, relative to an output's largest value.
      **kwargs: the attributes that any rule has, such as `tags` and `visibility`
    """
    stored = dict(weights) if type(weights) == "dict" else {"file": weights}
    if type(entry_points) == "list":
        entry_points = {own.replace(".", "_"): own for own in entry_points}
    _tf_model(
        name = name,
        batch_sizes = batch_sizes,
        checkpoint = _checkpoint_files(checkpoint),
        config = config,
        data = data,
        debug_info = debug_info,
        default_frozen = frozen == None,
        deps = deps,
        framework = framework,
        dims = {
            label: ["?" if size == None else str(size) for size in sizes]
            for label, sizes in (dims or {}).items()
        },
        entry_points = entry_points or {},
        frozen = frozen or [],
        golden_calls = golden_calls,
        golden_inputs = golden_inputs,
        golden_steps = golden_steps,
        inputs = inputs,
        max_batch = max_batch,
        outputs = outputs,
        replicas = replicas,
        rows_independent = rows_independent,
        saved_model_tags = saved_model_tags,
        saver = saver,
        signature = signature,
        sizes = {size: [str(bucket) for bucket in buckets] for size, buckets in (sizes or {}).items()},
        state = state,
        source = [source] if type(source) in ("string", "Label") else source,
        weights = stored.pop("file", None),
        weights_stored = stored,
        **kwargs
    )

def model_target(*, name, model, common, **attributes):
    """Returns the `tf_model` that a target names, or declares NAME.model for its file.

    Args:
      name: (str) the target's name
      model: (Label) its attribute of this name
      common: (dict) attributes of private targets
      **attributes: of `tf_model`, for a file

    Returns:
      (Label) the `tf_model`
    """
    if type(model) == "select" or str(model).rpartition(".")[2] not in BY_EXTENSION:
        return model
    tf_model(name = name + ".model", source = model, **(common | attributes))
    return name + ".model"
