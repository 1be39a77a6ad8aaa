"""Replicates of claims about language models: the questions put to one model, or the models.

A measure of such a claim returns, of one model, one number per question, or numbers. Asked of one model, a claim per
`question` counts its questions. Everywhere else a model is one replicate: with the mean over the questions that pass
the gate, and, where none does, over all of them, with a gate that fails.

*Does not show* how well the mean of one model is known: questions are shared by all models, and what they have in
common moves them together.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from mnemoscope.claims.claim import GATE, MIN_REPLICATES, Claim, Measured
from mnemoscope.claims.measuring import OfModel
from mnemoscope.core.errors import InputError, one_of
from mnemoscope.models.building import usable_device
from mnemoscope.models.language.conversion import DTYPES

PASSING = "questions that pass"
"""Name under which a model's number of questions that pass the gate is kept, where the gate is asked per question."""


def language_models(sources: Sequence[str | Path], device: str, dtype: str) -> tuple[OfModel, ...]:
    """The language models on trial, each once; refuses names given twice, and unknown devices or number formats."""
    usable_device(device)
    one_of("dtype", dtype, DTYPES)
    names = [str(source) for source in sources]
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise InputError(f"models must be named once each; got {', '.join(twice)} more than once")
    return tuple(OfModel(name, device, dtype, ()) for name in names)


def asked_of(claim: Claim, models: Sequence[str]) -> Claim:
    """The claim as it is put to some models: where there are several, models are its replicates; so with its rivals."""
    if not claim.of_language_models:
        return claim
    if not models:
        raise InputError(
            f"claim {claim.id} is about language models; name some, such as the packaged 'smollm2' "
            "(--model at the command line, models= of run_trials)"
        )
    if len(models) == 1 or claim.replicate == "model":
        return claim
    rivals = tuple(asked_of(rival, models) for rival in claim.rivals)
    n = MIN_REPLICATES if not claim.headline else claim.n_replicates
    return replace(claim, replicate="model", n_replicates=n, rivals=rivals)


def as_replicates(
    claim: Claim, models: Sequence[str], measured: Sequence[Measured]
) -> list[tuple[int | str, Measured]]:
    """Replicates with their labels, from the measurements on every model, or per question from arrays of one length."""
    if claim.replicate == "model":
        return [(model, of_model(claim, found)) for model, found in zip(models, measured, strict=True)]
    (found,) = measured
    sizes = {name: np.shape(value) for name, value in found.items()}
    if len(set(sizes.values())) != 1 or len(next(iter(sizes.values()))) != 1:
        shapes = ", ".join(f"{name} {list(shape)}" for name, shape in sizes.items())
        raise InputError(
            f"the measure of claim {claim.id}, which is asked per question, must give arrays of one length, an entry "
            f"per question; got {shapes}"
        )
    (n,) = next(iter(sizes.values()))
    return [(i, {name: float(np.asarray(value)[i]) for name, value in found.items()}) for i in range(n)]


def of_model(claim: Claim, measured: Measured) -> Measured:
    """One number per effect: the mean over the questions that pass the gate, over all of them where none passes.

    The gate of a model is the mean of its gate values over the questions that pass, NaN where none does.
    """
    found: dict[str, Any] = dict(measured)
    gate = np.asarray(found.get(GATE, np.nan), dtype=float)
    passing = np.ones(gate.shape, dtype=bool)
    if claim.gate is not None and gate.ndim:
        passing = claim.gate.passes(gate)
        found[GATE] = gate[passing].mean() if passing.any() else np.nan
        found[PASSING] = float(passing.sum())
    chosen = passing if passing.ndim and passing.any() else ...
    return {name: float(np.asarray(value, dtype=float)[chosen if np.ndim(value) else ...].mean())
            for name, value in found.items()}  # fmt: skip
