"""T17: the MLP is a memory that recognises x and returns its y, so that nothing looks back at the original pair.

It is refuted if recall breaks when the last x cannot attend to the pair that it repeats, or does not break without
the MLP. On all sequences with a repeat over unseen mappings, in shares of recall accuracy lost:

- `pair`: attention scores from the last x to both tokens of the source pair are knocked out, in all heads and layers;
- `mlp`: the output of the MLP is replaced by its mean over all sequences over unseen mappings, with and without a
  repeat, weighted as the task mixes them (`kind`: by zeros; by its value in another of these sequences). A model
  without an MLP loses nothing by it.

A model of another mechanism that also eliminates loses no more than half by a knockout: without the source y its value
looks unused, and so is guessed by elimination every other time.

Besides, for rivals: `stored` = min(loss without the source y - .25, .25 - loss without the source x), each knocked out
alone. And, from what the heads' z carry between minimal pairs (`analyses.carriers`), ex where the recalled y is
exchanged and mov where the repeat moves to another slot, as shares of the logit difference on up to 512 repeats that
are drawn: the largest over ordered pairs (a, b) of heads of min(ex[a] - .5, .5 - ex[b], mov[b] - .5, .5 - mov[a], loss
without the MLP - .25).

It shows whether the answer passes by attention from the last position to the pair, at the time it is given, and
whether it passes the MLP. It does not show what the MLP holds: a mapping that no training showed cannot be in its
weights, so the claimed mechanism cannot be built by hand, and the instrument is tested on the rivals and on tables of
effects beyond the margins and at them. A knockout spreads the attention over the other keys, which may do harm itself.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache, partial

from mnemoscope import CLAIMS, Batch, Claim, Configuration, Control, Criterion, Site, Subject, Task, ablate
from mnemoscope.analyses import LEARNED, every_sequence, learned
from mnemoscope.core import Replacement, kept
from mnemoscope.interventions import Direction
from mnemoscope.judging import EFFECT, GATE
from mnemoscope.models import planted, untrained
from mnemoscope.systems.tiny_recall.analyses.carriers import divided, patching_recovery
from mnemoscope.systems.tiny_recall.analyses.removal_costs import ablation_effect as costs
from mnemoscope.systems.tiny_recall.analyses.removal_costs import all_mlps, skills_without
from mnemoscope.systems.tiny_recall.constructed import dissociated, shared_store, two_layer_recall
from mnemoscope.systems.tiny_recall.constructed.store_and_match import store_and_match
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup

MARGIN = 0.25
"""Recall accuracy that a model must lose for a removal to count."""
UNITS = {"v3": Configuration(preset="v3", recipe="published")}
TASK = PermutationLookup(repeat_ratio=0.3)


@lru_cache(maxsize=4)
def repeats(task: Task) -> Batch:
    """All sequences with a repeat over unseen mappings, with the position of the source y as a latent `source_y`."""
    batch = every_sequence(task)
    batch = batch.select(batch.latents["is_repeat"])
    return replace(batch, known={"source_y": batch.latents["source_pos"] + 1})


def measure(subject: Subject, *, kind: Replacement = "mean") -> dict[str, float]:
    """Shares of recall accuracy lost by name, what a rival needs, and `GATE`.

    Args:
        subject: One model; of any number of layers, with or without an MLP.
        kind: How the MLP is removed.

    Raises:
        InputError: The model is too small for the task.
    """
    lost = without_paths(subject)
    stored = min(lost["source y"] - MARGIN, MARGIN - lost["source x"])
    return {**lost, "mlp": without_mlp(subject, kind=kind), "stored": stored, GATE: learned(subject)}


def combines(subject: Subject, *, kind: Replacement = "mean", direction: Direction = "denoising") -> dict[str, float]:
    """How clearly heads carry what stood where and where the match is, one each, for an MLP to combine; and `GATE`.

    Args:
        subject: Of two heads or more in layer 0; its seed draws the pairs.
        kind: How the MLP is removed.
        direction: As for `carried`.

    Raises:
        InputError: The model has fewer than two heads, or is too small for the task.
    """
    what, where = (
        patching_recovery(subject, kind=pairs, skills=("recall",), direction=direction)
        for pairs in ("exchange_answer", "move_repeat")
    )
    return {
        EFFECT: min(divided(what, where), without_mlp(subject, kind=kind) - MARGIN),
        GATE: learned(subject),
        **{f"what stood where, H{h}": float(share) for h, share in enumerate(what)},
        **{f"where the match is, H{h}": float(share) for h, share in enumerate(where)},
    }


def without_mlp(subject: Subject, *, kind: Replacement = "mean") -> float:
    """Recall accuracy lost without the output of the MLP; 0 for a model that has none."""
    without = skills_without(
        subject,
        {"mlp": all_mlps(subject.model)},
        kind=kind,
        within="all sequences",
        skills=("recall",),
        n=len(repeats(subject.task)),
    )
    return float(costs(without).sel(component="mlp", skill="recall"))


@kept
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


def _table(pair: float, mlp: float, case: int) -> dict[str, dict[str, float]]:
    """A table of effects in the place of a model."""
    return {"v3": {"pair": pair, "mlp": mlp}}


_SEPARATE = planted("v3", dissociated, TASK)
_SHARED = planted("v3", shared_store, TASK)
_WITHOUT_MLP = planted("v3", two_layer_recall, TASK)
_UNTRAINED = Control(name="untrained", kind="negative", plant=untrained(UNITS))


def _rival(word: str, statement: str, part: Criterion, *controls: Control) -> Claim:
    """A rival that reads other effects of the same measure."""
    return Claim(
        id=f"T17-{word}",
        system="tiny-recall",
        statement=statement,
        source="rival of T17",
        parts=(part,),
        gate=LEARNED,
        units=UNITS,
        n_replicates=32,
        controls=controls,
        measure=measure,
        prompts="enumerated",
    )


CLAIM = Claim(
    id="T17",
    system="tiny-recall",
    statement=(
        "The MLP is a key/value memory that recognises the embedding of x and returns its y: recall needs the MLP, and "
        "no attention from the last x to the original pair."
    ),
    source="tiny-recall, article on the model with repeats",
    parts=(
        Criterion(name="pair", quantifier="most", margin=MARGIN, direction="below", unit="accuracy"),
        Criterion(name="mlp", quantifier="most", margin=MARGIN, unit="accuracy"),
    ),
    gate=LEARNED,
    units=UNITS,
    measure=measure,
    factors={"kind": ("zero", "resample"), "recipe": ("quick",), "model.normalization": ("none",)},
    rivals=(
        _rival(
            "attention",
            "Attention carries the answer itself: recall does not need the MLP.",
            Criterion(name="mlp", quantifier="most", margin=MARGIN, direction="below", unit="accuracy"),
            Control(name="recall by attention alone", kind="positive", plant=_WITHOUT_MLP, n=1),
            Control(name="recall by the MLP", kind="negative", plant=_SEPARATE, n=1),
        ),
        Claim(
            id="T17-combines",
            system="tiny-recall",
            statement="One head carries what stood where, another where the match is, and the MLP combines them.",
            source="rival of T17",
            quantifier="most",
            margin=0.0,
            gate=LEARNED,
            units=UNITS,
            n_replicates=32,
            controls=(
                Control(name="store and match", kind="positive", plant=planted("v3", store_and_match, TASK)),
                Control(name="one head carries both", kind="negative", plant=_SEPARATE),
                _UNTRAINED,
            ),
            measure=combines,
            factors={"direction": ("noising",)},
        ),
        _rival(
            "stored",
            "The pair is stored at an earlier position, its y: recall needs attention to that y and not to its x.",
            Criterion(name="stored", quantifier="most", margin=0.0, unit="accuracy"),
            Control(name="read at the source y", kind="positive", plant=_SEPARATE, n=1),
            Control(name="x and y are read", kind="negative", plant=_SHARED, n=1),
            _UNTRAINED,
        ),
    ),
    controls=(
        Control(name="beyond the margins", kind="positive", plant=partial(_table, 0.15, 0.35), n=1),
        Control(name="at the margins", kind="negative", plant=partial(_table, MARGIN, MARGIN), n=1),
        Control(name="recall reads the source y", kind="negative", plant=_SEPARATE, n=1),
        Control(name="shared store", kind="negative", plant=_SHARED, n=1),
        _UNTRAINED,
    ),
    n_replicates=32,
    headline=True,
    prompts="enumerated",
)
CLAIMS.add(CLAIM.id, CLAIM)
