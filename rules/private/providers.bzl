"""The providers that stages pass to each other. Each provider is the complete output of one stage."""

visibility(["//rules/...", "//tests/..."])

TfaotModelInfo = provider(
    doc = "A model as its target describes it, for stages that open the model themselves.",
    fields = {
        "label": "(Label) the target that describes the model",
        "request": "(dict) what all stages that open the model are told about it, by the fields of `ModelRequest` in Python",
        "export_request": "(dict) the same that only the export stage is told",
        "inputs": "(list[File]) what the stages read besides",
        "code": "(struct) Python that the model's code imports",
        "own_names": "(dict[str, str]) the model's own names of entry points, by C++ name; empty for the default",
        "program": "(File) the model's StableHLO, or None",
        "entry_points": "(list[str]) as in TfaotGraphInfo",
        "batch_sizes": "(list[int]) as in TfaotGraphInfo",
        "buckets": "(list[list[int]]) as in TfaotGraphInfo",
        "report": "(list[File]) as in TfaotGraphInfo",
        "hlo": "(TfaotGraphInfo) the graph for other compilers, whose edge has the model's own dtypes",
    },
)

TfaotGraphInfo = provider(
    doc = "Output of the export stage: the model as a graph, and everything the later stages know about it.",
    fields = {
        "label": "(Label) the target that exported the model, for debugging",
        "cpp_class": "(str) the generated class with its namespaces, `a::b::Class`. Empty if the graph is a `tf_model`'s",
        "graph": "(File) serialized GraphDef, pruned to the nodes that the fetches need, without weights",
        "configs": "(list[File]) tf2xla configs in protobuf text format, one for each entry point, or one folder of them",
        "entry_points": "(list[str]) C++ names of the entry points; Run if there is only one and it has no name. Empty if only the manifest names them",
        "batch_sizes": "(list[int]) batch sizes to compile for; empty if the model has no batch dimension",
        "buckets": "(list[list[int]]) the sizes to compile for, of each open size",
        "manifest": "(File) model.json: names, dtypes, shapes, and positions of inputs, outputs, and variables",
        "variables": "(File) initial values of the variables, in safetensors format",
        "golden_inputs": "(File) the model's own inputs of each verified step, in safetensors format, weights before rounding, and the model's own graph if it has an open size; the verify stage draws all other inputs",
        "own_names": "(dict[str, str]) the model's own names of entry points, by C++ name; empty for the default",
        "program": "(File) the StableHLO that the graph was converted from, or None; the verify stage compares their results",
        "sources": "(File) JSON map from nodes to lines of the user's code; error messages quote them",
        "weights": "(File) assembler code with the fingerprint of the variables' values, apart from the manifest, so new values compile nothing; without a class, its digits",
        "report": "(list[File]) what stands in the way of compiling the model, as text, JSON, and HTML",
    },
)

TfaotObjectInfo = provider(
    doc = "Output of the compile stage: machine code, without the C++ class.",
    fields = {
        "label": "(Label) the target that compiled the graph, for debugging",
        "isa": "(list[str]) x86-64 psABI levels that the code is for, such as 'x86-64-v3', lowest first",
        "objects": "(list[File]) object files with the kernels, which have a C ABI: one for each entry point, batch size, bucket, and level",
        "constants": "(list[File]) object files with the constants: one for each entry point, batch size, and bucket",
        "headers": "(list[File]) headers of the executors; only the generated source includes them",
        "sources": "(dict[str, list[File]]) sources of the executors, by the level that the link stage compiles them for",
        "hlo": "(list[File]) serialized xla.HloSnapshots, before optimization",
        "fingerprint_source": "(File) assembler code that defines the class's fingerprint, the same for all functions",
        "fingerprints": "(list[File]) JSON files with what identifies the build: fingerprints, versions, flags, passes, and levels",
        "passes": "(list[File]) JSON files with the number of places that each pass changed, null for a pass that is off, the passes that failed, and the packed constants",
        "programs": "(list[File]) JSON files with the steps of a run and the memory that they use, for the highest level",
    },
)

TfaotHloInfo = provider(
    doc = "A graph as HLO, before the compiler turns it into machine code.",
    fields = {
        "label": "(Label) the target that lowered the graph, for debugging",
        "hlo": "(list[File]) serialized xla.HloModuleProto messages before optimization, one for each entry point, like the other fields",
        "text": "(list[File]) the same modules as text, with all constants written out",
        "optimized": "(list[File]) the optimized modules as text: fused and scheduled for one CPU level",
        "drawing": "(list[File]) drawings of the modules before optimization, for Graphviz",
        "optimized_drawing": "(list[File]) drawings of the optimized modules",
    },
)

TfaotStablehloInfo = provider(
    doc = "A graph as StableHLO, without operations from other dialects.",
    fields = {
        "label": "(Label) the target that translated the graph, for debugging",
        "text": "(list[File]) MLIR text, one for each entry point",
        "bytecode": "(list[File]) portable artifacts: versioned bytecode",
    },
)

TfaotSourcesInfo = provider(
    doc = "Output of the render stage: C++ sources that depend only on the manifest.",
    fields = {
        "label": "(Label) the target that rendered the sources, for debugging",
        "header": "(File) the public header, which includes nothing from TensorFlow, Eigen, or abseil",
        "source": "(File) the implementation of the class, which includes the compile stage's headers",
        "variables": "(File) assembler source that embeds the variables' file, or is empty",
        "embed": "(bool) whether `variables` embeds the file",
        "test": "(File) the test that compares the class with the goldens",
        "benchmark": "(File) the benchmark of the class",
        "stub": "(File) the implementation of the class without its model, which includes no other generated file than the header",
    },
)

TfaotGoldensInfo = provider(
    doc = "Output of the verify stage: TensorFlow's own numbers.",
    fields = {
        "label": "(Label) the target that computed the goldens, for debugging",
        "goldens": "(File) inputs, expected values, and tolerances of each step, in safetensors format",
    },
)
