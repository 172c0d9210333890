"""The export stage: from a model in any form to a graph, its configs, and the manifest."""

load("@rules_python//python:defs.bzl", "PyInfo")
load(":providers.bzl", "TfaotGraphInfo")
load(":stage.bzl", "TOOLCHAIN_TYPE", "run_stage", "stage_attrs")

visibility(["//rules/...", "//tests/..."])

def _model_flags(ctx, flags):
    """Adds the flags that say where the model is, and returns its files."""
    sources = [name for name in ("model", "saved_model", "graph", "stablehlo") if getattr(ctx.attr, name)]
    if len(sources) != 1:
        fail("{}: a model is one of model, saved_model, graph, and stablehlo; this target has {}. To do: set exactly one.".format(
            ctx.label,
            " and ".join(sources) or "none",
        ))
    for name in _GRAPH_ONLY:
        if getattr(ctx.attr, name) and not ctx.attr.graph:
            fail("{}: {} applies only to graph, but this target has {}. To do: remove it.".format(ctx.label, name, sources[0]))
    if ctx.attr.signature and not ctx.attr.model:
        fail("{}: signature applies only to model, but this target has {}. To do: remove it, or use dims.".format(
            ctx.label,
            sources[0],
        ))
    if ctx.attr.model:
        flags.add(ctx.file.model, format = "--model=%s")
        flags.add_all(
            ["{}={}".format(name, spec) for name, spec in ctx.attr.signature.items()],
            format_each = "--signature=%s",
        )
        return [ctx.file.model]
    if ctx.attr.saved_model:
        files = ctx.files.saved_model
        flags.add(_saved_model_folder(ctx.label, files), format = "--saved_model=%s")
        flags.add_all(ctx.attr.saved_model_tags, format_each = "--saved_model_tag=%s")
        return files
    if ctx.attr.stablehlo:
        flags.add(ctx.file.stablehlo, format = "--stablehlo=%s")
        return [ctx.file.stablehlo]
    flags.add(ctx.file.graph, format = "--graph=%s")
    flags.add_all(ctx.attr.inputs, format_each = "--input=%s")
    flags.add_all(ctx.attr.outputs, format_each = "--output=%s")
    files = [ctx.file.graph]
    for file, flag in (
        (ctx.file.graph_config, "--graph_config"),
        (ctx.file.saver, "--saver"),
        (ctx.file.debug_info, "--debug_info"),
    ):
        if file:
            flags.add(file, format = flag + "=%s")
            files.append(file)
    if ctx.files.checkpoint:
        flags.add(_checkpoint(ctx.label, ctx.files.checkpoint), format = "--checkpoint=%s")
        files.extend(ctx.files.checkpoint)
    return files

def source_flags(ctx):
    """Returns the flags that the stages share that open a model, and the files that they name.

    Args:
      ctx: the rule's context; the rule has `model_attrs`

    Returns:
      (Args, list[File])
    """
    flags = ctx.actions.args()
    inputs = ctx.files.data + _model_flags(ctx, flags)
    flags.add_all(["{}={}".format(name, own) for name, own in ctx.attr.entry_points.items()], format_each = "--entry_point=%s")
    flags.add_all(
        ["{}={}".format(name, ",".join(sizes)) for name, sizes in ctx.attr.dims.items()],
        format_each = "--dims=%s",
    )
    flags.add_all([str(size) for size in getattr(ctx.attr, "batch_sizes", [])], format_each = "--batch_size=%s")
    if not ctx.attr.default_frozen:
        flags.add("--freeze=listed")
    flags.add_all(ctx.attr.frozen, format_each = "--frozen=%s")
    return flags, inputs

def report(ctx, stem):
    """Declares the report stage, which reads the model itself, because a model with blockers may have no graph to export.

    Args:
      ctx: the export rule's context
      stem: (str) the start of the output files' names

    Returns:
      (list[File]) the report as text, JSON, and HTML
    """
    flags, inputs = source_flags(ctx)
    outputs = {kind: ctx.actions.declare_file("{}.report.{}".format(stem, end)) for kind, end in _REPORTS.items()}
    for kind, file in outputs.items():
        flags.add(file, format = "--out_{}=%s".format(kind))
    run_stage(
        ctx,
        mnemonic = "TfaotReport",
        progress_message = "Checking what stands in the way of compiling %{label}",
        flags = flags,
        inputs = inputs,
        outputs = outputs.values(),
        deps = ctx.attr.deps,
        library = ctx.attr._report_library,
        main = ctx.file._report_main,
    )
    return outputs.values()

_REPORTS = {"html": "html", "json": "json", "text": "txt"}

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

def _saved_model_folder(label, files):
    """Returns the folder of a SavedModel: the one that contains saved_model.pb, or the output of a rule."""
    if len(files) == 1 and files[0].is_directory:
        return files[0].path
    found = [file.dirname for file in files if file.basename in ("saved_model.pb", "saved_model.pbtxt")]
    if len(found) != 1:
        fail("{}: saved_model names {} files, {} of them saved_model.pb. To do: name a filegroup of one SavedModel's folder, \
glob([\"folder/**\"]), or a rule that makes such a folder.".format(label, len(files), len(found)))
    return found[0]

_GRAPH_ONLY = ["checkpoint", "debug_info", "graph_config", "inputs", "outputs", "saver"]

def _declared(ctx, stem, extension):
    """Declares an output. It has another name if a rule of the user makes the graph or its config under this one."""
    folder = [part for part in (ctx.bin_dir.path, ctx.label.workspace_root, ctx.label.package) if part]
    taken = [file.path for file in ctx.files.graph + ctx.files.graph_config + ctx.files.config]
    if "/".join(folder + [stem + extension]) in taken:
        stem += ".exported"
    return ctx.actions.declare_file(stem + extension)

def _tf_aot_export_impl(ctx):
    stem = ctx.attr.stem or ctx.label.name
    graph = _declared(ctx, stem, ".pb")
    entry_points = ctx.attr.entry_points.keys() or ["Run"]
    configs = [
        _declared(ctx, stem + ("." + name if len(entry_points) > 1 else ""), ".config.pbtxt")
        for name in entry_points
    ]
    manifest = ctx.actions.declare_file(stem + ".model.json")
    variables = ctx.actions.declare_file(stem + ".variables.safetensors")
    golden_inputs = ctx.actions.declare_file(stem + ".golden_inputs.safetensors")
    sources = ctx.actions.declare_file(stem + ".sources.json")
    weights = ctx.actions.declare_file(stem + ".weights.S")

    flags, inputs = source_flags(ctx)
    flags.add(ctx.attr.max_batch, format = "--max_batch=%s")
    if ctx.attr.rows_independent:
        flags.add("--rows_independent")
    flags.add_all(ctx.attr.golden_calls, format_each = "--call=%s")
    flags.add(ctx.attr.cpp_class, format = "--cpp_class=%s")
    flags.add(ctx.attr.edge, format = "--edge=%s")
    flags.add(ctx.attr.golden_steps, format = "--golden_steps=%s")
    flags.add_all(ctx.attr.taps, format_each = "--tap=%s")
    for key, value in ctx.attr.weights_stored.items():
        if key not in _STORED:
            fail("{}: weights has the key {}; its keys are {}. To do: use only these.".format(
                ctx.label,
                key,
                ", ".join(["file"] + _STORED),
            ))
        flags.add(value, format = "--weights_{}=%s".format(key))
    for file, flag in ((ctx.file.config, "--user_config"), (ctx.file.weights, "--weights")):
        if file:
            flags.add(file, format = flag + "=%s")
            inputs.append(file)
    flags.add(graph, format = "--out_graph=%s")
    flags.add_all(configs, format_each = "--out_config=%s")
    flags.add(manifest, format = "--out_manifest=%s")
    flags.add(variables, format = "--out_variables=%s")
    flags.add(golden_inputs, format = "--out_golden_inputs=%s")
    flags.add(sources, format = "--out_sources=%s")
    flags.add(weights, format = "--out_weights=%s")
    outputs = [graph] + configs + [manifest, variables, golden_inputs, sources, weights]
    run_stage(
        ctx,
        mnemonic = "TfaotExport",
        progress_message = "Exporting the graph of %{label}",
        flags = flags,
        inputs = inputs,
        outputs = outputs,
        deps = ctx.attr.deps,
    )
    return [
        DefaultInfo(files = depset(outputs)),
        TfaotGraphInfo(
            label = ctx.label,
            cpp_class = ctx.attr.cpp_class,
            graph = graph,
            configs = configs,
            entry_points = entry_points,
            batch_sizes = ctx.attr.batch_sizes,
            manifest = manifest,
            variables = variables,
            golden_inputs = golden_inputs,
            program = ctx.file.stablehlo,
            sources = sources,
            weights = weights,
            report = report(ctx, stem),
        ),
    ]

def model_attrs():
    """Returns the attributes of a rule that opens a model.

    Returns:
      (dict[str, Attribute]) what says where the model is, and what of it to compile
    """
    return {
        "checkpoint": attr.label_list(
            doc = "With `graph`: all files of a checkpoint that has the values of its variables.",
            allow_files = True,
        ),
        "cpp_class": attr.string(
            doc = "The generated class with its namespaces, `a::b::Class`.",
            mandatory = True,
        ),
        "data": attr.label_list(
            doc = "Files that the model's code reads.",
            allow_files = True,
        ),
        "debug_info": attr.label(
            doc = "With `graph`: a GraphDebugInfo with the source lines of its nodes.",
            allow_single_file = True,
        ),
        "default_frozen": attr.bool(
            doc = "Whether the rules choose `frozen`: all variables if the model writes none and there is one " +
                  "function to compile; otherwise none.",
            default = True,
        ),
        "deps": attr.label_list(
            doc = "Python libraries that the model's code imports.",
        ),
        "dims": attr.string_list_dict(
            doc = "Sizes of dimensions that inputs leave open, by input. `?` keeps the model's own size.",
        ),
        "entry_points": attr.string_dict(
            doc = "C++ names of the entry points, and the model's names for them. By default, the model's first entry point, as `Run`.",
        ),
        "frozen": attr.string_list(
            doc = "Patterns of the variables that become constants of the code; `!pattern` excludes some again.",
        ),
        "golden_steps": attr.int(
            doc = "How many consecutive runs to verify.",
            default = 3,
        ),
        "graph": attr.label(
            doc = "A GraphDef, binary or text, or a MetaGraphDef (`.meta`).",
            allow_single_file = True,
        ),
        "graph_config": attr.label(
            doc = "With `graph`: a complete tf2xla config that names its feeds and fetches.",
            allow_single_file = True,
        ),
        "inputs": attr.string_list(
            doc = "With `graph` and without `graph_config`: its feeds, `node` or `node:port`. By default, its placeholders.",
        ),
        "model": attr.label(
            doc = "A Python file that defines `input_fn()` and `model_fn(features, labels)`, or `model`, which is a function, a " +
                  "tf.function, a tf.Module, or a Keras model. It may define `golden_fn(step, rng)`, which returns the verified inputs.",
            allow_single_file = [".py"],
        ),
        "outputs": attr.string_list(
            doc = "With `graph` and without `graph_config`: its fetches. By default, the nodes that nothing consumes.",
        ),
        "saved_model": attr.label(
            doc = "A SavedModel: a filegroup of its folder, or a rule that makes such a folder.",
            allow_files = True,
        ),
        "saved_model_tags": attr.string_list(
            doc = "Tags of the SavedModel's meta graph.",
            default = ["serve"],
        ),
        "saver": attr.label(
            doc = "With `graph`: a SaverDef that says how to restore `checkpoint`.",
            allow_single_file = True,
        ),
        "signature": attr.string_dict(
            doc = "With `model`: dtypes and shapes of its entry points' parameters, such as `float32[64, None]`, by parameter.",
        ),
        "stablehlo": attr.label(
            doc = "A program in StableHLO: a portable artifact, or text.",
            allow_single_file = True,
        ),
        "stem": attr.string(
            doc = "The start of the output files' names. By default, the target's name.",
        ),
        "_report_library": attr.label(default = "//py/tfaot/preflight:with_calibrate", providers = [PyInfo], cfg = "exec"),
        "_report_main": attr.label(default = "//tools:report.py", allow_single_file = [".py"], cfg = "exec"),
    }

tf_aot_export = rule(
    implementation = _tf_aot_export_impl,
    doc = "Loads a model, and writes its graph, a tf2xla config for each entry point, and the manifest.",
    attrs = model_attrs() | {
        "batch_sizes": attr.int_list(
            doc = "Batch sizes to compile for, in increasing order. The batch is the first dimension of the inputs that leave it open.",
        ),
        "config": attr.label(
            doc = "A partial tf2xla config in protobuf text format. An entry is matched by its node name, and each field that it sets " +
                  "replaces the inferred one.",
            allow_single_file = [".pbtxt"],
        ),
        "edge": attr.string(
            doc = "What uses the model: `cpp`, a C++ program, for which float16, bfloat16, and complex inputs and outputs are " +
                  "converted to and from their bits, or `hlo`, another compiler, for which they aren't.",
            default = "cpp",
            values = ["cpp", "hlo"],
        ),
        "golden_calls": attr.string_list(
            doc = "The entry points that each golden step calls, in order. By default, all of them.",
        ),
        "max_batch": attr.int(
            doc = "The largest batch that the class takes. By default, the largest of `batch_sizes`.",
        ),
        "rows_independent": attr.bool(
            doc = "With `batch_sizes`: you vouch that no row of a batch affects another row's results, where the analysis " +
                  "can't show it.",
        ),
        "taps": attr.string_list(
            doc = "Patterns of nodes whose values become outputs, before the model's own outputs; `!pattern` excludes some again.",
        ),
        "weights": attr.label(
            doc = "A safetensors file with values for all variables, which replace the model's own initial values.",
            allow_single_file = [".safetensors"],
        ),
        "weights_stored": attr.string_dict(
            doc = "How frozen weights of matrix products are stored: `dtype`, `bfloat16` or `int8`, and `tolerance`, how much that may " +
                  "change outputs, relative to an output's largest value. By default, they keep their dtype.",
        ),
    } | stage_attrs("//tools:export.py", "//py/tfaot/export:with_calibrate"),
    provides = [TfaotGraphInfo],
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
    found = native.glob([prefix + ".index", prefix + ".data-*"], allow_empty = True)
    return found if prefix + ".index" in found else [checkpoint]

_STORED = ["dtype", "tolerance"]

def export_model(*, name, model, frozen = None, rule = tf_aot_export, **kwargs):
    """Declares the export stage from a model's attributes as users write them in a macro.

    Args:
      name: (str) the target's name
      model: (dict) attributes of `tf_aot_export`. `dims` may contain integers and None, `entry_points` may be a list of names
        that are also the C++ names, `checkpoint` may be a prefix or its `.index` file, and with `graph`, `config` is a complete
        config.
      frozen: (list[str]) as in `tf_aot_export`; with None, the rules choose
      rule: (rule) `tf_aot_export`, or another one that opens a model
      **kwargs: additional attributes of `tf_aot_export`
    """
    model = dict(model)
    dims = {
        label: ["?" if size == None else str(size) for size in sizes]
        for label, sizes in (model.pop("dims", None) or {}).items()
    }
    entry_points = model.pop("entry_points", None) or {}
    if type(entry_points) == "list":
        entry_points = {own.replace(".", "_"): own for own in entry_points}
    if model.get("graph") and model.get("config"):
        model["graph_config"] = model.pop("config")
    weights = model.get("weights")
    if type(weights) == "dict":
        stored = dict(weights)
        model["weights"] = stored.pop("file", None)
        model["weights_stored"] = stored
    model["checkpoint"] = _checkpoint_files(model.get("checkpoint"))
    rule(
        name = name,
        default_frozen = frozen == None,
        dims = dims,
        entry_points = entry_points,
        frozen = frozen or [],
        **(model | kwargs)
    )
