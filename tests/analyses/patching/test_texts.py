"""Patching of prompts made of texts, on models as Hugging Face saves them: every kind of architecture, any lengths."""

import numpy as np
import pytest

import mnemoscope as ms
from mnemoscope import Prompt, prompt_pairs
from mnemoscope.core.metrics import METRICS
from tests.language_models import KINDS, save, tokenizer

LONG, SHORT = "When {A} and {B} went to the store , {S} gave a drink to", "{A} and {B} went to {S} and"
FILLED = [(LONG, "John", "Mary"), (SHORT, "Paul", "Anna"), (LONG, "Anna", "John")]
SWEEPS = [
    ("resid_pre", ("layer", "pos")),
    ("z", ("layer", "head")),
    ("v", ("layer", "pos", "head")),
    ("post", ("layer",)),
]


@pytest.fixture(scope="module", params=KINDS)
def model(request, tmp_path_factory):
    return ms.language_model(save(request.param, tmp_path_factory.mktemp(request.param)))


def pairs_of(filled):
    clean, corrupted = (
        [Prompt.fill(template, A=a, B=b, S=(b, a)[side]) for template, a, b in filled] for side in (0, 1)
    )
    due, other = ([row[i] for row in filled] for i in (1, 2))
    return prompt_pairs(tokenizer(), clean, corrupted, answers=due, foils=other, name="subject")


@pytest.mark.parametrize(("kind", "over"), SWEEPS)
def test_padding_changes_nothing_and_both_ways_agree(model, kind, over):
    together = ms.patch(model, pairs_of(FILLED), kind=kind, over=over, metrics=METRICS)
    assert together.attrs["method"] == "stream"
    hooked = ms.patch(model, pairs_of(FILLED), kind=kind, over=over, metrics=METRICS, method="hooks")
    assert abs(together.value - hooked.value).max() < 1e-4
    for row, one in enumerate(FILLED):
        alone = ms.patch(model, pairs_of([one]), kind=kind, over=over, metrics=METRICS)
        of_row = together.value.isel(prompt=[row])
        if "pos" in over:
            beyond = of_row.isel(pos=slice(alone.sizes["pos"], None)).sel(direction="noising")
            unpatched = together.clean.isel(prompt=[row]).broadcast_like(beyond)
            assert np.allclose(beyond, unpatched, atol=1e-5), "patched padding is not seen"
            of_row = of_row.isel(pos=slice(alone.sizes["pos"]))
        assert np.allclose(of_row.transpose(*alone.value.dims), alone.value, atol=1e-4)


def test_positions_carry_their_tokens(model):
    found = ms.patch(model, pairs_of(FILLED[::2]), kind="resid_pre", over=("layer", "pos"), directions=["denoising"])
    names = ["<bos>", *LONG.replace("{", "").replace("}", "").split()]
    assert found.pos_token.values.tolist() == names
    effects = ms.analyses.effects(found, refuse=False)
    figure = ms.report.patching_figure({"subject": effects.fillna(0)}, "logit_diff")
    assert list(figure.data[0].x) == [f"{pos} {name}" for pos, name in enumerate(names)]
