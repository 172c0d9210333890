"""The kinds of models. The command `tfaot` reads this file, too."""

visibility(["//rules/..."])

KINDS = {
    "graph": "a GraphDef",
    "model": "a Python file",
    "saved_model": "a SavedModel",
    "stablehlo": "StableHLO",
}

# A SavedModel is a folder.
BY_EXTENSION = {
    "meta": "graph",
    "mlir": "stablehlo",
    "mlirbc": "stablehlo",
    "pb": "graph",
    "pbtxt": "graph",
    "py": "model",
}

MODELS = "a Python file (.py), a GraphDef (.pb or .pbtxt), a MetaGraphDef (.meta), StableHLO (.mlir or .mlirbc), or the folder of " + \
         "a SavedModel"

# Attributes that belong to one kind.
ONLY = {
    "checkpoint": "graph",
    "debug_info": "graph",
    "inputs": "graph",
    "outputs": "graph",
    "replicas": "model",
    "saved_model_tags": "saved_model",
    "saver": "graph",
    "signature": "model",
}
