"""Patterns of all heads replaced: against plain hooks, on weights whose patterns are known, and what is refused."""

import pytest
import torch

from mnemoscope import InputError, generator
from mnemoscope.models import build
from mnemoscope.systems.factual_recall.analyses import PATTERNS, attending, routes
from mnemoscope.systems.factual_recall.constructed import fact_store
from mnemoscope.systems.factual_recall.presets import GRID
from mnemoscope.systems.factual_recall.tasks import FactualRecall
from tests.support import random_model

HOOK = "blocks.0.attn.hook_pattern"
TASK = FactualRecall(n_subjects=6, n_relations=4, n_answers=3, n_noise=5, length=8, facts_seed=0)


@pytest.fixture(name="model")
def drawn_model():
    """Untrained, with weights large enough to attend unevenly."""
    model = build(GRID, d_vocab=TASK.d_vocab, n_ctx=TASK.n_ctx, d_vocab_out=TASK.d_vocab_out, seed=1)
    with torch.no_grad():
        model.blocks[0].attn.get_parameter("W_K").mul_(6)
    return model


def accuracy(model, batch, pattern):
    """With the rows of the query given, by a plain hook."""

    def write(found, hook):
        found = found.clone()
        found[:, :, -1] = pattern
        return found

    answers = model.run_with_hooks(batch.inputs, fwd_hooks=[(HOOK, write)])[:, -1, : TASK.d_vocab_out].argmax(-1)
    return (answers == batch.targets[:, -1]).double().view(4, 6, 4).mean(0)


@torch.no_grad()
def test_replaced_rows_are_those_of_plain_hooks(model):
    found = attending(model, TASK, n_each=4, seed=3)
    batch = TASK.every_fact(4, generator=generator(3, "attending"))
    own = model.run_with_cache(batch.inputs, names_filter=HOOK)[1][HOOK][:, :, -1]
    is_place = torch.zeros(own.shape[0], own.shape[2])
    for kind in ("subject", "relation"):
        is_place[torch.arange(len(batch)), batch.latents[f"{kind}_pos"]] = 1
    at_places = own * is_place[:, None]
    weights = [
        (own * torch.nn.functional.one_hot(batch.latents[f"{kind}_pos"], 8)[:, None]).sum(-1).mean(0)
        for kind in ("subject", "relation")
    ]
    mean = torch.zeros_like(own)
    for kind, weight in zip(("subject", "relation"), weights, strict=True):
        mean += torch.nn.functional.one_hot(batch.latents[f"{kind}_pos"], 8)[:, None] * weight[None, :, None]
    expected = {
        "own": own,
        "no noise": at_places / at_places.sum(-1, keepdim=True),
        "mean": mean / mean.sum(-1, keepdim=True),
        "uniform": torch.full_like(own, 1 / 8),
    }
    assert tuple(found.pattern.values) == PATTERNS == tuple(expected)
    for name, rows in expected.items():
        assert torch.tensor(found.sel(pattern=name).values).equal(accuracy(model, batch, rows)), name
    assert len({found.sel(pattern=name).values.tobytes() for name in PATTERNS}) == 4, "they differ on this model"


def test_its_own_patterns_are_those_of_the_routes(model):
    own = attending(model, TASK, n_each=16, seed=1).sel(pattern="own").mean()
    assert float(own) == pytest.approx(float(routes(model, TASK, n_each=16).accuracy.sel(route="both").mean()), abs=0.1)


def test_hand_set_heads_need_not_choose_by_fact():
    """One finds every subject, the other every relation."""
    found = attending(fact_store(TASK), TASK)
    assert found.sel(pattern=["own", "no noise", "mean"]).values.min() == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"softmax": False}, "where there is a softmax"),
        ({"n_layers": 2}, "one layer"),
    ],
)
def test_what_has_no_rows_to_replace_is_refused(changes, message):
    model = random_model(d_vocab=TASK.d_vocab, n_ctx=TASK.n_ctx, **changes)
    with pytest.raises(InputError, match=message):
        attending(model, TASK)
