"""What the stages hand to each other. Each provider is the whole output of one stage."""

visibility(["//rules/...", "//tests/..."])

TfaotGraphInfo = provider(
    doc = "Output of the export stage: a model as a graph, and all that is known of it.",
    fields = {
        "label": "(Label) the target that exported, to simplify debugging",
        "graph": "(File) serialized GraphDef, pruned to what the fetches need, without weights",
        "configs": "(list[File]) tf2xla configs in protobuf's text format, one for each entry point",
        "entry_points": "(list[str]) C++ names of the entry points; Run if there is only one",
        "batch_sizes": "(list[int]) sizes of batch to compile for; empty if there is no batch",
        "manifest": "(File) model.json: names, dtypes, shapes, and positions of inputs, outputs, and variables",
        "variables": "(File) initial values of the variables, safetensors",
        "golden_inputs": "(File) inputs for each step that is verified, safetensors",
        "sources": "(File) JSON map from nodes to lines of the user's code, which errors quote",
    },
)

TfaotObjectInfo = provider(
    doc = "Output of the compile stage: machine code without the C++ around it.",
    fields = {
        "label": "(Label) the target that compiled, to simplify debugging",
        "isa": "(list[str]) x86-64 psABI levels that there is code for, such as 'x86-64-v3', lowest first",
        "objects": "(list[File]) kernels, with a C ABI: for each entry point and size of batch, one for each level",
        "constants": "(list[File]) object files with the constants; as the others, one for each entry point and size of batch",
        "headers": "(list[File]) declare what runs them, included by nothing but the generated source",
        "sources": "(dict[str, list[File]]) by level: run them; for the link stage to compile, for this level",
        "hlo": "(list[File]) serialized xla.HloSnapshots, before optimization",
        "passes": "(list[File]) JSON: how many places each pass changed in the graph, null for one that is off; and packed constants",
    },
)

TfaotHloInfo = provider(
    doc = "What the compiler makes of a graph before it is machine code.",
    fields = {
        "label": "(Label) the target that lowered, to simplify debugging",
        "hlo": "(list[File]) serialized xla.HloModuleProto, before optimization; as the others, one for each entry point",
        "text": "(list[File]) the same as text, constants written out",
        "optimized": "(list[File]) text of the modules that machine code is made of: fused, scheduled, for one CPU level",
        "picture": "(list[File]) SVG of the modules before optimization",
    },
)

TfaotStablehloInfo = provider(
    doc = "A graph as StableHLO, with operations of no other dialect.",
    fields = {
        "label": "(Label) the target that translated, to simplify debugging",
        "text": "(list[File]) MLIR text, one for each entry point",
        "bytecode": "(list[File]) portable artifacts: versioned bytecode",
    },
)

TfaotSourcesInfo = provider(
    doc = "Output of the render stage: C++ sources that derive from the manifest alone.",
    fields = {
        "label": "(Label) the target that rendered, to simplify debugging",
        "header": "(File) the public header; includes nothing of TensorFlow, Eigen, or abseil",
        "source": "(File) the class's implementation; includes the compile stage's headers",
        "variables": "(File) assembler source that holds the variables' file, or nothing",
        "embed": "(bool) whether it holds them",
        "test": "(File) test that compares the class with the goldens",
        "benchmark": "(File) benchmark of the class",
    },
)

TfaotGoldensInfo = provider(
    doc = "Output of the verify stage: TensorFlow's own numbers.",
    fields = {
        "label": "(Label) the target that computed them, to simplify debugging",
        "goldens": "(File) inputs, expected values, and tolerances for each step, safetensors",
    },
)
