"""Mixed runs: shares of one and zero are circuits, and constants that cost nothing are found."""

import numpy as np
import pytest
import torch

import mnemoscope as ms
from mnemoscope.core.errors import InputError
from mnemoscope.core.metrics import KL
from mnemoscope.interventions import circuit_runs
from mnemoscope.methods.learned import MixedRuns
from tests.analyses.discovery.settings import arbitrary, shared_keys

SETTINGS = {
    "causal": lambda: arbitrary(n_layers=2, setting={"metric": KL}),
    "apart": lambda: arbitrary(setting={"metric": KL, "embeddings": "apart"}),
    "both ways": lambda: arbitrary(attention_dir="bidirectional", setting={"metric": KL}),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_shares_of_one_and_zero_are_circuits(name):
    setting = SETTINGS[name]()
    masks = np.random.default_rng(0).random((4, len(setting.edges))) < 0.6
    masks[0], masks[1] = True, False
    runs, n = MixedRuns(setting=setting), len(setting.pairs)
    shares = torch.from_numpy(masks).float().repeat_interleave(n, 0)
    found = runs.divergence(shares, runs.written[1], torch.arange(n).repeat(4)).unflatten(0, (4, n))
    assert np.allclose(found.numpy(), setting.values(masks), atol=1e-4)


def test_gradients_are_those_of_small_changes():
    setting = arbitrary(setting={"metric": KL})
    runs, n = MixedRuns(setting=setting), len(setting.pairs)
    shares = torch.full((n, len(setting.edges)), 0.5, requires_grad=True)
    runs.divergence(shares, runs.written[1], torch.arange(n)).sum().backward()
    assert shares.grad is not None
    moved = torch.full((2, n, len(setting.edges)), 0.5)
    moved[0, :, 3] += 1e-2
    moved[1, :, 3] -= 1e-2
    more, less = (runs.divergence(each, runs.written[1], torch.arange(n)) for each in moved)
    assert np.allclose((more - less).detach() / 2e-2, shares.grad[:, 3], rtol=0.05, atol=1e-4)


def test_models_that_look_both_ways_run_as_their_hooks_do(monkeypatch):
    setting, again = (arbitrary(attention_dir="bidirectional") for _ in range(2))
    masks = np.random.default_rng(1).random((12, len(setting.edges))) < 0.6
    found = setting.values(masks)
    monkeypatch.setattr(circuit_runs, "resumable_transformer", lambda *args, **options: "hooks are asked for")
    assert np.allclose(found, again.values(masks), atol=1e-5)


def test_a_part_that_writes_a_constant_costs_nothing():
    """L0H1 of the sorted list looks for the next value and writes nothing."""
    known = ms.methods.KNOWN_CIRCUITS.get("sorted-list-one-head")()
    setting = ms.analyses.Setting(model=known.model, pairs=known.pairs(8, 0))
    found = ms.methods.score_edges("optimal-ablation", setting)
    assert found.sel(edge="L0H1 → logits") == pytest.approx(0, abs=1e-5)
    assert found.sel(edge="L0H0 → logits") > 0.1


def test_models_whose_edges_cannot_be_mixed_are_refused():
    with pytest.raises(InputError, match="share keys and values"):
        ms.methods.score_edges("ugs", shared_keys())
