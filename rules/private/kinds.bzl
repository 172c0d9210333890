"""The kinds of models. The command `tfaot` reads this file, too."""

visibility(["//rules/..."])

KINDS = {
    "graph": "a GraphDef",
    "jax": "a program of JAX",
    "model": "a Python file",
    "saved_model": "a SavedModel",
    "stablehlo": "StableHLO",
}

# A SavedModel is a folder.
BY_EXTENSION = {
    "jax": "jax",
    "meta": "graph",
    "mlir": "stablehlo",
    "mlirbc": "stablehlo",
    "pb": "graph",
    "pbtxt": "graph",
    "py": "model",
}

MODELS = "a Python file (.py), also one that loads a file of Keras, a GraphDef (.pb or .pbtxt), a MetaGraphDef (.meta), StableHLO (.mlir or .mlirbc), what tfaot.jax.export " + \
         "wrote (.jax), or the folder of a SavedModel"

# What a Python file can be of.
FRAMEWORKS = ["tensorflow", "jax"]

# Attributes that belong to one kind.
ONLY = {
    "checkpoint": "graph",
    "debug_info": "graph",
    "inputs": "graph",
    "outputs": "graph",
    "saved_model_tags": "saved_model",
    "saver": "graph",
    "signature": "model",
}

# Attributes of a model besides those in `MODEL` and `MODEL_EXPORT` of files.bzl.
OTHERS = ["config", "data", "deps", "framework", "frozen", "golden_steps", "source", "state", "weights"]
