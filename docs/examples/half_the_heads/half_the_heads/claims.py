"""Can half of the heads of a trained layer be removed at test time? Michel, Levy & Neubig 2019, on factual recall."""

from itertools import combinations
from pathlib import Path
from typing import Literal

import torch

import mnemoscope as ms
from mnemoscope.claims import EFFECT, GATE, ClaimTexts
from mnemoscope.models import constructed, set_by_hand, untrained
from mnemoscope.systems.factual_recall.constructed import fact_store, fact_store_circuit
from mnemoscope.systems.factual_recall.tasks import FactualRecall

UNITS = {"facts-wide": ms.Configuration(preset="facts-wide", recipe="quick")}
TASK = FactualRecall(n_subjects=16, n_relations=16, facts_seed=0)
"""The task of the models by hand."""
MARGIN = 0.9
N_SEQUENCES = {"choose": 128, "measure": 512}


def measure(subject: ms.Subject, *, kind: Literal["mean", "zero"] = "mean") -> dict[str, float]:
    """Accuracy as it is (`GATE`), and without that half of the heads which costs least (`EFFECT`).

    The half is chosen on some sequences and measured on others.
    """
    task, heads = subject.task, range(subject.model.cfg.n_heads)
    to_choose, to_measure = (
        task.sample(n, split="test", generator=ms.generator(subject.seed, "half the heads", purpose))
        for purpose, n in N_SEQUENCES.items()
    )

    def accuracy(batch: ms.Batch, removed: tuple[int, ...]) -> float:
        sites = [ms.Site(kind="z", layer=0, head=head) for head in removed]
        source = ms.Named(name="sequences to choose by", value=to_choose)
        gone = [ms.Mean(site=site, source=source) if kind == "mean" else ms.Zero(site=site) for site in sites]
        answers = ms.run_with(subject.model, batch, gone)[:, -1].argmax(-1)
        return float((answers == batch.targets[:, -1]).double().mean())

    halves = combinations(heads, len(heads) // 2)
    cheapest = max(halves, key=lambda removed: accuracy(to_choose, removed))
    return {GATE: accuracy(to_measure, ()), EFFECT: accuracy(to_measure, cheapest)}


def both_needed() -> ms.HookedModel:
    """Two heads by hand: one finds the subject and one the relation, and no fact is known without both."""
    return fact_store(TASK)


@torch.no_grad()
def two_idle() -> ms.HookedModel:
    """The same two heads, and two more whose weights are zero."""
    small, circuit = fact_store(TASK), fact_store_circuit(TASK, by_attention=TASK.n_subjects)
    sizes = {"d_vocab": TASK.d_vocab, "n_ctx": TASK.n_ctx, "d_head": small.cfg.d_head}
    model = constructed.zero_model(circuit, n_heads=4, positions=False, **sizes)
    for name, weights in small.named_parameters():
        model.get_parameter(name)[tuple(map(slice, weights.shape))] = weights
    return model


CLAIM = ms.Claim(
    id="half-the-heads",
    statement="Half of the heads of a trained layer can be removed, and nine facts in ten are still known.",
    source="Michel, Levy & Neubig 2019, abstract",
    system="half-the-heads",
    quantifier="most",
    margin=MARGIN,
    unit="accuracy",
    gate=ms.Gate(statement="knows 95 % of the facts or more", at_least=0.95),
    units=UNITS,
    controls=(
        ms.Control(name="two idle heads of four", kind="positive", plant=set_by_hand("facts-wide", two_idle, TASK)),
        ms.Control(name="two heads, both needed", kind="negative", plant=set_by_hand("facts-wide", both_needed, TASK)),
        ms.Control(name="untrained", kind="negative", plant=untrained(UNITS)),
    ),
    measure=measure,
    factors={"kind": ("zero",)},
    explanation=ClaimTexts(Path(__file__).with_suffix(".yaml")).explain("half-the-heads", margin=MARGIN),
)
ms.CLAIMS.add(CLAIM.id, CLAIM)
