import math

import numpy as np
import pytest
import torch
import xarray as xr
from transformer_lens.model_bridge import TransformerBridge
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GemmaConfig,
    GemmaForCausalLM,
    Olmo2Config,
    Olmo2ForCausalLM,
)

from mnemoscope.analyses import attribution as module
from mnemoscope.analyses.attribution import logit_attribution
from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError
from mnemoscope.core.specification import ModelSpec
from mnemoscope.models.building import build
from mnemoscope.models.constructed import associative_memory, induction, induction_batch, memory_batch
from mnemoscope.systems.tiny_recall.constructed import elimination_only
from tests.bridge import tiny_bridge
from tests.support import (
    foreign_model,
    global_generators_untouched,
    random_model,
    seeded,
    small_spec,
)

TASK = small_spec("v3").task
NORMALISATIONS = [None, "LN", "LNPre", "RMS", "RMSPre"]
SPLITS = ["component", "head", "neuron", "source"]


def prompts(n: int = 8, d_vocab: int = 50, n_pos: int = 7) -> Batch:
    """Random tokens, scored at random positions of 1, 3, 4 (at least at one)."""
    draws = seeded(3)
    inputs, targets = (torch.randint(0, d_vocab, (n, n_pos), generator=draws) for _ in range(2))
    scored = torch.zeros(n, n_pos, dtype=torch.bool)
    scored[:, [1, 3, 4]] = torch.rand(n, 3, generator=draws) < 0.5
    scored[0, 3] = True
    return Batch(inputs=inputs, targets=targets, scored=scored)


def lookup(n: int = 12) -> Batch:
    return TASK.sample(n, split="test", generator=seeded())


def foils(batch: Batch, d_vocab: int = 50) -> torch.Tensor:
    return (batch.targets + 1) % d_vocab


def total(result: xr.Dataset) -> xr.DataArray:
    """All terms together."""
    axes = [axis for axis in result.attribution.dims if axis not in ("prompt", "pos", "skill")]
    whole = result.attribution.sum(axes, skipna=False)
    return whole + result["rest"] if "rest" in result else whole


def close(actual: xr.DataArray | np.ndarray, expected, atol: float = 1e-5) -> None:
    np.testing.assert_allclose(np.asarray(actual), np.asarray(expected), rtol=atol, atol=atol)


def at_scored(values: torch.Tensor, batch: Batch) -> np.ndarray:
    """`... batch pos` at the positions that results have, NaN where a sequence does not score them."""
    return values.masked_fill(~batch.scored, torch.nan)[..., batch.scored.any(0)].detach().numpy()


@pytest.mark.parametrize("by", SPLITS)
@pytest.mark.parametrize("kind", NORMALISATIONS)
@pytest.mark.parametrize("n_layers", [1, 3])
def test_the_terms_add_up_to_the_logit_difference(n_layers, kind, by):
    model, batch = foreign_model(n_layers=n_layers, normalization_type=kind, dtype="float64"), prompts()
    logits, foil = model(batch.inputs), foils(batch)
    expected = logits.gather(-1, batch.targets[..., None]) - logits.gather(-1, foil[..., None])
    result = logit_attribution(model, batch, by=by, foil=foil)
    close(total(result), at_scored(expected.squeeze(-1), batch), atol=1e-11)
    close(result.logit_difference, at_scored(expected.squeeze(-1), batch), atol=1e-11)
    assert result.attribution.isnull().any()
    assert result.pos.values.tolist() == [1, 3, 4]


@pytest.mark.parametrize("by", SPLITS)
@pytest.mark.parametrize(
    "changes",
    [
        {"positional_embedding_type": "rotary", "rotary_dim": 2, "d_head": 4},
        {"positional_embedding_type": "shortformer"},
        {"parallel_attn_mlp": True},
        {"gated_mlp": True},
        {"n_heads": 4, "n_key_value_heads": 2},
        {"final_rms": True, "normalization_type": "LN"},
        {"act_fn": "solu_ln"},
        {"d_vocab_out": 60},
        {"attention_dir": "bidirectional"},
        {"use_attn_result": True},
        {"post_embedding_ln": True},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_the_terms_add_up_in_other_architectures(changes, by):
    model, batch = foreign_model(dtype="float64", **changes), prompts()
    result = logit_attribution(model, batch, by=by)
    close(total(result), result.logit_difference, atol=1e-11)


@pytest.mark.parametrize("kind", NORMALISATIONS)
@pytest.mark.parametrize("n_layers", [1, 2, 3, 4])
def test_transformer_lens_gives_the_same_terms(n_layers, kind):
    """Its stacks know neither the gain nor any bias: the direction gets the gain, and biases are compared by hand."""
    model, batch = foreign_model(n_layers=n_layers, normalization_type=kind, dtype="float64"), prompts()
    foil = foils(batch)
    _, cache = model.run_with_cache(batch.inputs)
    direction = model.W_U.T[batch.targets] - model.W_U.T[foil]
    bias_term = direction @ model.ln_final.b if kind == "LN" else None
    direction = direction * (model.ln_final.w if kind in ("LN", "RMS") else 1)

    def read(stack):
        return at_scored((cache.apply_ln_to_stack(stack) * direction).sum(-1), batch)

    parts, labels = cache.decompose_resid(return_labels=True)
    parts = dict(zip(labels, read(parts), strict=True))
    biases = {
        f"L{layer} {name}": read((0 * cache["hook_embed"] + getattr(model, name)[layer])[None])[0]
        for layer in range(n_layers)
        for name in ("b_O", "b_out")
    }
    terms = logit_attribution(model, batch, foil=foil).attribution
    for name in ("embed", "pos_embed"):
        close(terms.sel(component=name), parts[name])
    for layer in range(n_layers):
        close(terms.sel(component=f"L{layer} MLP"), parts[f"{layer}_mlp_out"] - biases[f"L{layer} b_out"])
    for name, expected in biases.items():
        close(terms.sel(component=name), expected)
    difference = model.b_U[batch.targets] - model.b_U[foil]
    close(terms.sel(component="b_U"), at_scored(difference, batch))
    assert ("ln_final b" in terms.component) == (kind == "LN")
    if bias_term is not None:
        close(terms.sel(component="ln_final b"), at_scored(bias_term, batch))

    heads = read(cache.stack_head_results()).reshape(n_layers, 2, len(batch), 3)
    by_head = logit_attribution(model, batch, by="head", foil=foil).attribution
    close(by_head, heads)
    close(
        by_head,
        terms.sel(component=[f"L{i}H{j}" for i in range(n_layers) for j in range(2)]).values.reshape(heads.shape),
    )
    neurons = read(cache.stack_neuron_results(n_layers)).reshape(n_layers, -1, len(batch), 3)
    close(logit_attribution(model, batch, by="neuron", foil=foil).attribution, neurons)


@pytest.mark.parametrize("kind", [None, "LNPre", "RMSPre"])
def test_logit_attrs_agrees_where_there_is_no_gain(kind):
    model, batch = foreign_model(normalization_type=kind), prompts()
    _, cache = model.run_with_cache(batch.inputs)
    stack = cache.stack_head_results()
    expected = cache.logit_attrs(stack, tokens=batch.targets, incorrect_tokens=foils(batch))
    result = logit_attribution(model, batch, by="head", foil=foils(batch)).attribution
    close(result, at_scored(expected, batch).reshape(result.shape))


def micro_model():
    """Two tokens, two dimensions, one head of width one that attends evenly, one neuron."""
    model = build(ModelSpec(d_model=2, n_heads=1, d_mlp=1, normalization="none"), d_vocab=2, n_ctx=2, seed=0)
    values = {
        "embed.W_E": [[1, 0], [0, 1]],
        "pos_embed.W_pos": [[0, 0], [0, 0.5]],
        "blocks.0.attn.W_V": [[[1, 0], [2, 0]]],
        "blocks.0.attn.b_V": [[1, 0]],
        "blocks.0.attn.W_O": [[[1, 0], [0, 0]]],
        "blocks.0.attn.b_O": [0.5, 0],
        "blocks.0.mlp.W_in": [[1], [0]],
        "blocks.0.mlp.W_out": [[0, 3]],
        "blocks.0.mlp.b_out": [0, 0.25],
        "unembed.W_U": [[1, -1], [0, 2]],
        "unembed.b_U": [0.125, 0],
    }
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.tensor(values[name]) if name in values else torch.zeros_like(parameter))
    scored = torch.tensor([[False, True]])
    batch = Batch(inputs=torch.tensor([[0, 1]]), targets=torch.tensor([[0, 1]]), scored=scored)
    return model, batch, torch.tensor([[1, 0]])


def test_by_hand():
    """Direction: (-1, 2) - (1, 0) = (-2, 2). Values 1 + 1 and 2 * 1.5 + 1, so z = 3; the MLP sees 3 + 0.5."""
    model, batch, foil = micro_model()
    terms = logit_attribution(model, batch, foil=foil).attribution.sel(prompt=0, pos=1)
    expected = {"embed": 2, "pos_embed": 1, "L0H0": -6, "L0 b_O": -1, "L0 MLP": 21, "L0 b_out": 0.5, "b_U": -0.125}
    assert dict(zip(terms.component.values.tolist(), terms.values.tolist(), strict=True)) == expected
    assert terms.kind.values.tolist() == ["embedding", "embedding", "head", "bias", "MLP", "bias", "bias"]
    source = logit_attribution(model, batch, by="source", foil=foil)
    assert source.attribution.squeeze().values.tolist() == [-2, -4]
    assert source["rest"].squeeze() == 23.375
    neuron = logit_attribution(model, batch, by="neuron", foil=foil)
    assert neuron.attribution.squeeze() == 21
    assert neuron["rest"].squeeze() == -3.625
    centred = logit_attribution(model, batch)  # half of it, since there are two tokens
    assert centred.attribution.squeeze().values.tolist() == [term / 2 for term in expected.values()]


@pytest.mark.parametrize("source", [0, 1, 2, 3])
def test_the_elimination_head_takes_ten_from_every_used_value(source):
    model, batch = elimination_only(), lookup()
    used = batch.inputs[:, 2 * source + 1, None].expand_as(batch.inputs)
    unused = batch.latents["unused"][:, None].expand_as(batch.inputs)
    last = torch.zeros_like(batch.scored)
    last[:, 8] = True
    given = {"answer": used, "foil": unused, "positions": last}
    terms = logit_attribution(model, batch, **given).attribution.squeeze("pos")
    close(terms.sel(component="L0H0"), -10)
    assert (terms.drop_sel(component="L0H0") == 0).all()
    keys = logit_attribution(model, batch, by="source", **given).attribution.sel(layer=0, head=0).squeeze("pos")
    close(keys.sel(key=2 * source + 1), -10)
    close(keys.drop_sel(key=2 * source + 1), 0)


def test_the_neuron_of_the_token_carries_all():
    mapping = [2, 0, 3, 1]
    batch = memory_batch(6, mapping, generator=seeded())
    model = associative_memory(mapping, margin=20.0)
    foil = (batch.targets + 1) % 4
    result = logit_attribution(model, batch, by="neuron", foil=foil)
    expected = 20.0 * torch.nn.functional.one_hot(batch.inputs, 4).permute(2, 0, 1)
    close(result.attribution.sel(layer=0), expected)
    assert (result["rest"] == 0).all()


def test_the_induction_head_reads_the_place_after_the_earlier_occurrence():
    batch = induction_batch(5, n_tokens=8, n_ctx=8, generator=seeded())
    model = induction(8, 8, margin=20.0)
    by_key = logit_attribution(model, batch, by="source", foil=(batch.targets + 1) % 8).attribution
    attended = xr.DataArray(batch.latents["attended"][:, 4:].numpy(), dims=("prompt", "pos"))
    close(by_key.sel(layer=1, head=0).sel(key=attended), 20, atol=1e-4)
    assert (by_key.sel(layer=0) == 0).all(), "the previous-token head is needed, and writes no answer"


def dominance(model, batch) -> tuple[float, float]:
    """The largest mean term of a part in the last slot (nats), and the share of the largest part in all sizes."""
    terms = logit_attribution(model, batch, foil=list(TASK.answers)).attribution.sel(pos=8)
    share = (abs(terms).max("component") / abs(terms).sum("component")).mean()
    return float(abs(terms.mean("prompt")).max()), float(share)


def test_no_part_of_an_untrained_model_dominates():
    """No part favours the answer by a quarter nat on average, and none carries two thirds of the sizes of the terms."""
    batch = lookup(256)
    specs = [ModelSpec(d_model=32, n_heads=2, normalization=kind) for kind in ("none", "LN")]
    found = [dominance(build(s, d_vocab=6, n_ctx=9, seed=seed), batch) for s in specs for seed in range(4)]
    assert max(mean for mean, _ in found) < 0.25
    assert max(share for _, share in found) < 2 / 3
    mean, share = dominance(elimination_only(), batch)
    assert mean > 4
    assert share > 0.99


@pytest.mark.parametrize("by", SPLITS)
def test_a_constant_in_all_logits_changes_nothing(by):
    model, batch = foreign_model(), prompts()
    before = logit_attribution(model, batch, by=by)
    with torch.no_grad():
        model.unembed.b_U += 7
        model.unembed.W_U += torch.randn(8, 1, generator=seeded())
    close(logit_attribution(model, batch, by=by).attribution, before.attribution)


def test_a_foil_of_several_tokens_is_their_mean():
    model, batch = foreign_model(), prompts()
    each = [logit_attribution(model, batch, foil=torch.full_like(batch.inputs, token)).attribution for token in (4, 9)]
    several = logit_attribution(model, batch, foil=[4, 9])
    close(several.attribution, (each[0] + each[1]) / 2)
    assert several.contrast == "answer - mean of the logits of tokens 4, 9"
    close(logit_attribution(model, batch, foil=range(50)).attribution, logit_attribution(model, batch).attribution)


@pytest.mark.parametrize("by", SPLITS)
def test_chunks_change_nothing(by):
    model, batch = foreign_model(), prompts()
    skills = {"some": batch.scored & (batch.inputs < 25), "all": batch.scored}
    for given in ({}, {"skills": skills}):
        xr.testing.assert_allclose(
            logit_attribution(model, batch, by=by, max_bytes=1, **given),
            logit_attribution(model, batch, by=by, **given),
            atol=1e-6,
        )


@pytest.mark.parametrize("by", SPLITS)
def test_skills_are_means_over_their_positions(by):
    model, batch = foreign_model(), prompts()
    masks = {"some": batch.inputs < 25, "nowhere": torch.zeros_like(batch.scored)}
    result = logit_attribution(model, batch, by=by, skills=masks)
    single = logit_attribution(model, batch, by=by, positions=masks["some"])
    assert result.attribution.dims == (*single.attribution.dims[:-2], "skill")
    for name in result:
        close(result[name].sel(skill="some"), single[name].mean(("prompt", "pos")), atol=1e-9)
        assert result[name].sel(skill="nowhere").isnull().all()


def test_layers_that_are_not_split_go_to_the_rest():
    model, batch = foreign_model(n_layers=3), prompts()
    for by in ("head", "neuron", "source"):
        whole, part = (logit_attribution(model, batch, by=by, layers=layers) for layers in (None, [2, 0]))
        close(part.attribution, whole.attribution.sel(layer=[2, 0]))
        axes = whole.attribution.dims[1:-2]
        close(part["rest"], whole["rest"] + whole.attribution.sel(layer=1).sum(axes, skipna=False))


def test_an_ablated_head_has_no_term_and_hooks_stay():
    model, batch = foreign_model(), prompts()

    def remove(z, hook):
        z = z.clone()
        z[:, :, 1] = 0
        return z

    model.add_hook("blocks.1.attn.hook_z", remove)
    result = logit_attribution(model, batch)
    terms = result.attribution.stack(cell=("prompt", "pos")).dropna("cell")
    assert (terms.sel(component="L1H1") == 0).all()
    assert (terms.sel(component="hooks") == 0).all()
    assert (terms.sel(component="L1H0") != 0).all()
    assert len(model.hook_dict["blocks.1.attn.hook_z"].fwd_hooks) == 1
    close(result.logit_difference, logit_attribution(model, batch, by="neuron").logit_difference)


def test_what_a_hook_adds_to_the_stream_is_a_term_of_its_own():
    model, batch = foreign_model(normalization_type=None), prompts()
    steering = torch.randn(8, generator=seeded())
    model.add_hook("blocks.0.hook_resid_post", lambda resid, hook: resid + steering)
    foil = foils(batch)
    expected = (model.W_U.T[batch.targets] - model.W_U.T[foil]) @ steering
    result = logit_attribution(model, batch, foil=foil)
    close(result.attribution.sel(component="hooks"), at_scored(expected, batch))
    close(total(result), result.logit_difference)


def test_a_hook_that_knows_the_rows_sees_all_of_them():
    model, batch = foreign_model(), prompts()
    values = torch.randn(len(batch), 7, 2, 3, generator=seeded())
    model.add_hook("blocks.0.attn.hook_z", lambda z, hook: values)
    result = logit_attribution(model, batch, max_bytes=1)
    close(total(result), result.logit_difference)


def test_a_hook_on_the_result_of_a_head_is_in_its_term():
    model, batch = foreign_model(use_attn_result=True), prompts()
    model.add_hook("blocks.1.attn.hook_result", lambda result, hook: 0 * result)
    terms = logit_attribution(model, batch, positions=torch.ones_like(batch.scored)).attribution
    assert (terms.sel(component=["L1H0", "L1H1", "hooks"]) == 0).all()
    with pytest.raises(InputError, match="head L1H0 must be the sum of its sources, and a hook"):
        logit_attribution(model, batch, by="source")
    logit_attribution(model, batch, by="source", layers=[0])


def test_results_of_heads_are_computed_where_the_model_does_not():
    model, batch = foreign_model(), prompts()
    computed = logit_attribution(model, batch)
    assert not model.cfg.use_attn_result
    model.set_use_attn_result(True)
    xr.testing.assert_allclose(logit_attribution(model, batch), computed, atol=1e-6)


def test_a_changed_output_is_not_split_into_neurons():
    model, batch = foreign_model(), prompts()
    model.add_hook("blocks.1.hook_mlp_out", lambda out, hook: 2 * out)
    with pytest.raises(InputError, match="MLP of layer 1 must be the sum of its neurons, and a hook"):
        logit_attribution(model, batch, by="neuron")
    logit_attribution(model, batch, by="neuron", layers=[0])


@pytest.mark.parametrize("label", ["embed", "L0H1", "L1 b_O", "L1 MLP", "L0 b_out", "ln_final b", "b_U"])
def test_a_missing_term_is_noticed(monkeypatch, label):
    whole = module.component_terms
    monkeypatch.setattr(
        module, "component_terms", lambda *given: {k: v for k, v in whole(*given).items() if k != label}
    )
    with pytest.raises(InputError, match=r"miss it by up to \d"):
        logit_attribution(foreign_model(), prompts())


def test_models_on_a_bridge_give_the_same():
    shape = {"n_layers": 2, "d_model": 8, "n_heads": 2, "d_head": 3, "d_mlp": 16, "n_ctx": 9, "d_vocab": 50}
    bridge = TransformerBridge.boot_native({**shape, "act_fn": "relu", "normalization_type": "LN", "seed": 0})
    model, draws = foreign_model(**shape, act_fn="relu"), seeded()
    with torch.no_grad():
        for parameter in bridge.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=draws)
        for name, parameter in model.named_parameters():
            owner = bridge
            for part in name.split("."):
                owner = owner[int(part)] if part.isdigit() else getattr(owner, part)
            parameter.copy_(owner)
    batch = prompts()
    for by in SPLITS:
        xr.testing.assert_allclose(
            logit_attribution(bridge, batch, by=by), logit_attribution(model, batch, by=by), atol=1e-5
        )


def test_nothing_outside_is_touched(tmp_path):
    model, batch = foreign_model(), prompts()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    with global_generators_untouched():
        result = logit_attribution(model, batch, skills={"all": batch.scored})
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert not any(point.fwd_hooks for point in model.hook_dict.values())
    result.to_netcdf(tmp_path / "result.nc", engine="h5netcdf")
    assert result.attrs["final_normalisation"].startswith("LN: scale frozen")
    assert (result.n, result.weights) == (8, "unprocessed")


def test_the_processing_is_named():
    for kind, name in ((None, "unprocessed"), ("LNPre", "normalisation folded")):
        result = logit_attribution(foreign_model(normalization_type=kind), prompts())
        assert result.weights == name
    assert logit_attribution(random_model(normalization="none", n_ctx=9), lookup()).final_normalisation == "none"


EVERYWHERE = torch.full((8, 7), 3)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"foil": None}, "foil must be a token for each position, .* the answer alone moves with a constant"),
        ({"foil": []}, "foil must be a token for each position"),
        ({"foil": "median"}, "foil must be a token for each position.*; got 'median'"),
        ({"foil": prompts().targets}, "foil must differ from the answer somewhere"),
        ({"answer": EVERYWHERE, "foil": [3]}, "foil must differ from the answer somewhere"),
        ({"foil": 50 + EVERYWHERE}, "foil must be tokens from 0 to 49, the model's; got 53"),
        ({"foil": [1, -1]}, "foil must be tokens from 0 to 49, the model's; got -1"),
        ({"answer": 50 + EVERYWHERE}, "answer must be tokens from 0 to 49, the model's; got 53"),
        ({"answer": EVERYWHERE[:, 1:]}, r"answer must have the batch's shape \(batch, pos\) = \(8, 7\); got \(8, 6\)"),
        ({"foil": EVERYWHERE[1:]}, r"foil must have the batch's shape .* got \(7, 7\)"),
        ({"positions": EVERYWHERE[1:] == 3}, r"positions must have the batch's shape .* got \(7, 7\)"),
        ({"positions": EVERYWHERE == 4}, "positions .* must select at least one position; got none"),
        ({"skills": {"a": EVERYWHERE[1:] == 3}}, r"skill a must have the batch's shape .* got \(7, 7\)"),
        ({"skills": {}}, "skills must name at least one mask"),
        ({"by": "layer"}, "by must be one of: component, head, neuron, feature, source; got 'layer'"),
        ({"by": "head", "layers": [2]}, "layers must be from 0 to 1; got 2"),
        ({"by": "head", "layers": [-1]}, "layers must be from 0 to 1; got -1"),
        ({"by": "head", "layers": []}, "layers must name one or more layers"),
        ({"by": "head", "layers": [1, 1]}, r"layers must name one or more layers, each once .* got \[1, 1\]"),
        ({"layers": [0]}, "layers chooses what is split"),
        ({"max_bytes": 0}, "max_bytes must be at least 1; got 0"),
    ],
)
@pytest.mark.usefixtures("as_installed")
def test_refused_questions(given, message):
    with pytest.raises(InputError, match=message):
        logit_attribution(foreign_model(), prompts(), **given)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dtype": "bfloat16"}, "must be in float32 or float64; got torch.bfloat16: use model.to"),
        ({"output_logits_soft_cap": 30.0}, "the model caps its logits"),
        ({"use_normalization_before_and_after": True, "normalization_type": "RMS"}, "normalises what heads and MLPs"),
        ({"d_vocab": 40}, "the model has 40 tokens and the batch uses token 49"),
        ({"n_ctx": 6}, "the model reads 6 tokens and the batch has 7"),
    ],
)
def test_refused_models(changes, message):
    with pytest.raises(InputError, match=message):
        logit_attribution(foreign_model(**changes), prompts())


def test_a_mixture_of_experts_is_refused():
    model = foreign_model(gated_mlp=True)
    model.cfg.num_experts = 2
    with pytest.raises(InputError, match="has a mixture of experts"):
        logit_attribution(model, prompts())


def test_no_neurons_without_mlps():
    model = foreign_model(attn_only=True)
    with pytest.raises(InputError, match="by must be component, head or source for a model without MLPs"):
        logit_attribution(model, prompts(), by="neuron")
    result = logit_attribution(model, prompts())
    assert not any("MLP" in label or "b_out" in label for label in result.component.values)
    close(total(result), result.logit_difference)


def test_nan_and_infinity_are_refused():
    model, batch = foreign_model(), prompts()
    with torch.no_grad():
        model.unembed.b_U[batch.targets[0, 3]] = -math.inf
    with pytest.raises(InputError, match="logits of answer and foil must be finite"):
        logit_attribution(model, batch, foil=foils(batch))
    with torch.no_grad():
        model.blocks[0].mlp.W_in[0, 0] = math.nan
    with pytest.raises(InputError, match="W_in holds NaN"):
        logit_attribution(model, batch)


def test_too_large_a_result_is_refused_before_it_is_made(monkeypatch):
    model, batch = foreign_model(), prompts()
    monkeypatch.setattr(module, "MAX_RESULT_BYTES", 5000)
    with pytest.raises(InputError, match="choose layers, positions or fewer sequences, or take means with skills"):
        logit_attribution(model, batch, by="neuron")
    logit_attribution(model, batch, by="neuron", skills={"all": batch.scored})
    logit_attribution(model, batch, by="head")


def test_scaled_embeddings_and_gains_less_one_are_counted_on_a_bridge():
    """A Gemma: its bridge shows embeddings before they are scaled, and the gain of a norm less one."""
    theirs, bridge = tiny_bridge(GemmaForCausalLM, GemmaConfig, head_dim=4)
    batch = prompts()
    result, foil = logit_attribution(bridge, batch, foil=foils(batch)), foils(batch)
    streams = []
    theirs.model.norm.register_forward_pre_hook(lambda module, inputs: streams.append(inputs[0].double()))
    with torch.no_grad():
        out = theirs(batch.inputs, output_hidden_states=True)
    logits = out.logits.double()
    expected = logits.gather(-1, batch.targets[..., None]) - logits.gather(-1, foil[..., None])
    scale = (streams[0].square().mean(-1, keepdim=True) + theirs.config.rms_norm_eps).sqrt()
    weights = theirs.lm_head.weight.detach().double()
    direction = (weights[batch.targets] - weights[foil]) * (1 + theirs.model.norm.weight.detach().double()) / scale
    embedded = out.hidden_states[0].double()
    close(total(result), at_scored(expected.squeeze(-1), batch), atol=2e-5)
    close(result.attribution.sel(component="embed"), at_scored((embedded * direction).sum(-1), batch), atol=2e-5)


@pytest.mark.parametrize(
    ("model", "config", "changes"),
    [(Gemma3ForCausalLM, Gemma3TextConfig, {"head_dim": 4}), (Olmo2ForCausalLM, Olmo2Config, {})],
    ids=["Gemma 3", "OLMo 2"],
)
def test_norms_behind_the_blocks_are_refused_on_a_bridge(model, config, changes):
    bridge = tiny_bridge(model, config, **changes)[1]
    with pytest.raises(InputError, match=r"normalises what heads and MLPs write|must add up to the logit difference"):
        logit_attribution(bridge, prompts())
