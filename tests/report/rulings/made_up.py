"""Rulings on made-up evidence: every outcome, parts, rivals, controls, cells, and what cannot be drawn."""

from dataclasses import replace

import numpy as np
import xarray as xr

from mnemoscope.claims.claim import GATE, Control, Criterion, Gate
from mnemoscope.claims.evidence import Evidence
from mnemoscope.claims.judge import judge
from mnemoscope.claims.ruling import Ruling, SensitivityCell
from mnemoscope.core.presets import Configuration
from mnemoscope.report.rulings import AttentionExample
from tests.claims.trials import along_seeds, clearing, make_claim, make_evidence

UNITS = {"v3": Configuration(preset="v3", recipe="published")}
LEARNED = Gate(statement="answers recall on unseen mappings in 99 % of prompts", at_least=0.99)
CONTROLS = (
    Control(name="untrained", kind="negative"),
    Control(name="two heads, one a skill", kind="positive"),
)


def ruling(claim, evidence, **fields) -> Ruling:
    def verdict(asked):
        declared = {control.name: evidence.controls[control.name] for control in asked.controls}
        return judge(asked, replace(evidence, controls=declared), n_resamples=99)

    rivals = {rival.id: verdict(rival) for rival in claim.rivals}
    return Ruling(claim=claim, evidence=evidence, verdict=verdict(claim), rivals=rivals, **fields)


def simple(id_: str, n_clear: int, n: int = 16, **changes) -> Ruling:
    """One effect, as many seeds above the margin as said."""
    return ruling(make_claim(id=id_, **changes), make_evidence(clearing(n_clear, n)))


def two_heads() -> Ruling:
    """A headline of two effects: a rival is supported too, two seeds fail the gate, one of them without a value."""
    rng = np.random.default_rng(0)
    elimination, recall = 0.8 + rng.normal(0, 0.05, 34), 0.6 + rng.normal(0, 0.1, 34)
    recall[5] = 0.1
    elimination[33] = recall[33] = np.nan
    effects = xr.Dataset(
        {
            "elimination": along_seeds(elimination, unit="accuracy"),
            "recall": along_seeds(recall, unit="accuracy"),
            "both_heads": along_seeds(elimination + 0.1, unit="accuracy"),
        }
    )
    planted = xr.Dataset({"elimination": ("case", [0.7, 0.8, 0.75, 0.8]), "recall": ("case", [0.75] * 4)})
    untrained = xr.Dataset({"elimination": ("case", [0.0, 0.01, -0.02, 0.0]), "recall": ("case", [0.0, -3, 0.0, 0.0])})
    for dataset in (planted, untrained):
        dataset["both_heads"] = dataset.elimination
    evidence = Evidence(
        effects=effects,
        gate=along_seeds(np.r_[np.ones(32), 0.4, 0.2]),
        controls={"untrained": untrained, "two heads, one a skill": planted},
        prompts="enumerated",
    )
    parts = tuple(Criterion(name=name, quantifier="most", margin=0.25) for name in ("elimination", "recall"))
    shared = {"gate": LEARNED, "units": UNITS, "controls": CONTROLS}
    rival = make_claim(
        None,
        id="T14-both",
        statement="Removing both heads costs <b>everything</b>.",
        parts=(Criterion(name="both_heads", quantifier="most", margin=0.5),),
        **shared,
    )
    nothing = make_claim(
        None,
        id="T14-nothing",
        statement="Neither head is needed.",
        parts=(Criterion(name="recall", quantifier="equivalence", margin=0.1, direction="within"),),
        **shared | {"controls": ()},
    )
    claim = make_claim(
        None,
        id="T14",
        statement="Removing one head costs elimination & not recall, removing the other costs recall.",
        source="a made-up article, section 3",
        parts=parts,
        headline=True,
        n_replicates=32,
        rivals=(rival, nothing),
        **shared,
    )
    cells = tuple(
        SensitivityCell(
            factor=factor,
            value=value,
            verdict=judge(make_claim(id="T14"), make_evidence(clearing(*counts))),
            before="SUPPORTED",
        )
        for factor, value, counts in (
            ("kind", "zero", (16, 16)),
            ("kind", "resample", (1, 16)),
            ("recipe", "quick", (8, 8)),
            ("model.normalization", "none", (9, 16)),
        )
    )
    steps = np.array([0, 100, 200, 500, 1000, 2000, 5000, 20000])
    rise = 1 / (1 + (900 / np.maximum(steps, 1)) ** 2)
    emergence = xr.Dataset(
        {
            "elimination": ("step", 0.8 * rise, {"unit": "accuracy"}),
            "recall": ("step", np.r_[np.nan, 0.6 * rise[1:]], {"unit": "accuracy"}),
            GATE: ("step", 0.2 + 0.8 * rise),
        },
        coords={"step": steps},
        attrs={"seed": 17},
    )
    return ruling(claim, evidence, sensitivity=cells, emergence=emergence)


def lone() -> Ruling:
    """One seed: no interval of the mean, and no verdict."""
    return simple("T4", 1, 1, statement="A single seed shows it.")


def misbehaving() -> Ruling:
    """All seeds are fine, and so is the untrained model that must not be."""
    control = Control(name="untrained", kind="negative")
    evidence = make_evidence(clearing(16, 16), controls={"untrained": xr.DataArray(0.8)})
    return ruling(make_claim(id="T5", controls=(control,)), evidence)


def nobody_passes() -> Ruling:
    """Every seed fails the gate, and no effect can be had."""
    evidence = make_evidence(np.full(16, np.nan), gate=along_seeds(np.zeros(16)))
    return ruling(make_claim(id="T6", gate=LEARNED), evidence)


def too_small() -> Ruling:
    """The gate is closed to both seeds, of which effects are known."""
    evidence = make_evidence(np.array([0.25, 0.75]), gate=along_seeds(np.zeros(2)))
    return ruling(make_claim(id="T7", gate=LEARNED), evidence)


def all_kinds() -> list[Ruling]:
    """Every outcome."""
    return [
        two_heads(),
        simple("T1", 0, statement="The model repeats the last value."),
        simple("T2", 8),
        simple("T3", 13),
        lone(),
        misbehaving(),
        nobody_passes(),
    ]


def example(n_heads: int = 2) -> AttentionExample:
    pattern = np.tril(np.ones((1, n_heads, 4, 4)))
    pattern /= pattern.sum(-1, keepdims=True)
    names = ["x1", "y1", "x2", "y2"]
    attention = xr.Dataset(
        {
            "pattern": (("layer", "head", "query", "key"), pattern),
            "token": ("key", [f"{name}={i}" for i, name in enumerate(names)]),
        },
        coords={"query": names, "key": names},
    )
    return AttentionExample(caption="Seed 17, typical: the last x stood there before", attention=attention)
