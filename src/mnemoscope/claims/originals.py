"""Originals beside the verdicts: what the measure of a claim gives on a published model, among the judged seeds.

An original is one more subject of the measure. It is no replicate, so that it enters no verdict.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import xarray as xr

from mnemoscope.analyses.originals import place_original
from mnemoscope.claims.claim import GATE
from mnemoscope.claims.evidence import as_dataset, prompt_mean
from mnemoscope.claims.ruling import PlacedOriginal, Ruling
from mnemoscope.core.errors import InputError
from mnemoscope.models.originals import fits_preset, load_original, read_original


def with_originals(rulings: Sequence[Ruling], files: Sequence[Path]) -> list[Ruling]:
    """The rulings, with what their claims measure on the originals in these files.

    A claim is measured on an original that has the sizes of its one configuration; the others stay as they are. Raises
    InputError where a file cannot be read, or no claim is about such a model.
    """
    configs = {file: read_original(file)[0] for file in files}
    found = [tuple(each for file in files for each in _placed(ruling, file, configs[file])) for ruling in rulings]
    of_files = {each.file for placed in found for each in placed}
    if unused := [str(file) for file in files if str(file) not in of_files]:
        claims = ", ".join(ruling.claim.id for ruling in rulings)
        raise InputError(
            f"--original {unused[0]} must have the sizes of a claim's one configuration, with judged seeds; none "
            f"of {claims} is about such a model"
        )
    return [replace(ruling, originals=placed) for ruling, placed in zip(rulings, found, strict=True)]


def _placed(ruling: Ruling, file: Path, config: dict) -> list[PlacedOriginal]:
    claim, evidence = ruling.claim, ruling.evidence
    if len(claim.units) != 1 or claim.measure is None or evidence.replicate != "seed":
        return []
    ((name, unit),) = claim.units.items()
    if not fits_preset(config, unit.preset):
        return []
    measured = claim.measure(load_original(file, unit.preset))
    measured = measured if claim.compare is None else claim.compare({name: measured})
    passes = np.full(len(evidence.labels), True) if claim.gate is None else claim.gate.passes(evidence.gate)
    effects = as_dataset(evidence.effects)
    placed = []
    for quantity, value in measured.items():
        if quantity == GATE or quantity not in effects or not passes.any():
            continue
        seeds = prompt_mean(effects[quantity])[passes]
        found = place_original(xr.DataArray(float(np.mean(value))), seeds)
        numbers = {each: float(found[each]) for each in ("value", "mean", "low", "high")}
        placed.append(
            PlacedOriginal(file=str(file), quantity=quantity, rank=int(found["rank"]), n=int(found["n"]), **numbers)
        )
    return placed
