"""How often whole claims err: nulls in the shape of each, and models with no circuit, the right or a wrong one."""

from collections import Counter
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
import xarray as xr

from mnemoscope.claims.claim import CLAIMS, GATE, Claim, Criterion, Gate
from mnemoscope.claims.evidence import Evidence
from mnemoscope.claims.judge import judge
from mnemoscope.core.presets import Configuration
from mnemoscope.models.subjects import untrained
from mnemoscope.systems.tiny_recall.claims import memory, split
from mnemoscope.systems.tiny_recall.constructed import dissociated, shared_store, store_and_match
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup
from tests.claims.trials import MARGIN, make_claim
from tests.support import MINUTES, seeded
from tests.systems.on_trial import on

QUANTIFIERS = ("most", "every", "exists", "mean", "equivalence")
LEARNED = Gate(statement="learned it", at_least=0.99)


# ---- nulls in the shape of claims


def parts(quantifier, n):
    direction = "within" if quantifier == "equivalence" else "above"
    names = [f"part {i}" for i in range(n)]
    return tuple(Criterion(name=name, quantifier=quantifier, margin=MARGIN, direction=direction) for name in names)


def far(part: Criterion) -> float:
    """An effect that clears the margin by far."""
    return {"above": part.margin + 100, "below": part.margin - 100, "within": 0.0}[part.direction]


def at_margin(part: Criterion, rng, n: int, prompts):
    """True effects at the margin; what is seen beyond it is noise of prompts, or of seeds where that is a null."""
    if prompts == "own":
        return part.margin + rng.normal(size=(n, 20))
    spread = part.quantifier in ("most", "mean", "equivalence")
    return part.margin + (rng.normal(size=n) if spread else rng.uniform(-1e-9, 1e-9, n))


def judged(claim: Claim, replicates: dict[str, np.ndarray], prompts, *, seed=0, n_fail=0):
    """With replicates of effects that clear everything added, which do not pass the gate."""

    def along(values, fill):
        values = np.concatenate([values, np.full((n_fail, *values.shape[1:]), fill)])
        return ("seed", "prompt")[: values.ndim], values

    found = {part.name: along(replicates[part.name], far(part)) for part in claim.criteria}
    n = len(next(iter(replicates.values())))
    effects = xr.Dataset(found, coords={"seed": np.arange(n + n_fail)})  # at once: an array each takes longer
    gate = xr.DataArray(along(np.ones(n), 0.0)[1], coords=effects.coords, dims="seed") if claim.gate else None
    evidence = Evidence(effects=effects, gate=gate, prompts=prompts, replicate="seed")
    resampled = any(part.quantifier in ("mean", "equivalence") for part in claim.criteria)
    return judge(replace(claim, replicate="seed"), evidence, seed=seed, n_resamples=399 if resampled else 9)


def nulls(claim: Claim, prompts, *, n_trials=200, true_parts=0) -> Counter:
    """Outcomes where all parts but so many, other ones every time, lie at their margins."""
    rng, count = np.random.default_rng(0), Counter()
    for trial in range(n_trials):
        order = rng.permutation(len(claim.criteria))
        replicates = {}
        for place, part in zip(order, claim.criteria, strict=True):
            values = at_margin(part, rng, claim.n_replicates, prompts)
            replicates[part.name] = np.full_like(values, far(part)) if place < true_parts else values
        count[judged(claim, replicates, prompts, seed=trial, n_fail=4 if claim.gate else 0).outcome] += 1
    return count


@pytest.mark.drawn(6)
@pytest.mark.parametrize("prompts", ["own", None])
@pytest.mark.parametrize("joined", ["all", "any"])
@pytest.mark.parametrize("quantifier", QUANTIFIERS)
def test_of_200_claims_of_several_parts_at_the_margin_at_most_4_are_supported_or_refuted(quantifier, joined, prompts):
    count = nulls(make_claim(None, parts=parts(quantifier, 2), joined=joined, gate=LEARNED), prompts)
    assert max(count["SUPPORTED"], count["REFUTED"]) <= 4, count


@pytest.mark.drawn(4)
@pytest.mark.parametrize("prompts", ["own", None])
@pytest.mark.parametrize("quantifier", QUANTIFIERS)
def test_one_part_at_the_margin_keeps_the_others_from_supporting(quantifier, prompts):
    """Where all must hold and all but one do, nothing but that one stands in the way: the hardest null."""
    claim = make_claim(None, parts=parts(quantifier, 3), gate=LEARNED)
    assert nulls(claim, prompts, true_parts=2)["SUPPORTED"] <= 4


def shape(claim: Claim):
    """All that matters to a null; where the margin lies does not."""
    return sorted((part.quantifier, part.direction) for part in claim.criteria), claim.joined, claim.n_replicates


def shapes() -> list[Claim]:
    """One claim of every shape among those that are registered, and their rivals; nothing but the shape is left."""
    every = [each for name in CLAIMS.names() for each in (CLAIMS.get(name), *CLAIMS.get(name).rivals)]
    by_shape = {repr(shape(each)): each for each in every}
    return [replace(each, gate=LEARNED, controls=(), rivals=(), factors={}, measure=None) for each in by_shape.values()]


def test_registered_claims_at_their_margins_are_not_supported():
    """All parts but one are true where all have to hold; none where any will do."""
    for claim in shapes():
        true_parts = len(claim.criteria) - 1 if claim.joined == "all" else 0
        assert nulls(claim, None, n_trials=25, true_parts=true_parts)["SUPPORTED"] <= 1, claim.id


@MINUTES
@pytest.mark.parametrize("prompts", ["own", None])
@pytest.mark.parametrize("first", range(4))  # a quarter of the shapes each, so that processes share them
def test_of_200_registered_claims_at_their_margins_at_most_4_are_supported(first, prompts):
    for claim in shapes()[first::4]:
        for true_parts in range(len(claim.criteria)) if claim.joined == "all" else (0,):
            assert nulls(claim, prompts, true_parts=true_parts)["SUPPORTED"] <= 4, (claim.id, true_parts)


# ---- models


def swapped(model):
    """The same with its heads of layer 0 in the other order."""
    attention = model.blocks[0].attn
    for weight in (attention.W_Q, attention.W_K, attention.W_V, attention.W_O):
        weight.data = weight.data.flip(0)
    return model


SIZES = {dissociated: (1e-6, 1e-5), shared_store: (1e-5, 5e-5), store_and_match: (1e-5, 1e-4)}
"""Of the noise on every weight at V = 4, ten times that at V = 5. The neurons that recall subtract large numbers from
each other and bear no more."""


@cache
def variant(make, seed, n_values=4):
    """A planted model with noise on all weights, another size, other logits and another order of heads a seed."""
    rng = np.random.default_rng(seed)
    model = make(n_values, margin=rng.uniform(8, 14), recall=rng.uniform(20, 40))
    generator, size = seeded(seed), rng.uniform(*SIZES[make]) / (10 if n_values > 4 else 1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += size * torch.randn(parameter.shape, generator=generator)
    task = PermutationLookup(n_values=n_values, repeat_ratio=0.3)
    return on(swapped(model) if rng.random() < 0.5 else model, task, seed)


@cache
def measured(measure, make, seed, n_values=4):
    return measure(variant(make, seed, n_values))


def lighter(claim: Claim, **changes) -> Claim:
    """The claim for 16 replicates, without controls, which other tests look at."""
    return replace(claim, n_replicates=16, headline=False, controls=(), rivals=(), **changes)


def verdict(claim: Claim, cases):
    """On these replicates, gate and all."""
    seeds = {"seed": np.arange(len(cases))}
    effects = {part.name: ("seed", [case[part.name] for case in cases]) for part in claim.criteria}
    gate = None if claim.gate is None else xr.DataArray([case[GATE] for case in cases], coords=seeds)
    return judge(claim, Evidence(effects=xr.Dataset(effects, coords=seeds), gate=gate, prompts="enumerated"))


def drawn(claim: Claim, cases, n_draws=100) -> Counter:
    """Outcomes over draws of 16 among the cases, all of which must pass the gate."""
    assert min(case[GATE] for case in cases) >= 0.99
    rng = np.random.default_rng(0)
    draws = (rng.choice(len(cases), 16, replace=False) for _ in range(n_draws))
    return Counter(verdict(lighter(claim), [cases[i] for i in draw]).outcome for draw in draws)


CARRIERS = {rival.id: rival for rival in (*split.CLAIM.rivals, *memory.CLAIM.rivals)}
ATTENTION = "T17-attention"
PLANTED = [
    ("T14", dissociated, "SUPPORTED"),
    ("T14", shared_store, "REFUTED"),
    ("T14", store_and_match, "REFUTED"),
    ("T14-single", shared_store, "SUPPORTED"),
    ("T14-single", dissociated, "REFUTED"),
    ("T17", dissociated, "REFUTED"),
    ("T17", store_and_match, "REFUTED"),
    ("T17-combines", store_and_match, "SUPPORTED"),
    ("T17-combines", dissociated, "REFUTED"),
    ("T17-stored", dissociated, "SUPPORTED"),
    ("T17-stored", store_and_match, "REFUTED"),
]
ALL = {"T14": split.CLAIM, "T17": memory.CLAIM, **CARRIERS}


@pytest.mark.parametrize(("name", "make", "expected"), PLANTED)
def test_planted_circuits_are_supported_and_wrong_ones_refuted(name, make, expected):
    cases = [measured(ALL[name].measure, make, seed) for seed in range(64)]
    assert drawn(ALL[name], cases, 200)[expected] >= 190


@pytest.mark.parametrize(("name", "make", "expected"), PLANTED[:2])
def test_planted_circuits_of_the_published_size(name, make, expected):
    cases = [measured(ALL[name].measure, make, seed, 5) for seed in range(20)]
    assert drawn(ALL[name], cases)[expected] >= 95


def test_one_deviating_seed_in_sixteen():
    cases = [measured(split.measure, dissociated, seed) for seed in range(15)]
    cases.insert(7, measured(split.measure, shared_store, 0))
    assert verdict(lighter(split.CLAIM), cases).outcome == "SUPPORTED"
    verdict_on_every = verdict(lighter(split.CLAIM, quantifier="every"), cases)
    assert (verdict_on_every.outcome, verdict_on_every.share) == ("REFUTED", 15 / 16)
    assert verdict(lighter(split.CLAIM, quantifier="exists"), cases).outcome == "SUPPORTED"
    assert verdict(lighter(split.CLAIM, quantifier="every"), cases[:7] * 3).outcome == "SUPPORTED"


UNTRAINED = untrained({"v3": Configuration(preset="v3-4-values")})


@cache
def without_training():
    task = PermutationLookup(n_values=4, repeat_ratio=0.3)
    return [on(UNTRAINED(case)["v3"].model, task, case) for case in range(16)]


@pytest.mark.parametrize("name", [name for name in ALL if name != ATTENTION])
def test_untrained_models_support_nothing(name):
    cases = [measured_once(ALL[name].measure, case) for case in range(16)]
    gated = verdict(lighter(ALL[name]), cases)
    assert (gated.outcome, gated.n) == ("NOT_APPLICABLE", 0)
    assert verdict(lighter(ALL[name], gate=None), cases).outcome == "REFUTED"


def test_only_the_gate_keeps_untrained_models_from_what_losing_nothing_supports():
    """T17-attention says that little is lost; a model that knows nothing has nothing to lose."""
    cases = [measured_once(memory.measure, case) for case in range(16)]
    claim = lighter(ALL[ATTENTION])
    assert verdict(claim, cases).outcome == "NOT_APPLICABLE"
    assert verdict(replace(claim, gate=None), cases).outcome == "SUPPORTED"


@cache
def measured_once(measure, case):
    return measure(without_training()[case])


@pytest.mark.parametrize("name", ["T14", "T14-single", "T14-both"])
def test_skills_shuffled_among_prompts_support_nothing(name, monkeypatch):
    subgroups = PermutationLookup.subgroups

    def shuffled(task, batch):
        order = torch.randperm(len(batch), generator=seeded(task.split_seed))
        return {kind: mask[order] for kind, mask in subgroups(task, batch).items()}

    make = {"T14": dissociated, "T14-single": shared_store, "T14-both": dissociated}
    subjects = [variant(make[name], seed) for seed in range(16)]
    if name != "T14-both":
        assert verdict(lighter(ALL[name]), [split.measure(subject) for subject in subjects]).outcome == "SUPPORTED"
    monkeypatch.setattr(PermutationLookup, "subgroups", shuffled)
    subjects = [variant(make[name], seed) for seed in range(16, 32)]  # nothing is remembered of these
    cases = [split.measure(subject) for subject in subjects]
    assert min(case[GATE] for case in cases) >= 0.99
    assert verdict(lighter(ALL[name]), cases).outcome == "REFUTED"
