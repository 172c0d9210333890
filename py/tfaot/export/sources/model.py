"""Chooses the source of a model."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tfaot.core import caller, programs
from tfaot.core.errors import TfaotError
from tfaot.export.sources import python_file

if TYPE_CHECKING:  # TensorFlow is imported later, when its environment is set
    from tfaot.export.traced import Source


@dataclasses.dataclass(frozen=True)
class Model:
    """A model as the target specifies it: exactly one of `model`, `saved_model`, `graph`, `stablehlo`, and `jax`."""

    model: str | None = None
    """A Python file."""
    signature: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """What the entry points of a Python file take: `float32[64, None]` by parameter."""
    replicas: int = 0
    """How many replicas a `tf.distribute` strategy has in a Python file; 0 if the target doesn't say."""
    saved_model: str | None = None
    """A folder."""
    saved_model_tags: tuple[str, ...] = ("serve",)
    graph: str | None = None
    """A GraphDef, `.pb` or `.pbtxt`."""
    config: str | None = None
    """A handwritten tf2xla config: for `graph`, a complete one; else a partial one, to merge into the inferred ones."""
    inputs: tuple[str, ...] = ()
    """Feeds of `graph`, `node` or `node:port`, if there is no config."""
    outputs: tuple[str, ...] = ()
    """Fetches of `graph`, if there is no config."""
    checkpoint: str | None = None
    """Values of the variables of `graph`."""
    saver: str | None = None
    """A SaverDef that says how `checkpoint` is restored."""
    debug_info: str | None = None
    """A GraphDebugInfo: source lines of `graph`."""
    stablehlo: str | None = None
    """A program in StableHLO."""
    jax: str | None = None
    """Programs that JAX exported (`core/programs.py`)."""
    golden_inputs: str | None = None
    """Inputs to verify, in place of the source's own or of random ones: a Python file, `.npz`, or `.safetensors`."""

    @property
    def path(self) -> str:
        """The file or folder, for messages."""
        if self.jax is not None:
            return programs.read(self.jax).source
        return self.model or self.saved_model or self.graph or self.stablehlo or ""

    @property
    def legacy_keras(self) -> bool:
        """Whether `tf.keras` is Keras 2: if the file says so, or if it says nothing and is a TensorFlow 1 model.

        TensorFlow reads the environment variable when it is imported, which is before the file runs.
        """
        if self.model is None:
            return False
        self.check_files()
        said = python_file.environment(self.model, "TF_USE_LEGACY_KERAS")
        return self.is_model_fn if said is None else said in ("1", "true", "True")

    @property
    def is_model_fn(self) -> bool:
        """Whether the file defines `model_fn`, like models for TensorFlow 1."""
        return self.model is not None and python_file.defines(self.model, "model_fn")

    def check_files(self) -> None:
        """Checks that no file is a pipe or a device, for which reading could wait forever, and that there are inputs to verify.

        Raises:
          TfaotError: one of them is, or there is no such file.
        """
        if self.golden_inputs is not None and not os.path.exists(self.golden_inputs):
            raise TfaotError(
                caller.setting("golden_inputs", self.golden_inputs), exists="nothing at this path", do="check the path"
            )
        files = (self.jax or self.path, self.config, self.checkpoint, self.saver, self.debug_info, self.golden_inputs)
        for path in filter(None, files):
            if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
                raise TfaotError(
                    f"{path} can't be a model", exists="neither a file nor a folder", do="write it to a file first"
                )

    def open(self) -> Source:
        """Opens the model.

        Raises:
          TfaotError: the user's code raised an exception, or the files are invalid.
        """
        self.check_files()
        if self.golden_inputs is None:
            return self._open()
        from tfaot.export.sources.golden_inputs import GivenInputs

        return GivenInputs(self._open(), self.golden_inputs)

    def _open(self) -> Source:
        if self.saved_model is not None:
            from tfaot.export.sources.saved_model import SavedModelSource

            return SavedModelSource(self.saved_model, tags=self.saved_model_tags)
        if self.graph is not None:
            from tfaot.export.sources.graph_def import GraphDefSource

            return GraphDefSource(
                self.graph,
                config=self.config,
                inputs=self.inputs,
                outputs=self.outputs,
                checkpoint=self.checkpoint,
                saver=self.saver,
                debug_info=self.debug_info,
            )
        if self.stablehlo is not None:
            from tfaot.export.sources.stablehlo import StablehloSource

            return StablehloSource(self.stablehlo)
        if self.jax is not None:
            from tfaot.export.sources.jax_program import JaxSource

            return JaxSource(self.jax)
        assert self.model is not None
        if self.is_model_fn:
            from tfaot.export.sources.model_fn import ModelFnSource

            return ModelFnSource(self.model, replicas=self.replicas)
        from tfaot.export.sources.python_model import PythonSource

        return PythonSource(self.model, signature=self.signature, replicas=self.replicas)
