"""Analyses on the packaged language model: right, against Hugging Face, TransformerLens and each other."""

import json
import os
import runpy
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from transformer_lens import patching

import mnemoscope as ms
from mnemoscope.core.metrics import at_target
from mnemoscope.models.language.sources import loaded
from mnemoscope.systems.retrieval_prompts.questions import questions
from mnemoscope.systems.retrieval_prompts.reading import ask
from mnemoscope.systems.retrieval_prompts.scoring import Sampling, answers

pytestmark = pytest.mark.lm
EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


@pytest.fixture(scope="module")
def pairs(model):
    story = "When {A} and {B} went to the store, {S} gave a drink to"
    names = [("John", "Mary"), ("Paul", "Anna"), ("Tom", "James"), ("Kate", "Alice")]
    names += [(b, a) for a, b in names]
    clean, corrupted = ([ms.Prompt.fill(story, A=a, B=b, S=(b, a)[side]) for a, b in names] for side in (0, 1))
    due, other = ([f" {pair[i]}" for pair in names] for i in (0, 1))
    return ms.prompt_pairs(model.tokenizer, clean, corrupted, answers=due, foils=other, name="who gives")


@torch.no_grad()
def test_a_chat_has_one_bos_token_and_the_log_probability_of_hugging_face(model):
    theirs, tokenizer = loaded("smollm2", torch.float32)
    chat = [{"role": "user", "content": "What is the capital of France?"}]
    text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    batch = ms.prompts(model.tokenizer, text, answers=["Paris"])
    tokens = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    assert batch.inputs.equal(tokens["input_ids"])
    due = int(batch.targets[batch.scored])
    expected, found = (logits[0, -1].log_softmax(-1)[due] for logits in (theirs(**tokens).logits, model(batch.inputs)))
    torch.testing.assert_close(found, expected, atol=1e-3, rtol=0)


@torch.no_grad()
def test_logits_are_those_of_hugging_face(model):
    theirs, tokenizer = loaded("smollm2", torch.float32)
    batch = ms.prompts(
        model.tokenizer, ["The capital of France is", "Once upon a time there was"], answers=[" Paris", " a"]
    )
    found, expected = model(batch.inputs), theirs(batch.inputs).logits
    assert (found - expected)[batch.real].abs().max() < 1e-3
    assert tokenizer.decode(found[0, batch.latents["last"][0]].argmax()) == " Paris"


def test_it_says_who_gets_the_drink(model, pairs):
    attribution = ms.logit_attribution(model, pairs.clean, foil=pairs.foil)
    assert float(attribution.logit_difference.min()) > 0
    assert np.allclose(attribution.attribution.sum("component"), attribution.logit_difference, atol=1e-3)
    lens = ms.logit_lens(model, pairs.clean, foil=pairs.foil)
    assert np.allclose(lens.logit_difference.isel(depth=-1), attribution.logit_difference, atol=1e-3)


def test_patching_takes_the_fast_way_and_agrees_with_transformer_lens(model, pairs, monkeypatch):
    monkeypatch.setattr(patching, "tqdm", iter)
    pairs = pairs.select(slice(2))
    layers, positions = [0, 15, 29], [4, 10, 14]
    only = {"layer": layers, "pos": positions}
    found = ms.patch(model, pairs, kind="resid_pre", over=("layer", "pos"), directions=["denoising"], only=only)
    assert found.attrs["method"] == "stream"
    assert found.pos_token.values.tolist() == ["B", "S", " to"]
    answer, foil = pairs.answer[:, -1], pairs.foil[:, -1]
    _, clean = model.run_with_cache(pairs.clean.inputs, names_filter=lambda name: name.endswith("resid_pre"))
    for layer in layers:
        for pos in positions:

            def write(activation, hook, layer=layer, pos=pos):
                activation[:, pos] = clean[f"blocks.{layer}.hook_resid_pre"][:, pos]
                return activation

            with torch.no_grad():
                name = f"blocks.{layer}.hook_resid_pre"
                logits = model.run_with_hooks(pairs.corrupted.inputs, fwd_hooks=[(name, write)])[:, -1]
            expected = at_target(logits, answer) - at_target(logits, foil)
            value = found.value.sel(direction="denoising", metric="logit_diff", layer=layer, pos=pos)
            assert np.allclose(value, expected, atol=1e-4)


def test_heads_that_share_keys_are_patched_by_the_fast_way(model, pairs):
    only = {"layer": [17], "head": [0, 2]}
    ways = [
        ms.patch(model, pairs.select(slice(2)), kind="k", over=("layer", "head"), only=only, method=method)
        for method in ("stream", "hooks")
    ]
    assert abs(ways[0].value - ways[1].value).max() < 1e-4


def test_some_heads_are_induction_heads(model):
    batch = ms.analyses.repeated_tokens(model, n=4, length=20, first_token=model.tokenizer.bos_token_id)
    score = ms.analyses.head_scores(model, batch).score
    assert float(score.sel(score_name="induction").max()) > 0.6
    assert score.sizes["layer"] == 30
    untrained = score.sel(score_name="induction", layer=0)
    assert float(untrained.max()) < 0.2, "the first layer cannot know what came before"


def test_heads_are_ablated(model, pairs):
    targets = {"L17H0": [ms.Site(kind="z", layer=17, head=0)]}
    found = ms.ablate(model, pairs.clean, skills={"name": pairs.scored}, reference=pairs.corrupted, targets=targets)
    assert float(found.clean_log_prob.sel(skill="name")) > -3
    assert found.sizes["component"] == 1


def test_what_would_not_fit_is_refused_in_one_line(model, pairs):
    with pytest.raises(ms.InputError, match=r"allow [0-9,]+ more"):
        ms.patch(model, pairs, kind="resid_pre", over=("layer",), max_bytes=10**6)


def test_edges_are_estimated_and_patched(model, pairs):
    estimate = ms.analyses.attribute_edges(model, pairs, directions=["noising"])
    assert estimate.sizes["edge"] == 70_651
    effect = abs(estimate.value - estimate.clean).mean("prompt").squeeze()
    largest = effect.edge.values[np.argsort(-effect.values)[:20]]
    chosen = [edge for edge in ms.interventions.model_edges(model) if str(edge) in largest]
    exact = ms.patch_edges(model, pairs, chosen=chosen, directions=["noising"])
    assert exact.attrs["method"] == "stream"
    figures = ms.analyses.approximation(estimate.sel(edge=exact.edge), exact)
    assert float(figures.sign_agreement.squeeze()) > 0.8


def test_the_whole_model_and_the_empty_circuit_are_both_ends(model, pairs):
    setting = ms.analyses.Setting(model=model, pairs=pairs)
    values = ms.patch(model, pairs, kind="resid_pre", over=("layer",), directions=["noising"])
    for end, name in zip(setting.ends, ("clean", "corrupted"), strict=True):
        assert np.allclose(end, values[name].squeeze(), atol=1e-3)
    with pytest.raises(ms.InputError, match=r"greedy pruning runs 70,651 circuits .* rank edges by attribution"):
        ms.analyses.greedy(setting, target=0.9)


def test_the_example_makes_a_figure(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    runpy.run_path(os.fspath(EXAMPLES / "language_model.py"))
    assert "stream" in capsys.readouterr().out
    assert "plotly" in (tmp_path / "patching.html").read_text()[:20000]


@torch.no_grad()
def test_a_dictionary_is_trained_and_its_features_are_sites(model, pairs, tmp_path, monkeypatch, capsys):
    """The example on four windows of text and ten updates."""
    monkeypatch.chdir(tmp_path)
    code = (EXAMPLES / "language_dictionary.py").read_text()
    assert "128, 800, 16, 6000" in code
    exec(code.replace("128, 800, 16, 6000", "32, 4, 1, 10"), {})
    assert "2304 features" in capsys.readouterr().out
    features = ms.load_dictionary(tmp_path / "smollm2-mlp-0.safetensors")
    split, batch = ms.with_dictionaries(model, [features]), pairs.clean
    clean = model(batch.inputs)
    torch.testing.assert_close(split(batch.inputs), clean, atol=1e-3, rtol=0)
    _, cache = model.run_with_cache(batch.inputs, names_filter=["blocks.0.ln2.hook_normalized"])
    read = cache["blocks.0.ln2.hook_normalized"]
    theirs = ms.load_dictionary(_as_sparsify(features, model, tmp_path / "model.layers.0.mlp"), model=model)
    assert (theirs.layer, theirs.reads, theirs.writes) == (0, "mlp_in", "mlp_out")
    torch.testing.assert_close(theirs.reconstruct(read), features.reconstruct(read), atol=1e-3, rtol=1e-3)
    active = features.encode(read)
    most = active.amax((0, 1)).topk(4).indices
    written = active[:, :, most] @ features.w_dec[most]
    removed = ms.run_with(split, batch, [ms.Zero(site=ms.Site(kind="feature", layer=0, neuron=tuple(most.tolist())))])
    by_hand = model.run_with_hooks(
        batch.inputs, fwd_hooks=[("blocks.0.hook_mlp_out", lambda activation, hook: activation - written)]
    )
    torch.testing.assert_close(removed, by_hand, atol=1e-3, rtol=0)
    assert (removed - clean).abs().max() > 0.01


def _as_sparsify(features, model, place):
    """The directory that sparsify would write: its encoder reads after the gain of the normalisation."""
    gain = getattr(model.blocks[0].ln2, "w", torch.ones(features.d_in))
    tensors = {"encoder.weight": features.w_enc / gain, "encoder.bias": features.b_enc}
    tensors |= {"W_dec": features.w_dec, "b_dec": features.b_dec}
    place.mkdir()
    save_file({name: value.contiguous() for name, value in tensors.items()}, place / "sae.safetensors")
    sizes = {"num_latents": features.n_features, "k": features.k, "d_in": features.d_in}
    cfg = {"activation": "topk", "normalize_decoder": True, "transcode": True, "skip_connection": False, **sizes}
    (place / "cfg.json").write_text(json.dumps(cfg))
    return place


def test_retrieval_prompts_are_asked_through_its_chat_template(model):
    asked = ask(model.tokenizer, [*questions("equations", 2, difficulty=1), *questions("lives-with", 2, difficulty=2)])
    assert all("You are a helpful AI assistant" in model.tokenizer.decode(each.prompt) for each in asked)
    assert {len(answer) for answer in asked[-1].answers} == {2}, "a city takes two tokens where no space is before it"
    found = [each for batch in answers(model, asked, sampling=Sampling(tries=2)) for each in batch]
    for each, question in zip(asked, (each.question for each in asked), strict=True):
        log_probs = next(one.log_probs for one in found if one.question == question)
        for answer, value in zip(each.answers, log_probs, strict=True):
            tokens = torch.tensor([[*each.prompt, *answer]])
            with torch.no_grad():
                after = model(tokens)[0, -len(answer) - 1 : -1].log_softmax(-1)
            assert abs(float(at_target(after, torch.tensor(answer)).sum()) - value) < 1e-3
