"""N2: without the late MLP, or with its low-rank part cut away, the prediction turns from the noise to the context."""

from functools import partial
from typing import Literal

from mnemoscope import CLAIMS, Batch, Configuration, Gate, Subject, Task, generator
from mnemoscope.analyses import last_mlp
from mnemoscope.claims import GATE, case, controls, most
from mnemoscope.core import memoize, one_of
from mnemoscope.models import set_by_hand, untrained
from mnemoscope.systems.in_context_bigrams.analyses.noise_or_context import (
    NOISE,
    OUTPUT,
    Replacement,
    removed,
    truncated,
)
from mnemoscope.systems.in_context_bigrams.claim_parts import TEXTS, noisy_recall
from mnemoscope.systems.in_context_bigrams.constructed import noisy_induction
from mnemoscope.systems.in_context_bigrams.tasks import NoisyRecall

GAIN = 0.25
"""Share that must move to the in-context token for a change to count."""
NONE = 0.05
N_SEQUENCES = 128
UNITS = {"noisy-recall": Configuration(preset="noisy-recall", recipe="quick")}
CERTAIN = Gate(
    statement="puts .8 or more on the noise token and the trigger's output, at triggers that have occurred before",
    at_least=0.8,
)

Weight = Literal["W_out", "W_in", "both"]
_PLACE: dict[str, int] = {"W_in": 0, "W_out": 1, "both": 2}


def prompts(task: Task, seed: int, use: str) -> Batch:
    """Sequences to measure on (`prompts`), or those that means come from (`reference`)."""
    return task.sample(N_SEQUENCES, split="test", generator=generator(seed, "noise or context", use))


@memoize
def removals(subject: Subject, kind: Replacement) -> dict[str, float]:
    """Gains without the last MLP and without the last attention, the quantity of the gate, and s before."""
    batch, reference = (prompts(subject.task, subject.seed, use) for use in ("prompts", "reference"))
    found = removed(subject.model, subject.task, batch, reference=reference, kinds=(kind,)).sel(kind=kind)
    gains = found.context_share - found.clean_context_share
    clean, without = found.clean_probability, found.probability.sel(component="MLP")
    return {
        "removal": float(gains.sel(component="MLP")),
        "attention": float(gains.sel(component="attention")),
        GATE: float(clean.sel(target=[NOISE, OUTPUT]).sum()),
        "share before": float(found.clean_context_share),
        "p(noise) before": float(clean.sel(target=NOISE)),
        "p(output) before": float(clean.sel(target=OUTPUT)),
        "p(noise) without the MLP": float(without.sel(target=NOISE)),
        "p(output) without the MLP": float(without.sel(target=OUTPUT)),
    }


@memoize
def truncations(subject: Subject, weight: Weight) -> dict[str, float]:
    """The largest gain over ranks, and how many components are removed for it."""
    one_of("weight", weight, _PLACE)
    name, sites = list(last_mlp(subject.model).items())[_PLACE[weight]]
    batch = prompts(subject.task, subject.seed, "prompts")
    found = truncated(subject.model, subject.task, batch, weights={name: sites}, parts=("rest",))
    gains = (found.context_share - found.clean_context_share).isel(weight=0, part=0)
    return {"truncation": float(gains.max()), "components removed": float(gains.idxmax("rank"))}


def measure(subject: Subject, *, kind: Replacement = "mean", weight: Weight = "W_out") -> dict[str, float]:
    """Gains of the in-context token by name, the probabilities behind them, and `GATE`.

    `kind` says what replaces a removed output, `weight` what is cut of the last MLP.
    """
    return {**removals(subject, kind), **truncations(subject, weight)}


TASK = NoisyRecall(length=64, n_tokens=8, n_triggers=3)
"""Of the planted models."""
IN_MLP, IN_HEAD, IN_INDUCTION = (
    set_by_hand("noisy-recall", partial(noisy_induction, noise_in=place), TASK)
    for place in ("mlp", "head", "induction")
)
_BY_MLP, _BY_HEAD, _BY_INDUCTION = (
    case(f"noise by {place}", plant, n=1)
    for place, plant in (("the MLP", IN_MLP), ("a late head", IN_HEAD), ("the induction head", IN_INDUCTION))
)
_UNTRAINED = case("untrained", untrained(UNITS), n=2)
_CLAIM = noisy_recall(
    id="N2",
    statement=(
        "Removing the late MLP, or truncating its low-rank part, turns the prediction from the global to the "
        "in-context token."
    ),
    source="Chen, Bruna & Bietti 2024, How Truncating Weights Improves Reasoning in Language Models, as presented",
    parts=(most("removal", "above", GAIN, "share"), most("truncation", "above", GAIN, "share")),
    gate=CERTAIN,
    units=UNITS,
    measure=measure,
    explanation=TEXTS.explain("N2", none=NONE, n_sequences=N_SEQUENCES),
    factors={"kind": ("zero",), "weight": ("W_in", "both"), "recipe": ("long",)},
    controls=controls(positive=(_BY_MLP,), negative=(_BY_HEAD, _BY_INDUCTION, _UNTRAINED)),
)
CLAIM = _CLAIM.against(
    _CLAIM.rival(
        "attention",
        "Removing the last attention layer turns the prediction to the in-context token.",
        parts=(most("attention", "above", GAIN, "share"),),
        controls=controls(positive=(_BY_HEAD,), negative=(_BY_MLP, _BY_INDUCTION, _UNTRAINED)),
    ),
    _CLAIM.rival(
        "none",
        "Removing the late MLP changes nothing.",
        parts=(most("removal", "within", NONE, "share"),),
        controls=controls(positive=(_BY_INDUCTION,), negative=(_BY_MLP,)),
    ),
)
CLAIMS.add(CLAIM.id, CLAIM)
