"""T17: the MLP is a memory that recognises x and returns its y, so that nothing looks back at the original pair.

A mapping that no training showed cannot be in the weights, so that the claimed mechanism cannot be built by hand: the
instrument is tested on the rivals and on tables of effects beyond the margins and at them.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

from mnemoscope import CLAIMS, Batch, Site, Subject, Task, ablate
from mnemoscope.analyses import every_sequence, lowest_skill_accuracy
from mnemoscope.claims import EFFECT, GATE, controls, most, table
from mnemoscope.core import Replacement, memoize
from mnemoscope.interventions import Direction
from mnemoscope.systems.tiny_recall.analyses.carriers import divided, patching_recovery
from mnemoscope.systems.tiny_recall.analyses.removal_costs import Within, all_mlps, skills_without
from mnemoscope.systems.tiny_recall.analyses.removal_costs import ablation_effect as costs
from mnemoscope.systems.tiny_recall.claim_parts import (
    OTHER_TRAINING,
    TEXTS,
    UNTRAINED,
    as_v3,
    of_v3,
)
from mnemoscope.systems.tiny_recall.constructed import dissociated, shared_store, store_and_match, two_layer_recall

MARGIN = 0.25
"""Recall accuracy that a model must lose for a removal to count."""


@lru_cache(maxsize=4)
def repeats(task: Task) -> Batch:
    """All sequences with a repeat over unseen mappings, with the position of the source y as a latent `source_y`."""
    batch = every_sequence(task)
    batch = batch.select(batch.latents["is_repeat"])
    return replace(batch, known={"source_y": batch.latents["source_pos"] + 1})


def measure(subject: Subject, *, kind: Replacement = "mean", within: Within = "all sequences") -> dict[str, float]:
    """Shares of recall accuracy lost by name, the quantity that a rival needs, and `GATE`."""
    lost = without_paths(subject)
    stored = min(lost["source y"] - MARGIN, MARGIN - lost["source x"])
    return {
        **lost,
        "mlp": without_mlp(subject, kind=kind, within=within),
        "stored": stored,
        GATE: lowest_skill_accuracy(subject),
    }


def combines(subject: Subject, *, kind: Replacement = "mean", direction: Direction = "denoising") -> dict[str, float]:
    """A measure of two heads that carry what stood where and where the match is, for an MLP to combine; and `GATE`.

    The model has two heads or more in layer 0; the seed draws the pairs.
    """
    what, where = (
        patching_recovery(subject, kind=pairs, skills=("recall",), direction=direction)
        for pairs in ("exchange_answer", "move_repeat")
    )
    return {
        EFFECT: min(divided(what, where), without_mlp(subject, kind=kind) - MARGIN),
        GATE: lowest_skill_accuracy(subject),
        **{f"what stood where, H{h}": float(share) for h, share in enumerate(what)},
        **{f"where the match is, H{h}": float(share) for h, share in enumerate(where)},
    }


def without_mlp(subject: Subject, *, kind: Replacement = "mean", within: Within = "all sequences") -> float:
    """Recall accuracy lost without the output of the MLP; 0 for a model that has none."""
    without = skills_without(
        subject,
        {"mlp": all_mlps(subject.model)},
        kind=kind,
        within=within,
        skills=("recall",),
        n=len(repeats(subject.task)),
    )
    return float(costs(without).sel(component="mlp", skill="recall"))


@memoize
def without_paths(subject: Subject) -> Mapping[str, float]:
    """Recall accuracy lost without attention from the last x to the source pair, its x alone, its y alone."""
    batch = repeats(subject.task)
    layers = range(subject.model.cfg.n_layers)
    x, y = ([Site(kind="scores", layer=n, pos=-1, key=key) for n in layers] for key in ("source_pos", "source_y"))
    without = ablate(
        subject.model,
        batch,
        skills={"recall": subject.task.skills(batch)["recall"]},
        reference=batch,
        targets={"pair": [*x, *y], "source x": x, "source y": y},
        kinds=("knockout",),
    )
    lost = costs(without.sel(kind="knockout", drop=True)).sel(skill="recall")
    return {name: float(lost.sel(component=name)) for name in lost.component.values.tolist()}


_NEEDS_MLP = most("mlp", "above", MARGIN, "accuracy")
_CLAIM = of_v3(
    id="T17",
    statement=(
        "The MLP is a key/value memory that recognises the embedding of x and returns its y: recall needs the MLP, and "
        "no attention from the last x to the original pair."
    ),
    source="tiny-recall, article on the model with repeats",
    parts=(most("pair", "below", MARGIN, "accuracy"), _NEEDS_MLP),
    headline=True,
    measure=measure,
    explanation=TEXTS.explain("T17", margin=MARGIN),
    factors={"kind": ("zero", "resample"), **OTHER_TRAINING},
    choices={"within": ("is_repeat",)},
    controls=controls(
        positive=(table("beyond the margins", {"v3": {"pair": 0.15, "mlp": 0.35}}),),
        negative=(
            table("at the margins", {"v3": {"pair": MARGIN, "mlp": MARGIN}}),
            as_v3("recall reads the source y", dissociated, n=1),
            as_v3("shared store", shared_store, n=1),
            UNTRAINED,
        ),
    ),
    prompts="enumerated",
)
CLAIM = _CLAIM.against(
    _CLAIM.rival(
        "attention",
        "Attention carries the answer itself: recall does not need the MLP.",
        parts=(replace(_NEEDS_MLP, direction="below"),),
        controls=controls(
            positive=(as_v3("recall by attention alone", two_layer_recall, n=1),),
            negative=(as_v3("recall by the MLP", dissociated, n=1),),
        ),
    ),
    _CLAIM.rival(
        "combines",
        "One head carries what stood where, another where the match is, and the MLP combines them.",
        quantifier="most",
        margin=0.0,
        controls=controls(
            positive=(as_v3("store and match", store_and_match),),
            negative=(as_v3("one head carries both", dissociated), UNTRAINED),
        ),
        measure=combines,
        explanation=TEXTS.explain("T17-combines"),
        factors={"direction": ("noising",)},
        prompts=None,
    ),
    _CLAIM.rival(
        "stored",
        "The pair is stored at an earlier position, its y: recall needs attention to that y and not to its x.",
        parts=(most("stored", "above", 0.0, "accuracy"),),
        controls=controls(
            positive=(as_v3("read at the source y", dissociated, n=1),),
            negative=(as_v3("x and y are read", shared_store, n=1), UNTRAINED),
        ),
    ),
)
CLAIMS.add(CLAIM.id, CLAIM)
