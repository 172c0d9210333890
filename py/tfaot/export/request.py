"""What the export stage, and others that open the model, are told. Without TensorFlow, which a main imports in a child process."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from tfaot.export.sources.model import Model


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelRequest:
    """What all stages that open a model are told about it."""

    model: Model
    entry_points: tuple[tuple[str, str], ...] = ()
    """Pairs of a C++ name and the model's own. By default, `Run` and the first entry point that the model offers."""
    dims: Mapping[str, tuple[int | str | None, ...]] = dataclasses.field(default_factory=dict)
    """Sizes of inputs' dimensions that the model leaves open, by label; or the names of some of `sizes`."""
    sizes: Mapping[str, tuple[int | str | None, ...]] = dataclasses.field(default_factory=dict)
    """Sizes that differ from call to call, by name, and the buckets to compile for."""
    batch_sizes: tuple[int, ...] = ()
    """Batch sizes to compile for. The batch is the first dimension of inputs that leave it open."""
    frozen: tuple[str, ...] | None = None
    """Patterns of variables to turn into constants. None for all, if nothing is written and there is one function."""

    @property
    def buckets(self) -> dict[str, tuple[int, ...]]:
        """The buckets of each open size."""
        return {
            name: tuple(bucket for bucket in buckets if isinstance(bucket, int)) for name, buckets in self.sizes.items()
        }

    def dims_with(self, open_sizes: Mapping[str, int]) -> dict[str, tuple[int | None, ...]]:
        """Returns `dims` with these numbers in place of open sizes, or None."""
        return {
            label: tuple(open_sizes.get(size) if isinstance(size, str) else size for size in shape)
            for label, shape in self.dims.items()
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request(ModelRequest):
    """What to export, and where to write it."""

    golden_steps: int = 3
    """How many consecutive runs to verify."""
    out_graph: str
    out_configs: tuple[str, ...]
    """One for each entry point."""
    out_manifest: str
    out_variables: str
    out_golden_inputs: str
    out_sources: str
    out_weights: str
    """The fingerprint of the variables' values: assembler code that defines it, or without `cpp_class`, its digits."""
    cpp_class: str = ""
    """The generated class with its namespaces. If it is empty, `tfaot.core.naming` names it later."""
    some_batched: bool = False
    """Whether an entry point whose inputs have no open dimension is compiled without batches, instead of refused."""
    max_batch: int = 0
    """The largest batch that the class takes, or 0 for the largest of `batch_sizes`."""
    rows_independent: bool = False
    """Whether the user vouches that no row of a batch affects another row's results, so no analysis has to show it."""
    weights: str | None = None
    """A safetensors file with values for all variables, to use instead of the model's own."""
    weights_dtype: str = ""
    """The dtype in which the weights of products are stored: one of `manifest.WEIGHT_DTYPES`, or empty for their own."""
    weights_tolerance: str = ""
    """How much that may change outputs, relative to an output's largest value. Empty for the default."""
    golden_calls: tuple[str, ...] = ()
    """Entry points in the order in which the test calls them. By default, all in sequence, for each golden step."""
    edge: str = "cpp"
    """One of `dtypes.EDGES`: whether dtypes that C++ lacks are converted at the edge."""
    taps: tuple[str, ...] = ()
    """Patterns of nodes whose values become outputs, for a test to compare."""
