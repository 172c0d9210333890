"""Which files stages make and read. The rules load this file, and the command `tfaot` reads it as Python (`py/tfaot/starlark.py`).

A stage's table has what follows a stem in a file's name, by the field `out_…` of its `Request`.
"""

visibility(["//rules/..."])

EXPORT = {
    "golden_inputs": ".golden_inputs.safetensors",
    "graph": ".pb",
    "manifest": ".export.json",
    "sources": ".sources.json",
    "variables": ".variables.safetensors",
    "weights": ".weights.txt",
}
CONFIG = ".config.pbtxt"

# What the stage that runs JAX makes of a Python file, for export.
JAX = {"programs": ".jax"}

# What the naming of a class makes of two of them. If export knows the class, it writes these itself.
NAME = {
    "manifest": ".model.json",
    "weights": ".weights.S",
}

COMPILE = {
    "constants": ".constants.o",
    "fingerprint": ".fingerprint.json",
    "fingerprint_source": ".fingerprint.S",
    "header": ".executor.h",
    "hlo": ".hlo_snapshot.pb",
    "passes": ".passes.json",
    "program": ".program.json",
}

# Of each CPU level, whose name is between the stem and these.
COMPILE_LEVEL = {
    "objects": ".kernels.o",
    "sources": ".executor.cc",
}

RENDER = {
    "benchmark": "_benchmark.cc",
    "header": ".h",
    "source": ".cc",
    "stub": ".stub.cc",
    "test": "_test.cc",
    "variables": ".variables.S",
}

VERIFY = {"goldens": ".goldens.safetensors"}

HLO = {
    "drawing": ".hlo.dot",
    "hlo": ".hlo.pb",
    "hlo_text": ".hlo.txt",
    "optimized_drawing": ".optimized_hlo.dot",
    "optimized_hlo": ".optimized_hlo.txt",
}

STABLEHLO = {
    "bytecode": ".stablehlo.mlirbc",
    "text": ".stablehlo.mlir",
}

BUNDLE = {"archive": ".bundle.tar.gz"}

# The files of export that stages read, by the fields of their requests.
READS = {
    "bundle": ["manifest", "variables"],
    "compile": ["manifest", "graph", "sources"],
    "hlo": ["manifest", "graph", "sources"],
    "render": ["manifest"],
    "stablehlo": ["manifest", "graph", "sources"],
    "verify": ["manifest", "graph", "sources", "variables", "golden_inputs"],
}

def entries_of(entry_points, stem):
    """Returns the entry points of a model.

    Args:
      entry_points: (list[str]) their C++ names
      stem: (str) the prefix of output file names

    Returns:
      (list[struct]) `stem` of the entry point's files, and `entry_point`
    """
    many = len(entry_points) > 1
    return [
        struct(stem = stem + "." + name if many else stem, entry_point = name)
        for name in entry_points
    ]

def functions_of(entry_points, batch_sizes, buckets, stem):
    """Returns what the compiler makes of a model: every entry point, at every batch size and every product of buckets.

    Stages name a function by its entry point, batch, and buckets; `tfaot.core.functions` compares them with the manifest.

    Args:
      entry_points: (list[str]) their C++ names
      batch_sizes: (list[int]) as in TfaotGraphInfo
      buckets: (list[list[int]]) as in TfaotGraphInfo
      stem: (str) the prefix of output file names

    Returns:
      (list[struct]) `stem` of the function's files, `entry_point`, `batch`, 0 if there is none, and `buckets`
    """
    products = [[]]
    for own in buckets:
        products = [product + [bucket] for product in products for bucket in own]
    return [
        struct(
            stem = entry.stem + (".b%d" % batch if batch else "") + (".n" + "x".join([str(bucket) for bucket in product]) if product else ""),
            entry_point = entry.entry_point,
            batch = batch,
            buckets = product,
        )
        for entry in entries_of(entry_points, stem)
        for product in products
        for batch in batch_sizes or [0]
    ]

# The attributes of a model that all stages which open it read, and those that only export reads.
MODEL = ["batch_sizes", "checkpoint", "debug_info", "dims", "entry_points", "golden_inputs", "inputs", "outputs"] + \
        ["replicas", "saved_model_tags", "saver", "signature", "sizes"]
MODEL_EXPORT = ["golden_calls", "max_batch", "rows_independent"]

# What the attribute `weights` can set besides a file.
WEIGHTS = ["dtype", "tolerance"]
