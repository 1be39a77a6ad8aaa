import math

import numpy as np
import pytest
import torch
import xarray as xr

from mnemoscope.analyses import residual as module
from mnemoscope.analyses.attribution import logit_attribution
from mnemoscope.analyses.residual import logit_lens, reading_depths
from mnemoscope.core import metrics
from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError
from mnemoscope.models.constructed import associative_memory, memory_batch
from mnemoscope.systems.tiny_recall.constructed import elimination_only
from tests.support import foreign_model, global_generators_untouched, seeded, small_spec

TASK = small_spec("v3").task
NORMALISATIONS = [None, "LN", "LNPre", "RMS", "RMSPre"]


def prompts(n: int = 6, d_vocab: int = 50, n_pos: int = 7) -> Batch:
    draws = seeded(3)
    inputs, targets = (torch.randint(0, d_vocab, (n, n_pos), generator=draws) for _ in range(2))
    scored = torch.zeros(n, n_pos, dtype=torch.bool)
    scored[:, [2, 6]] = torch.rand(n, 2, generator=draws) < 0.6
    scored[0, 2] = True
    return Batch(inputs=inputs, targets=targets, scored=scored)


def at_scored(values: torch.Tensor, batch: Batch) -> np.ndarray:
    return values.masked_fill(~batch.scored, torch.nan)[..., batch.scored.any(0)].detach().numpy()


def measures(logits: torch.Tensor, batch: Batch) -> dict[str, torch.Tensor]:
    """What the lens says of logits, in other words."""
    log_probs = logits.double().log_softmax(-1)
    order = logits.argsort(-1, descending=True)
    return {
        "log_prob": -torch.nn.functional.cross_entropy(log_probs.mT, batch.targets, reduction="none"),
        "rank": 1.0 + (order == batch.targets[..., None]).float().argmax(-1),
        "entropy": torch.distributions.Categorical(logits=log_probs).entropy(),
        "logit_difference": metrics.at_target(logits, batch.targets) - logits.mean(-1),
    }


@pytest.mark.parametrize("kind", NORMALISATIONS)
@pytest.mark.parametrize("n_layers", [1, 2, 4])
def test_transformer_lens_gives_the_same_streams(n_layers, kind):
    model, batch = foreign_model(n_layers=n_layers, normalization_type=kind), prompts()
    logits, cache = model.run_with_cache(batch.inputs)
    streams = cache.accumulated_resid(incl_mid=True, apply_ln=True)
    lens, result = streams @ model.W_U + model.b_U, logit_lens(model, batch)
    assert len(lens) == len(result.depth)
    for depth, here in enumerate(lens):
        for name, expected in measures(here, batch).items():
            np.testing.assert_allclose(result[name][depth], at_scored(expected, batch), rtol=1e-5, atol=1e-5)
        own, other = (torch.distributions.Categorical(logits=each.double()) for each in (logits, here))
        expected = torch.distributions.kl_divergence(own, other)
        np.testing.assert_allclose(result.kl[depth], at_scored(expected, batch), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("scale", ["own", "final"])
@pytest.mark.parametrize("kind", NORMALISATIONS)
def test_the_last_depth_is_the_models_own_output_exactly(kind, scale):
    model, batch = foreign_model(normalization_type=kind), prompts()
    logits = model(batch.inputs).detach()
    last = logit_lens(model, batch, scale=scale).isel(depth=-1)
    expected = at_scored(-metrics.cross_entropy(logits.double(), batch.targets), batch)
    assert np.array_equal(last.log_prob, expected, equal_nan=True)
    assert np.array_equal(last["rank"] == 1, at_scored(metrics.is_correct(logits, batch.targets).double(), batch) == 1)
    assert float(abs(last.kl).max()) < 1e-15


@pytest.mark.parametrize("changes", [{}, {"attn_only": True}, {"parallel_attn_mlp": True}], ids=str)
@pytest.mark.parametrize("kind", NORMALISATIONS)
def test_under_the_final_scale_depths_differ_by_the_terms_of_attribution(kind, changes):
    model, batch = foreign_model(n_layers=3, normalization_type=kind, dtype="float64", **changes), prompts()
    foil = (batch.targets + 1) % 50
    lens = logit_lens(model, batch, scale="final", foil=foil).logit_difference
    terms = logit_attribution(model, batch, foil=foil).attribution
    for before, depth in zip(lens.depth.values[:-1], lens.depth.values[1:], strict=True):
        layer, stage = depth.split(" ")
        labels = [label for label in terms.component.values if label.startswith(layer)]
        if "resid_mid" in depth or "resid_mid" in before:
            in_mlp = stage == "resid_post"
            labels = [label for label in labels if (label.endswith(("MLP", "b_out"))) == in_mlp]
        step = lens.sel(depth=depth) - lens.sel(depth=before)
        np.testing.assert_allclose(step, terms.sel(component=labels).sum("component", skipna=False), atol=1e-11)
    biases = [label for label in ("embed", "pos_embed", "ln_final b", "b_U") if label in terms.component]
    first = terms.sel(component=biases).sum("component", skipna=False)
    np.testing.assert_allclose(lens.isel(depth=0), first, atol=1e-11)


def test_depths_have_names():
    assert reading_depths(foreign_model(n_layers=1)) == ["L0 resid_pre", "L0 resid_mid", "L0 resid_post"]
    for changes in ({"attn_only": True}, {"parallel_attn_mlp": True}):
        assert reading_depths(foreign_model(**changes)) == ["L0 resid_pre", "L0 resid_post", "L1 resid_post"]


def test_the_answer_appears_where_the_memory_writes_it():
    """Four tokens: before the MLP all are alike (the tie goes to the lowest); after it the answer stands out by 20."""
    mapping = [2, 0, 3, 1]
    batch = memory_batch(6, mapping, generator=seeded())
    result = logit_lens(associative_memory(mapping, margin=20.0), batch)
    before, after = result.sel(depth=["L0 resid_pre", "L0 resid_mid"]), result.sel(depth="L0 resid_post")
    np.testing.assert_allclose(before.log_prob, -math.log(4))
    np.testing.assert_allclose(before.entropy, math.log(4))
    assert np.array_equal(before["rank"][0], batch.targets + 1)
    close_to_certain = 3 * math.exp(-20)
    np.testing.assert_allclose(before.kl, math.log(4), atol=1e-6)
    np.testing.assert_allclose(after.log_prob, -close_to_certain, rtol=1e-6)
    assert (after["rank"] == 1).all()
    np.testing.assert_allclose(after.logit_difference, 15)


def test_the_answer_appears_where_the_elimination_head_writes_it():
    batch = TASK.sample(20, split="test", generator=seeded())
    unused = batch.latents["unused"][:, None].expand_as(batch.inputs)
    result = logit_lens(elimination_only(), batch, answer=unused).sel(pos=8)
    np.testing.assert_allclose(result.log_prob.sel(depth="L0 resid_pre"), -math.log(5), atol=1e-6)
    expected = -math.log1p(4 * math.exp(-10))
    np.testing.assert_allclose(result.log_prob.sel(depth="L0 resid_post"), expected, atol=1e-6)


@pytest.mark.parametrize("scale", ["own", "final"])
def test_chunks_and_skills(scale):
    model, batch = foreign_model(), prompts()
    masks = {"some": batch.inputs < 25, "nowhere": torch.zeros_like(batch.scored)}
    whole = logit_lens(model, batch, scale=scale)
    xr.testing.assert_allclose(logit_lens(model, batch, scale=scale, max_bytes=1), whole, atol=1e-5)
    means = logit_lens(model, batch, scale=scale, skills=masks)
    single = logit_lens(model, batch, scale=scale, positions=masks["some"])
    assert means["rank"].dims == ("depth", "skill")
    for name in means:
        np.testing.assert_allclose(means[name].sel(skill="some"), single[name].mean(("prompt", "pos")), atol=1e-9)
        assert means[name].sel(skill="nowhere").isnull().all()


def test_nan_where_nothing_is_scored():
    batch = prompts()
    result = logit_lens(foreign_model(), batch)
    assert result.pos.values.tolist() == [2, 6]
    for name in result:
        assert np.array_equal(result[name].notnull().all("depth"), batch.scored[:, [2, 6]])


def test_hooks_take_part():
    model, batch = foreign_model(), prompts()
    values = torch.randn(len(batch), 7, 8, generator=seeded())
    model.add_hook("blocks.0.hook_attn_out", lambda out, hook: values)
    result = logit_lens(model, batch, max_bytes=1)
    expected = at_scored(-metrics.cross_entropy(model(batch.inputs).detach().double(), batch.targets), batch)
    assert np.array_equal(result.log_prob.isel(depth=-1), expected, equal_nan=True)
    assert len(model.hook_dict["blocks.0.hook_attn_out"].fwd_hooks) == 1

    model.add_hook("ln_final.hook_normalized", lambda out, hook: 2 * out)
    logit_lens(model, batch)
    with pytest.raises(InputError, match="remove the hooks after the last layer, or take scale='own'"):
        logit_lens(model, batch, scale="final")


def test_a_wrong_reading_is_noticed(monkeypatch):
    read = module._read
    monkeypatch.setattr(module, "_read", lambda *given: 1.001 * read(*given))
    with pytest.raises(InputError, match=r"misses those of this HookedTransformer by up to \d"):
        logit_lens(foreign_model(), prompts())


def test_nothing_outside_is_touched(tmp_path):
    model, batch = foreign_model(), prompts()
    with global_generators_untouched():
        result = logit_lens(model, batch)
    assert not any(point.fwd_hooks for point in model.hook_dict.values())
    result.to_netcdf(tmp_path / "result.nc", engine="h5netcdf")
    assert result.attrs["kl_of"] == "KL(model || lens)"
    assert result.attrs["final_normalisation"] == "LN: of each partial stream by itself"


@pytest.mark.usefixtures("as_installed")
def test_refused():
    model, batch = foreign_model(), prompts()
    with pytest.raises(InputError, match="scale must be one of: own, final; got 'frozen'"):
        logit_lens(model, batch, scale="frozen")  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError, match="answer must be tokens from 0 to 49"):
        logit_lens(model, batch, answer=batch.targets + 50)
    with pytest.raises(InputError, match="must be in float32 or float64; got"):
        logit_lens(foreign_model(dtype="float16"), batch)
    with torch.no_grad():
        model.blocks[1].attn.W_O[0, 0, 0] = math.nan
    with pytest.raises(InputError, match="W_O holds NaN"):
        logit_lens(model, batch)
