"""Originals beside the verdicts: what the measure of a claim gives on a published model, among the judged seeds.

An original is one more subject of the measure. It is no replicate, so that it enters no verdict.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain, product
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from mnemoscope.analyses.originals import place_original
from mnemoscope.claims.claim import GATE
from mnemoscope.claims.evidence import as_dataset, prompt_mean
from mnemoscope.claims.ruling import PlacedOriginal, Ruling
from mnemoscope.core.errors import InputError
from mnemoscope.models.originals import fitting_spec, load_original, read_original


def with_originals(rulings: Sequence[Ruling], files: Sequence[Path]) -> list[Ruling]:
    """The rulings, with what their claims measure on the originals in these files.

    A claim is measured on an original that has the sizes of its configuration, under any recipe of its preset. One that
    compares several configurations is measured on an original of each, in all combinations. Its configurations may not
    differ from their presets or share an original, since a file does not say how its model was trained. The others stay
    as they are. Raises InputError where a file cannot be read, or no claim is about such a model.
    """
    configs = {file: read_original(file)[0] for file in files}
    found = [_of_claim(ruling, configs) for ruling in rulings]
    used = {file for placed in found for together in placed for file in together}
    if unused := [str(file) for file in files if file not in used]:
        about = "; ".join(f"{each.claim.id} is about {', '.join(each.claim.units) or 'no model'}" for each in rulings)
        raise InputError(
            f"--original {unused[0]} must have the sizes of a claim's configuration, with judged seeds, and beside it "
            f"an original of each other configuration of that claim; {about}"
        )
    return [
        replace(ruling, originals=tuple(chain(*placed.values()))) for ruling, placed in zip(rulings, found, strict=True)
    ]


def _of_claim(
    ruling: Ruling, configs: Mapping[Path, Mapping[str, Any]]
) -> dict[tuple[Path, ...], list[PlacedOriginal]]:
    """The places of all combinations of files that fit the configurations of a claim."""
    claim = ruling.claim
    if not claim.units or claim.measure is None or ruling.evidence.replicate != "seed":
        return {}
    if any(unit.changes for unit in claim.units.values()):
        return {}
    fitting = [
        [file for file, config in configs.items() if fitting_spec(config, unit.preset)] for unit in claim.units.values()
    ]
    if len({*chain(*fitting)}) < sum(map(len, fitting)):  # a file does not say which of two configurations it is
        return {}
    return {files: placed for files in product(*fitting) if (placed := _placed(ruling, files))}


def _placed(ruling: Ruling, files: Sequence[Path]) -> list[PlacedOriginal]:
    """The places of the original of each configuration, in their order."""
    claim, evidence = ruling.claim, ruling.evidence
    assert claim.measure is not None
    each = {
        name: claim.measure(load_original(file, unit.preset))
        for (name, unit), file in zip(claim.units.items(), files, strict=True)
    }
    measured = claim.compare(each) if claim.compare is not None else next(iter(each.values()))
    passes = np.full(len(evidence.labels), True) if claim.gate is None else claim.gate.passes(evidence.gate)
    effects = as_dataset(evidence.effects)
    placed = []
    for quantity, value in measured.items():
        if quantity == GATE or quantity not in effects or not passes.any():
            continue
        seeds = prompt_mean(effects[quantity])[passes]
        found = place_original(xr.DataArray(float(np.mean(value))), seeds)
        numbers = {each: float(found[each]) for each in ("value", "mean", "low", "high")}
        name, rank, n = " and ".join(map(str, files)), int(found["rank"]), int(found["n"])
        placed.append(PlacedOriginal(file=name, quantity=quantity, rank=rank, n=n, **numbers))
    return placed
