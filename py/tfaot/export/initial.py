"""Initial values of variables: the model's own, or those from a file."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tfaot.core import dtypes, safetensors
from tfaot.core.errors import TfaotError, listed
from tfaot.export.rewrites.random.state import state_of
from tfaot.export.traced import Array, Source, shown
from tfaot.graph.variables import VariableUse


def values(source: Source, path: str | None, uses: Sequence[VariableUse], random_state: str | None) -> dict[str, Array]:
    """Returns the initial value of every variable, by name.

    Args:
      source: the model. Its own values are used if there is no file.
      path: a safetensors file with values for all variables, or None.
      uses: the variables.
      random_state: the variable that random ops draw from, if there is one. A file need not contain it.

    Raises:
      TfaotError: the file doesn't fit the model. The message lists every mismatch.
    """
    if path is not None and not uses:
        raise TfaotError(
            f"{path} can't be the weights of a model that has no variables",
            exists="a program whose values are all constants or inputs, as those in StableHLO are",
            do="remove weights, or make the values variables of the model",
        )
    own = [use.shared_name for use in uses if use.shared_name != random_state]
    result = dict(source.initial(own)) if path is None else _weights(path, uses, random_state)
    if random_state is not None and random_state not in result:
        result[random_state] = state_of(0)
    return result


def _weights(path: str, uses: Sequence[VariableUse], random_state: str | None) -> dict[str, Array]:
    held = safetensors.read(path)
    wrong = []
    missing = False
    for use in uses:
        wanted = f"{dtypes.BY_ENUM[use.dtype].name}{shown(use.shape)}"
        value = held.get(use.shared_name)
        if value is None:
            if use.shared_name != random_state:
                wrong.append(f"{use.shared_name}: missing; the model has {wanted}")
                missing = True
        elif f"{value.dtype}{list(value.shape)}" != wanted:
            wrong.append(f"{use.shared_name}: {value.dtype}{list(value.shape)}; the model has {wanted}")
        elif value.dtype == np.bool_ and value.view(np.uint8).max(initial=0) > 1:
            wrong.append(f"{use.shared_name}: {wanted} with values other than 0 and 1")  # invalid as a C++ bool
    if wrong:
        others = sorted(set(held) - {use.shared_name for use in uses})
        raise TfaotError(
            f"{path} doesn't fit the model: {len(wrong)} of {len(uses)} variable(s)",
            details="\n".join(wrong),
            exists="also in the file: " + listed(others) if missing and others else "",
            do="write a file with every variable of the model, under its name in model.json",
        )
    return {use.shared_name: held[use.shared_name] for use in uses if use.shared_name in held}
