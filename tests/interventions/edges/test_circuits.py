"""Circuits that are run together give what each gives by itself."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from mnemoscope.core.errors import InputError
from mnemoscope.interventions.circuit_runs import shared_parts
from mnemoscope.interventions.edge_states import sweep_states
from mnemoscope.interventions.graph import EdgeState, model_edges
from mnemoscope.interventions.measurement import SweepQuestion
from tests.analyses.discovery.settings import arbitrary, every_mask
from tests.support import random_model


@pytest.mark.parametrize("embeddings", ["together", "apart"])
@pytest.mark.parametrize("replacement", ["patch", "mean", "zero"])
def test_what_circuits_share_is_the_same_in_each(replacement, embeddings):
    model = {"n_layers": 2, "mlp": replacement != "zero", "normalization": "LN" if embeddings == "apart" else "none"}
    given = {"replacement": replacement, "embeddings": embeddings}
    setting = arbitrary(n=7, dtype="float64", setting=given, **model)
    both = setting.pairs.scored.clone()
    both[:3, 1] = True
    setting = replace(setting, pairs=setting.pairs.read_at(both))
    masks = np.random.default_rng(0).random((20, len(setting.edges))) < 0.6
    states = torch.from_numpy(np.where(masks, int(EdgeState.LIVE), int(EdgeState.PATCHED)))
    question = SweepQuestion(model=setting.model, pairs=setting.pairs, directions=("noising",))
    expected = sweep_states(question, setting.edges, states, replacement=replacement).value[0, 0].numpy()
    assert setting._run(masks) == pytest.approx(expected, abs=1e-9)
    few = replace(setting, max_bytes=100_000)
    assert few._run(masks) == pytest.approx(expected, abs=1e-9)


def test_a_model_with_hooks_is_run_through_them():
    setting = arbitrary(dtype="float64")
    masks = np.random.default_rng(0).random((5, 13)) < 0.6
    plain = setting._run(masks)
    setting.model.add_hook("blocks.0.attn.hook_z", lambda z, hook: 2 * z)
    try:
        hooked = setting._run(masks)
    finally:
        setting.model.reset_hooks()
    with torch.no_grad():
        setting.model.blocks[0].attn.W_O.mul_(2)
    assert hooked == pytest.approx(setting._run(masks), abs=1e-9)
    assert abs(hooked - plain).max() > 1e-3


def test_one_layer_needs_few_different_outputs():
    parts = model_edges(random_model())
    found, variant = shared_parts(parts, arbitrary().prune(every_mask(13)))
    assert [len(part.reads) for part in found] == [8, 8, 128, 1936]
    assert len(np.unique(variant)) == 1936
    assert len(variant) == 8192


def test_a_budget_that_is_too_small_is_refused():
    with pytest.raises(InputError, match=r"allow [0-9,]+ more"):
        replace(arbitrary(), max_bytes=1000)._run(every_mask(13)[:2])
