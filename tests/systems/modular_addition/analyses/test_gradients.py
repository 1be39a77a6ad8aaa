"""Gradients against finite differences in float64, and what symmetricity and irrelevance are by their definitions."""

import math
from functools import partial

import pytest
import torch

from mnemoscope import ModelSpec
from mnemoscope.models import build
from mnemoscope.systems.modular_addition.analyses.circles import answer_logits
from mnemoscope.systems.modular_addition.analyses.gradients import embedding_gradients, irrelevance, symmetricity
from mnemoscope.systems.modular_addition.constructed import clock
from mnemoscope.systems.modular_addition.tasks import ModularAddition

TASK = ModularAddition(modulus=5)


def model(**fields):
    spec = ModelSpec(
        d_model=8, n_heads=2, d_mlp=16, normalization="none", attention_dir="bidirectional", dtype="float64",
        initialisation="by-width", **fields,
    )  # fmt: skip
    return build(spec, d_vocab=TASK.d_vocab, n_ctx=TASK.n_ctx, d_vocab_out=TASK.d_vocab_out, seed=1)


def shifted(value, hook, *, by):
    return value + by


@pytest.mark.parametrize("mix", [1.0, 0.6, 0.0])
def test_gradients_are_finite_differences(mix):
    network, step, answer = model(attention_mix=mix), 1e-6, 2
    exact = embedding_gradients(network, TASK, answer)
    for place in (0, 1):
        for dim in (0, 3, 7):
            by = torch.zeros(1, 2, 8, dtype=torch.double)
            by[0, place, dim] = step
            ends = [
                network.run_with_hooks(TASK.table().inputs, fwd_hooks=[("hook_embed", partial(shifted, by=sign * by))])[
                    :, -1, answer
                ]
                for sign in (1, -1)
            ]
            assert torch.allclose(exact[:, place, dim], (ends[0] - ends[1]).detach() / (2 * step), atol=1e-7)


def test_symmetricity_is_the_mean_cosine_over_all_triples():
    network, found = model(), []
    for answer in range(5):
        for one, other in embedding_gradients(network, TASK, answer):
            found.append(float(one @ other / (one.norm() * other.norm())))
    assert len(found) == 125
    assert symmetricity(network, TASK) == pytest.approx(sum(found) / 125, abs=1e-12)


def spread(values):
    mean = sum(values) / len(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / len(values))


def test_irrelevance_by_its_definition():
    network = model()
    logits = answer_logits(network, TASK)
    right = {(a, b): float(logits[a, b, (a + b) % 5]) for a in range(5) for b in range(5)}
    by_difference = [spread([right[(i + d) % 5, i] for i in range(5)]) for d in range(5)]
    assert irrelevance(network, TASK) == pytest.approx(sum(by_difference) / 5 / spread([*right.values()]), abs=1e-9)


def test_a_right_logit_without_variance_has_no_irrelevance():
    network = clock(TASK, frequencies=(1,))
    with torch.no_grad():
        network.unembed.W_U.zero_()
    assert math.isnan(irrelevance(network, TASK))
