"""Memory with a vocabulary of 50,000: nothing keeps the logits of all positions, and a byte budget is kept to.

The logits of all positions of the prompts here take 205 MB in float32 and 410 MB in float64; those of the scored ones
a sixteenth of that.
"""

from functools import cache

import numpy as np
import pytest
import torch

import mnemoscope as ms
from mnemoscope.analyses.edits import EDITS
from mnemoscope.core.patterns import previous
from mnemoscope.core.presets import preset
from mnemoscope.engine import architecture, budget
from mnemoscope.interventions import reading
from tests.engine.test_budget import most_at_once
from tests.support import foreign_model, random_model, seeded

N_TOKENS, N_POS, N = 50_000, 16, 64
BUDGET = 64 * 2**20
analyses = ms.analyses


@cache
def model():
    sizes = {"n_layers": 2, "d_model": 64, "n_heads": 4, "d_head": 16, "d_mlp": 64}
    return foreign_model(d_vocab=N_TOKENS, normalization_type="LN", **sizes)


@cache
def batch(seed: int = 0) -> ms.Batch:
    """Random tokens, scored after the last one."""
    inputs = torch.randint(N_TOKENS, (N, N_POS), generator=seeded(seed))
    scored = torch.zeros(N, N_POS, dtype=torch.bool)
    scored[:, -1] = True
    targets = torch.randint(N_TOKENS, (N, N_POS), generator=seeded(seed + 100))
    return ms.Batch(inputs=inputs, targets=targets, scored=scored, known={"odd": inputs[:, 3] % 2})


def pairs() -> ms.PromptPairs:
    return ms.PromptPairs(clean=batch(), corrupted=batch(1), name="others")


LAST = {"last": batch().scored}
HEADS = {f"L{layer}H{head}": [ms.Site(kind="z", layer=layer, head=head)] for layer, head in ((0, 1), (1, 2))}
AT_LAST = ms.Site(kind="resid_post", layer=0, pos=-1)


@cache
def odd():
    return analyses.subspace(model(), batch(), "odd", site=AT_LAST, n_shuffles=1)


@pytest.fixture(autouse=True)
def _prepared():
    """Make what is not counted: the model, which the engine tries once, and the prompts."""
    architecture.read_transformer(model())
    odd()
    batch(1)


def _some(n: int):
    chosen = batch().select(slice(n))
    return {"batch": chosen, "skills": {"last": chosen.scored}, "reference": batch(1), "targets": HEADS}


def _ablate(n: int = N, **more):
    return ms.ablate(model(), **_some(n), kinds=("zero", "mean", "resample"), **more)


def _shapley(n: int = N, **more):
    return ms.shapley(model(), **_some(n), interactions=False, **more)


def _truncate():
    site = ms.ParamSite(name="W_out", layer=1)
    looked_for = {"target": (batch().targets, batch().scored)}
    return analyses.truncate(model(), batch(), weights={"W_out": [site]}, targets=looked_for, ranks=[1])


def _groups():
    options = {"skills": LAST, "reference": batch(1), "kinds": ("mean",)}
    return analyses.group_effects(model(), batch(), layer=0, groups={"some": [1, 2]}, **options)


ANALYSES = {
    "ablate": _ablate,
    "shapley": _shapley,
    "evaluate": lambda: ms.evaluate(model(), None, batch(), by={"at": LAST}),
    "patch": lambda: ms.patch(model(), pairs(), kind="z", over=("layer",)),
    "patch by hooks": lambda: ms.patch(model(), pairs(), kind="z", over=("layer",), method="hooks"),
    "estimate": lambda: analyses.estimate(model(), pairs(), kind="z", over=("layer", "head")),
    "logit attribution": lambda: ms.logit_attribution(model(), batch(), foil=[1, 2]),
    "logit lens": lambda: ms.logit_lens(model(), batch().select(slice(16)), foil=[1, 2]),
    "probe": lambda: ms.probe(model(), batch(), "odd", sites=[AT_LAST], n_shuffles=1),
    "erase": lambda: analyses.erase(model(), batch(1), odd(), skills=LAST, n_random=1),
    "edit": lambda: analyses.edit(model(), pairs(), odd(), edits=EDITS[:1], n_random=1),
    "patterns": lambda: analyses.patterns(model(), batch()),
    "head scores": lambda: analyses.head_scores(model(), batch()),
    "truncate": _truncate,
    "neurons": _groups,
    "replaced heads": lambda: analyses.replace_heads(model(), batch(), {(0, 0): previous()}),
    "prediction of patterns": lambda: analyses.predict_patterns(model(), batch(), layers=[0]),
}
OWN = {"prediction of patterns": 2 * 8 * N_TOKENS * 64}
"""Of folded weights in float64, which do not grow with prompts."""


UNEMBEDS_NOTHING = ("patch", "head scores")
"""Those that go on from the stream by themselves in small pieces, or stop before the unembedding."""


def taken(name: str, monkeypatch) -> tuple[int, int]:
    """Bytes of an analysis, and what it may take."""
    monkeypatch.setattr(budget, "MAX_BYTES", BUDGET)
    return most_at_once(ANALYSES[name]), BUDGET + OWN.get(name, 0)


@pytest.mark.parametrize("name", ANALYSES)
def test_analyses_keep_to_their_budget(name, monkeypatch):
    most, allowed = taken(name, monkeypatch)
    assert most < allowed


@pytest.mark.full
@pytest.mark.parametrize(
    "name",
    [
        "ablate",
        *(pytest.param(n, marks=pytest.mark.thorough) for n in ANALYSES if n not in ("ablate", *UNEMBEDS_NOTHING)),
    ],
)
def test_the_measure_sees_it_where_everything_is_unembedded(name, monkeypatch):
    monkeypatch.setattr(reading, "_watched", lambda model: True)
    for module in (architecture, reading):
        monkeypatch.setattr(module, "transformer_with_points", lambda *_: None)
    most, allowed = taken(name, monkeypatch)
    assert most > allowed


@pytest.mark.parametrize("analyse", [_ablate, _shapley], ids=["ablate", "shapley"])
def test_a_budget_is_kept_to_and_changes_nothing(analyse):
    results = []
    most = most_at_once(lambda: results.append(analyse(16, max_bytes=BUDGET // 4)))
    assert BUDGET // 32 < most < BUDGET // 4
    whole = analyse(16)
    for name in whole:
        np.testing.assert_allclose(results[0][name], whole[name], atol=1e-5)


@pytest.mark.parametrize("analyse", [_ablate, _shapley], ids=["ablate", "shapley"])
def test_a_budget_that_does_not_suffice_says_what_would(analyse):
    with pytest.raises(ms.InputError, match=r"read at one of them.* takes .*; .* or allow max_bytes=") as said:
        analyse(2, max_bytes=100_000)
    enough = int(str(said.value).rpartition("max_bytes=")[2])
    assert analyse(2, max_bytes=enough)


def test_all_log_probabilities_of_many_positions_are_refused_before_they_are_computed(monkeypatch):
    task = preset("v3", "quick", 0).task
    prompts = task.sample(100, split="test", generator=seeded())
    assert analyses.log_probs(random_model(), task, prompts).nbytes > 20_000
    monkeypatch.setattr(budget, "MAX_RESULT_BYTES", 20_000)
    with pytest.raises(ms.InputError, match=r"would take .*, more than .*; take fewer sequences"):
        analyses.log_probs(random_model(), task, prompts)
