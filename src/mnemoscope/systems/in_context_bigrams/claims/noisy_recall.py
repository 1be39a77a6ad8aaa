"""N2: where the noise token leads, taking out the late MLP, or its low-rank part, puts the in-context token ahead.

A position is a trigger whose output the context has shown, so that a model can know it. One that *turns* has the noise
token ahead of the output in the model as it is, and the output ahead after the change.
"""

from collections.abc import Sequence
from functools import partial
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mnemoscope import (
    CLAIMS,
    Batch,
    Configuration,
    Gate,
    HookedModel,
    Intervention,
    LowRank,
    Mean,
    Named,
    Site,
    Subject,
    Task,
    Zero,
    generator,
    run_with,
)
from mnemoscope.analyses import last_mlp
from mnemoscope.claims import GATE, case, controls, most
from mnemoscope.core import memoize, one_of
from mnemoscope.models import set_by_hand, untrained
from mnemoscope.systems.in_context_bigrams.analyses.noise_or_context import OUTPUT, Replacement, noise_and_output
from mnemoscope.systems.in_context_bigrams.claim_parts import TEXTS, noisy_recall
from mnemoscope.systems.in_context_bigrams.constructed import Place, noisy_induction
from mnemoscope.systems.in_context_bigrams.tasks import NoisyRecall

HALF, LIKELIER, FEW = 0.5, 0.1, 0.05
"""Share of the positions that must turn; the rise of the output's probability that counts; a share that is none."""
LOW_RANK = 8
"""The most components that count as the low-rank part, an eighth of the 64 of the units."""
N_SEQUENCES = 128
FIRST_SEED = 64
"""Seeds below were looked at before this was fixed."""
UNITS = {"noisy-recall": Configuration(preset="noisy-recall", recipe="quick")}
CERTAIN = Gate(
    statement="puts .8 or more on the noise token and the trigger's output, at triggers whose output has been shown",
    at_least=0.8,
)

Weight = Literal["W_out", "W_in", "both"]
_PLACE: dict[str, int] = {"W_in": 0, "W_out": 1, "both": 2}
_NOISE, _ANSWER = 0, 1


def prompts(task: Task, seed: int, use: str) -> Batch:
    """Sequences to measure on (`prompts`), or those that means come from (`reference`)."""
    return task.sample(N_SEQUENCES, split="test", generator=generator(seed, "noise or context", use))


def shown(task: Task, batch: Batch) -> Bool[Tensor, "batch pos"]:
    """The triggers whose output the context has shown."""
    return noise_and_output(task, batch)[OUTPUT][1] & (batch.latents["shown"] > 0)


def both_probabilities(
    model: HookedModel, task: Task, batch: Batch, changes: Sequence[Intervention] = ()
) -> Float[Tensor, "position token"]:
    """Probabilities of the noise token and of the output at every position, under changes."""
    tokens = torch.stack([token for token, _ in noise_and_output(task, batch).values()], -1)
    where = shown(task, batch)
    return run_with(model, batch, list(changes))[where].double().softmax(-1).gather(-1, tokens[where]).cpu()


def noise_leads(probabilities: Float[Tensor, "position token"]) -> Bool[Tensor, " position"]:
    """True where the noise token is likelier than the output."""
    return probabilities[:, _NOISE] > probabilities[:, _ANSWER]


def turned(
    before: Float[Tensor, "position token"],
    after: Float[Tensor, "position token"],
    among: Bool[Tensor, " position"] | None = None,
) -> float:
    """The share of the positions with the noise token ahead at which the output is ahead after; 0 without any."""
    led = noise_leads(before) if among is None else noise_leads(before) & among
    return float((after[led, _ANSWER] > after[led, _NOISE]).double().mean()) if led.any() else 0.0


@memoize
def removals(subject: Subject, kind: Replacement) -> dict[str, float]:
    """Shares that turn without the last MLP, the first MLP and the last attention, `GATE`, and what lies behind."""
    batch, reference = (prompts(subject.task, subject.seed, use) for use in ("prompts", "reference"))
    source, last = Named(name="reference", value=reference), subject.model.cfg.n_layers - 1
    probabilities = partial(both_probabilities, subject.model, subject.task, batch)

    def without(site: Site) -> Float[Tensor, "position token"]:
        return probabilities([Zero(site=site) if kind == "zero" else Mean(site=site, source=source, over="position")])

    before, after = probabilities(), without(Site(kind="mlp_out", layer=last))
    led = noise_leads(before)
    rise = (after - before)[led, _ANSWER]
    return {
        "removal": turned(before, after),
        "likelier": float(rise.mean()) if led.any() else 0.0,
        "early": turned(before, without(Site(kind="mlp_out", layer=0))),
        "attention": turned(before, without(Site(kind="attn_out", layer=last))),
        GATE: float(before.sum(1).mean()),
        "noise ahead before": float(led.double().mean()),
        "output stays ahead": float((after[~led, _ANSWER] > after[~led, _NOISE]).double().mean()),
        "p(noise) before": float(before[:, _NOISE].mean()),
        "p(output) before": float(before[:, _ANSWER].mean()),
        "p(noise) without the MLP": float(after[:, _NOISE].mean()),
        "p(output) without the MLP": float(after[:, _ANSWER].mean()),
    }


@memoize
def truncations(subject: Subject, weight: Weight) -> dict[str, float]:
    """The share that turns without the largest components, as many as turn most on the other half of the sequences."""
    one_of("weight", weight, _PLACE)
    sites = list(last_mlp(subject.model).values())[_PLACE[weight]]
    batch = prompts(subject.task, subject.seed, "prompts")
    choosing = (torch.arange(len(batch)) % 2 == 0)[:, None].expand(batch.scored.shape)[shown(subject.task, batch)]
    probabilities = partial(both_probabilities, subject.model, subject.task, batch)
    before = probabilities()
    cut = {
        rank: probabilities([LowRank(site=site, rank=rank, part="rest") for site in sites])
        for rank in range(1, LOW_RANK + 1)
    }
    best = max(cut, key=lambda rank: turned(before, cut[rank], choosing))
    return {"truncation": turned(before, cut[best], ~choosing), "components removed": float(best)}


def measure(subject: Subject, *, kind: Replacement = "mean", weight: Weight = "W_out") -> dict[str, float]:
    """Shares that turn by name, the probabilities behind them, and `GATE`.

    `kind` says what replaces a removed output, `weight` what is cut of the last MLP.
    """
    return {**removals(subject, kind), **truncations(subject, weight)}


TASK = NoisyRecall(length=64, n_tokens=8, n_triggers=3)
"""Of the planted models."""
AHEAD = 0.5
"""Logit by which the noise token of the planted models is ahead everywhere."""


@torch.no_grad()
def noise_ahead(place: Place) -> HookedModel:
    """`noisy_induction` with the noise token ahead of an output that has been shown."""
    model = noisy_induction(noise_in=place)
    model.unembed.b_U[-1] += AHEAD
    return model


@torch.no_grad()
def noise_early() -> HookedModel:
    """The same with the noise token in the MLP of the first layer, not of the last."""
    model = noise_ahead("mlp")
    first, last = (block.mlp for block in model.blocks)
    for name in ("W_in", "W_out"):
        getattr(first, name).copy_(getattr(last, name))
        getattr(last, name).zero_()
    return model


IN_MLP, IN_HEAD, IN_INDUCTION = (
    set_by_hand("noisy-recall", partial(noise_ahead, place), TASK) for place in ("mlp", "head", "induction")
)
IN_FIRST_MLP = set_by_hand("noisy-recall", noise_early, TASK)
_BY_MLP, _BY_HEAD, _BY_INDUCTION = (
    case(f"noise by {place}", plant, n=1)
    for place, plant in (("the MLP", IN_MLP), ("a late head", IN_HEAD), ("the induction head", IN_INDUCTION))
)
_EARLY = case("noise by the first MLP", IN_FIRST_MLP, n=1)
_UNTRAINED = case("untrained", untrained(UNITS), n=2)
_SHARE = "share of the positions"
_CLAIM = noisy_recall(
    id="N2",
    statement=(
        "Where the noise token leads, removing the late MLP, or truncating its low-rank part, puts the in-context "
        "token ahead."
    ),
    source="Chen, Bruna & Bietti 2024, How Truncating Weights Improves Reasoning in Language Models, as presented",
    parts=(
        most("removal", "above", HALF, _SHARE),
        most("truncation", "above", HALF, _SHARE),
        most("likelier", "above", LIKELIER, "probability"),
    ),
    gate=CERTAIN,
    units=UNITS,
    first_seed=FIRST_SEED,
    version=2,
    measure=measure,
    explanation=TEXTS.explain("N2", half=HALF, likelier=LIKELIER, few=FEW, most=LOW_RANK, n_sequences=N_SEQUENCES),
    factors={"kind": ("zero",), "weight": ("W_in", "both")},
    controls=controls(positive=(_BY_MLP,), negative=(_BY_HEAD, _BY_INDUCTION, _EARLY, _UNTRAINED)),
)
CLAIM = _CLAIM.against(
    _CLAIM.rival(
        "attention",
        "Removing the last attention layer puts the in-context token ahead.",
        parts=(most("attention", "above", HALF, _SHARE),),
        controls=controls(positive=(_BY_HEAD,), negative=(_BY_MLP, _BY_INDUCTION, _UNTRAINED)),
    ),
    _CLAIM.rival(
        "early",
        "Removing the first MLP does so too.",
        parts=(most("early", "above", HALF, _SHARE),),
        controls=controls(positive=(_EARLY,), negative=(_BY_MLP, _BY_HEAD, _BY_INDUCTION)),
    ),
    _CLAIM.rival(
        "none",
        "Removing the late MLP changes nothing.",
        parts=(most("removal", "below", FEW, _SHARE),),
        controls=controls(positive=(_BY_INDUCTION,), negative=(_BY_MLP,)),
    ),
)
CLAIMS.add(CLAIM.id, CLAIM)
