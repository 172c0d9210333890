"""What the cluster stage is told. Without TensorFlow, which its main imports in a child process."""

from __future__ import annotations

import dataclasses

from tfaot.export.request import ModelRequest


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request(ModelRequest):
    """What to cluster, and where to write it.

    `entry_points` has at most one pair, of the function to cut. Sizes that `dims` doesn't have can stay open. `batch_sizes` is
    empty if what has rows of a batch stays with TensorFlow. If `frozen` is None, what the model only reads is constant.
    """

    cpp_class: str
    golden_steps: int = 3
    """How many consecutive runs to verify."""
    min_ops: int = 3
    """The smallest number of computing ops in a cluster."""
    out_graph: str
    out_configs: str
    """A folder, for a config for each cluster."""
    out_manifest: str
    out_variables: str
    out_golden_inputs: str
    out_sources: str
    out_weights: str
    out_saved_model: str
    """A folder: the model, with calls in place of its clusters."""
    out_uncut: str
    """The model's own graph."""
    out_inputs: str
    """The inputs of the steps to verify, as serialized tensors in a safetensors file."""
    out_plan: str
    """JSON: what became of each node."""
    pipeline_header: str = ""
    """The path by which to include the pipeline's header. Empty if no pipeline is wanted."""
    library_header: str = ""
    """The path by which the pipeline includes the clusters' header."""
    out_pipeline_header: str = ""
    out_pipeline_test: str = ""
    out_pipeline_initial: str = ""
    """Assembler source with the variables' initial values."""
    out_pipeline_values: str = ""
    """These values, as they lie in memory."""
    out_pipeline_goldens: str = ""
    """What the pipeline's test compares with."""
