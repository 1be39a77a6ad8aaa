"""Each kind of analysis on the packaged language model: probes, lens, attribution, ablation, views, Shapley values."""

import json
from itertools import permutations

import numpy as np
import pytest
import torch

import mnemoscope as ms

pytestmark = pytest.mark.lm
analyses = ms.analyses
NAMES = ("John", "Mary", "Paul", "Anna", "Tom", "James")
STORY = "When {A} and {B} went to the store, {S} gave a drink to"
N_HEADS = 5


@pytest.fixture(scope="module")
def pairs(model):
    """The giver is the second name, or the first one; the answer is the other."""
    people = list(permutations(NAMES, 2))
    clean, corrupted = ([ms.Prompt.fill(STORY, A=a, B=b, S=(b, a)[side]) for a, b in people] for side in (0, 1))
    due, other = ([f" {pair[i]}" for pair in people] for i in (0, 1))
    return ms.prompt_pairs(model.tokenizer, clean, corrupted, answers=due, foils=other, name="who gives")


@pytest.fixture(scope="module")
def repeated(model):
    """Random tokens shown twice, in two halves: to choose heads by, and to test them on."""
    batch = analyses.repeated_tokens(model, n=8, length=16, first_token=model.tokenizer.bos_token_id)
    return analyses.split_halves(batch)


@pytest.fixture(scope="module")
def induction_heads(model, repeated):
    score = analyses.head_scores(model, repeated[0]).score.sel(score_name="induction")
    order = score.values.ravel().argsort()[::-1][:N_HEADS]
    return [tuple(int(i) for i in np.unravel_index(place, score.shape)) for place in order]


def test_who_gives_is_read_from_the_last_token_of_a_late_layer_only(model, pairs):
    """At the last token the embedding is the same in all prompts: no probe of it can beat a constant answer."""
    both = [pairs.clean, pairs.corrupted]
    inputs, scored, targets, last = (
        torch.cat(parts)
        for parts in zip(*((b.inputs, b.scored, b.targets, b.latents["last"]) for b in both), strict=True)
    )
    who = torch.arange(2).repeat_interleave(len(pairs))
    known = {"last": last, "giver is first": who}
    batch = ms.Batch(inputs=inputs, scored=scored, targets=targets, known=known, symbol=pairs.clean.symbol)
    places = [("resid_pre", 0), ("resid_post", 20)]
    sites = [ms.Site(kind=kind, layer=layer, pos="last") for kind, layer in places]
    found = ms.probe(model, batch, "giver is first", sites=sites, n_shuffles=5)
    early, late = (found.isel(site=i, pos=0) for i in range(2))
    assert float(early.accuracy) == float(early.chance)
    assert float(late.accuracy) > 0.9
    assert float(late.selectivity.sel(against="shuffled")) > 0.25
    assert found.pos_token.values.tolist() == [" to"]


def test_the_lens_ends_in_the_answer_and_attribution_sums_to_the_difference(model, pairs):
    some = pairs.select(slice(0, 30, 6))
    lens = ms.logit_lens(model, some.clean, foil=some.foil)
    direct = ms.logit_attribution(model, some.clean, foil=some.foil)
    assert np.allclose(direct.attribution.sum("component"), direct.logit_difference, atol=1e-3)
    assert np.allclose(lens.logit_difference.isel(depth=-1), direct.logit_difference, atol=1e-3)
    rank = lens["rank"].mean("prompt").squeeze()
    assert float(rank.isel(depth=0)) > 100
    assert float(rank.isel(depth=-1)) < 3
    assert direct.token.values[:, 0].tolist() == [" to"] * 5


def test_heads_chosen_for_induction_are_needed_for_copying(model, repeated, induction_heads):
    """Chosen on one half and removed on the other, against other heads of the same layers."""
    choose, test = repeated
    draw, beside = np.random.default_rng(0), []
    for layer, _ in induction_heads:
        left = [(layer, head) for head in range(9) if (layer, head) not in [*induction_heads, *beside]]
        beside.append(left[draw.integers(len(left))])
    targets = {
        name: [ms.Site(kind="z", layer=layer, head=head) for layer, head in heads]
        for name, heads in (("induction", induction_heads), ("others", beside))
    }
    options = {"skills": {"copy": test.scored}, "reference": choose, "targets": targets, "kinds": ("mean",)}
    found = ms.ablate(model, test, **options)
    lost = (found.clean_log_prob - found.log_prob).squeeze()
    assert float(lost.sel(component="induction")) > 1
    assert float(lost.sel(component="induction")) > 2 * float(lost.sel(component="others"))
    tight = ms.ablate(model, test, **options, max_bytes=2**27)
    assert np.allclose(tight.log_prob, found.log_prob, atol=1e-4)


def test_a_page_shows_where_the_induction_heads_look(model, induction_heads):
    batch = ms.prompts(model.tokenizer, "one two three four one two three")
    found = analyses.named_patterns(model, batch).isel(example=0)
    assert np.allclose(found.pattern.sum("key"), 1, atol=1e-5)
    layer, head = induction_heads[0]
    after = batch.symbols[0].index(" four")
    looked_at = found.pattern.sel(layer=layer, head=head).isel(query=-1, key=slice(1, None))  # much rests on the first
    assert int(looked_at.key[int(looked_at.argmax("key"))]) == after
    page = ms.report.Page("Attention")
    ms.report.attention_view(page, found.isel(layer=[layer]), "of one layer")
    tokens = json.loads("[" + page.html().partition('"tokens": [')[2].partition("]")[0] + "]")
    assert tokens[1:5] == ["one", " two", " three", " four"]


def test_sampled_shapley_values_hold_the_exact_ones(model):
    """Of the heads that write most of the answer of one prompt, on another."""
    countries, capitals = ("Italy", "France", "Spain", "Germany"), (" Rome", " Paris", " Madrid", " Berlin")
    batch = ms.prompts(model.tokenizer, [f"The capital of {name} is" for name in countries], answers=capitals)
    choose, one = batch.select(slice(1)), batch.select(slice(1, 2))
    direct = ms.logit_attribution(model, choose).attribution.squeeze()
    heads = direct[direct.kind == "head"].to_series().nlargest(4).index
    numbers = {name: [int(number) for number in name[1:].split("H")] for name in heads}
    targets = {name: [ms.Site(kind="z", layer=at[0], head=at[1])] for name, at in numbers.items()}
    options = {"skills": {"name": one.scored}, "reference": batch, "targets": targets, "interactions": False}
    exact = ms.shapley(model, one, **options).sel(metric="log_prob")
    sampled = ms.shapley(model, one, n_samples=8, **options).sel(metric="log_prob")
    for found in (exact, sampled):
        assert np.allclose(found.value.sum("component"), found.carried, atol=1e-5)
    assert (abs(sampled.value - exact.value) <= 4 * sampled.sampling_error + 1e-4).all()
    assert float(exact.carried.squeeze()) > 0.01
