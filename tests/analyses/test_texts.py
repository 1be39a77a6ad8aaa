"""Prompts made of texts: results say what stands where, positions go by name, and padding is no part of a mean."""

import html
import json

import numpy as np
import pytest
import torch
import xarray as xr

import mnemoscope as ms
from mnemoscope.analyses.ablation import position_targets
from mnemoscope.core.patterns import previous
from tests.language_models import KINDS, save, tokenizer

TEXTS = ["When {A} and {B} went to the store , {B} gave a drink to", "{A} and {B} went to the store . {B} gave to"]
NAMES = [("John", "Mary"), ("Paul", "Anna"), ("Anna", "John"), ("Mary", "Paul")]
analyses = ms.analyses


@pytest.fixture(scope="module", params=sorted(KINDS))
def model(request, tmp_path_factory):
    return ms.language_model(str(save(request.param, tmp_path_factory.mktemp(request.param) / "model")))


def batch(*texts: str) -> ms.Batch:
    filled = [ms.Prompt.fill(text, A=a, B=b) for text in texts for a, b in NAMES]
    return ms.prompts(tokenizer(), filled, answers=[a for _ in texts for a, _ in NAMES])


SAME, RAGGED = batch(TEXTS[0]), batch(*TEXTS)
LAST_TOKENS = ["drink", "to"]


def padded_otherwise(prompts: ms.Batch) -> ms.Batch:
    """The same prompts with other tokens behind their ends."""
    other = prompts.inputs.clone()
    other[~prompts.real] = 5
    return ms.Batch(**{**vars_of(prompts), "inputs": other})


def vars_of(prompts: ms.Batch) -> dict:
    fields = ("inputs", "targets", "scored", "lengths", "symbol", "known")
    return {name: getattr(prompts, name) for name in fields}


def test_the_lens_and_direct_attribution_say_what_stands_where(model):
    everywhere = SAME.real
    for result in (
        ms.logit_lens(model, SAME, positions=everywhere),
        ms.logit_attribution(model, SAME, positions=everywhere),
    ):
        assert result.pos_token.values.tolist()[-2:] == LAST_TOKENS
        assert result.pos_token.values.tolist()[2] == "A"
        assert result.token.sel(prompt=1).values.tolist() == SAME.symbols[1]
    by_source = ms.logit_attribution(model, SAME, by="source")
    assert by_source.key_token.values.tolist()[-2:] == LAST_TOKENS


def test_positions_go_by_name(model):
    where = torch.zeros_like(RAGGED.scored)
    where[torch.arange(len(RAGGED)), RAGGED.latents["B_2"]] = True
    for analyse in (ms.logit_lens, ms.logit_attribution):
        xr.testing.assert_identical(analyse(model, RAGGED, positions="B_2"), analyse(model, RAGGED, positions=where))
    with pytest.raises(ms.InputError, match="C"):
        ms.logit_lens(model, RAGGED, positions="C")


def test_ablation_over_positions_says_what_stands_there(model):
    targets = position_targets(model, ["B_2", 3])
    found = ms.ablate(model, SAME, skills={"name": SAME.scored}, reference=SAME, targets=targets, kinds=("zero",))
    assert found.pos_token.values.tolist()[:2] == ["B_2", "and"]
    by_site = {str(site): site for sites in targets.values() for site in sites}
    name = "L0H0 pos B_2"
    number = ms.Site(kind="z", layer=0, head=0, pos=int(SAME.latents["B_2"][0]))
    same = ms.ablate(
        model, SAME, skills={"name": SAME.scored}, reference=SAME, targets={name: [number]}, kinds=("zero",)
    )
    assert by_site[name].pos == "B_2"
    np.testing.assert_allclose(found.log_prob.sel(component=name), same.log_prob.sel(component=name))


def test_heads_and_probes_say_what_stands_where(model):
    shares = analyses.attention_by_mechanism(model, SAME, [previous()], measures=["mean_pattern"])
    assert shares.query_token.values.tolist()[-2:] == shares.key_token.values.tolist()[-2:] == LAST_TOKENS
    prompts = analyses.with_latent(SAME, "who", torch.tensor([0, 1, 0, 1]))
    site = ms.Site(kind="resid_post", layer=0)
    found = ms.probe(model, prompts, "who", sites=[site], n_shuffles=1)
    assert found.pos_token.values.tolist()[-2:] == LAST_TOKENS


def test_a_view_shows_tokens_and_no_padding(model):
    found = analyses.named_patterns(model, RAGGED)
    assert found.token.values.tolist() == RAGGED.symbols
    page = ms.report.Page("attention", "of texts")
    ms.report.attention_view(page, found.isel(example=-1), "of the last, shorter prompt")
    shown = page.html().partition('"tokens": [')[2].partition("]")[0]
    assert [json.loads(each) for each in shown.split(", ")] == [
        html.escape(token, quote=False) for token in RAGGED.symbols[-1][: RAGGED.lengths[-1]]
    ]


class TestPadding:
    """What lies behind the end of a prompt changes no result."""

    @pytest.mark.parametrize(
        "analyse",
        [
            lambda model, prompts: ms.logit_lens(model, prompts),
            lambda model, prompts: ms.logit_attribution(model, prompts),
            lambda model, prompts: ms.evaluate(model, None, prompts, by={"at": {"last": prompts.scored}}),
            lambda model, prompts: ms.ablate(
                model, prompts, skills={"last": prompts.scored}, reference=prompts, kinds=("zero", "mean")
            ),
            lambda model, prompts: ms.shapley(
                model, prompts, skills={"last": prompts.scored}, reference=prompts, interactions=False,
                targets={f"L{n}": [ms.Site(kind="attn_out", layer=n)] for n in range(2)},
            ),
            lambda model, prompts: ms.probe(
                model, analyses.with_latent(prompts, "who", torch.arange(8) % 2), "who",
                sites=[ms.Site(kind="resid_post", layer=0)], pooled=True, n_shuffles=1,
            ),
        ],
        ids=["lens", "attribution", "evaluate", "ablate", "shapley", "probe"],
    )  # fmt: skip
    def test_other_tokens_there_change_nothing(self, model, analyse):
        first, second = analyse(model, RAGGED), analyse(model, padded_otherwise(RAGGED))
        for name in first:
            np.testing.assert_allclose(first[name], second[name], atol=1e-6)

    def test_neurons_are_read_at_the_end_of_each_prompt(self, model):
        if getattr(model.cfg, "gated_mlp", False) or model.cfg.parallel_attn_mlp:
            pytest.skip("its MLPs are gated, or beside the attention")
        found = analyses.neuron_activity(model, RAGGED)
        assert found.pos.tolist() == RAGGED.latents["last"].tolist()
        by_name = analyses.neuron_activity(model, RAGGED, pos="last")
        torch.testing.assert_close(found.activation, by_name.activation)
        inside = analyses.neuron_activity(model, RAGGED, pos=range(RAGGED.inputs.shape[1]))
        assert len(inside.pos) == int(RAGGED.real.sum())

    @pytest.mark.parametrize(
        "analyse",
        [
            lambda model: analyses.head_scores(model, RAGGED),
            lambda model: analyses.attention_by_mechanism(model, RAGGED, [previous()]),
        ],
        ids=["head scores", "shares"],
    )
    def test_means_over_queries_are_refused(self, model, analyse):
        with pytest.raises(ms.InputError, match="padded"):
            analyse(model)
