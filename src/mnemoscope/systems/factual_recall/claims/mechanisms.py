"""F2: two mechanisms exist, attention alone and attention with the MLP; the width of the MLP decides which is used.

Beside the verdict stand what the weights recall (`analyses.fact_memories`): `ov` of the narrow model and `mlp` of the
wide one.
"""

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from mnemoscope import CLAIMS, Configuration, Gate, HookedModel, Subject
from mnemoscope.claims import GATE, Case, Measured, case, controls, most
from mnemoscope.models import combined, set_by_hand, untrained
from mnemoscope.systems.factual_recall.analyses import Removed, fact_memories, routes, stores
from mnemoscope.systems.factual_recall.claim_parts import TEXTS, facts_claim, task_of
from mnemoscope.systems.factual_recall.constructed import fact_halves, fact_store
from mnemoscope.systems.factual_recall.tasks import FactualRecall

NARROW, MIDDLE, WIDE = "facts-narrow", "facts-middle", "facts-wide"
UNITS = {name: Configuration(preset=name) for name in (NARROW, MIDDLE, WIDE)}
TASK = FactualRecall(n_subjects=16, n_relations=16, facts_seed=0)
"""Of the three configurations, with facts for what is built by hand."""
LEAD, MOST_FACTS = 0.25, 0.5
KNOWS = Gate(statement="answers nine tenths of the facts or more", at_least=0.9)


def measure(subject: Subject, *, removed: Removed = "mean") -> Measured:
    """Accuracy by route (`both`, `attention`, `mlp`), the share of the facts that take both, and recall by weights."""
    task = task_of(subject)
    found = routes(subject.model, task, removed=removed, seed=subject.seed)
    by_route = {route: float(found.accuracy.sel(route=route).mean()) for route in ("both", "attention", "mlp")}
    recalled = fact_memories(subject.model, task, seed=subject.seed).recall
    weights = {f"recall_{str(memory).lower()}": float(recalled.sel(memory=memory)) for memory in recalled.memory.values}
    return {**by_route, "only_both": float(stores(found).sel(store="only both")), **weights}


def compared(measured: Mapping[str, Measured]) -> Measured:
    """The effects of one seed."""
    lead = {name: float(np.mean(of["attention"]) - np.mean(of["mlp"])) for name, of in measured.items()}
    return {
        "two": min(lead[NARROW], -lead[WIDE]),
        "attention_in_both": min(lead[NARROW], lead[WIDE]),
        "only_both": measured[MIDDLE]["only_both"],
        "ov_of_narrow": measured[NARROW]["recall_ov"],
        "mlp_of_wide": measured[WIDE].get("recall_mlp", 0.0),
        GATE: min(float(np.mean(of["both"])) for of in measured.values()),
    }


def _by_attention(n_subjects: int) -> HookedModel:
    return fact_store(TASK, by_attention=n_subjects)


def _halves() -> HookedModel:
    return fact_halves(TASK)


def _built(name: str, *makes: Callable[[], HookedModel]) -> Case:
    """A control: stand-ins for the narrow, the middle and the wide model."""
    return case(
        name,
        combined(*(set_by_hand(unit, make, TASK) for unit, make in zip(UNITS, makes, strict=True))),
        n=1,
    )


_ATTENTION, _EITHER, _MLP = (partial(_by_attention, n) for n in (16, 8, 0))
_WIDTH_DECIDES = _built("attention, half of each, MLP", _ATTENTION, _EITHER, _MLP)
_SPLIT = _built("attention, every fact split, MLP", _ATTENTION, _halves, _MLP)
_ATTENTION_ONLY = _built("attention in all", _ATTENTION, _ATTENTION, _ATTENTION)
_TURNED = _built("MLP, half of each, attention", _MLP, _EITHER, _ATTENTION)
_UNTRAINED = case("untrained", untrained(UNITS))
_F2 = facts_claim(
    id="F2",
    statement="Attention alone stores the facts where the MLP is narrow, attention and MLP where it is wide.",
    units=UNITS,
    gate=KNOWS,
    measure=measure,
    compare=compared,
    explanation=TEXTS.explain("F2"),
    prompts="own",
    parts=(most("two", "above", LEAD, "accuracy"),),
    factors={"removed": ("resample",)},
    controls=controls(positive=(_WIDTH_DECIDES, _SPLIT), negative=(_ATTENTION_ONLY, _TURNED, _UNTRAINED)),
)
F2 = _F2.against(
    _F2.rival(
        "split",
        "In between a fact is split: for most facts it takes both.",
        parts=(most("only_both", "above", MOST_FACTS, "share of the facts"),),
        controls=controls(positive=(_SPLIT,), negative=(_WIDTH_DECIDES, _UNTRAINED)),
    ),
    _F2.rival(
        "attention",
        "Attention alone answers, however wide the MLP is.",
        parts=(most("attention_in_both", "above", LEAD, "accuracy"),),
        controls=controls(positive=(_ATTENTION_ONLY,), negative=(_WIDTH_DECIDES, _UNTRAINED)),
    ),
)
CLAIMS.add(F2.id, F2)
