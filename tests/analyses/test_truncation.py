import pytest
import torch

from mnemoscope.analyses.predictions import skill_targets
from mnemoscope.analyses.truncation import last_mlp, truncate
from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError
from mnemoscope.core.intervention import Zero
from mnemoscope.core.site import WEIGHTS, ParamSite
from mnemoscope.interventions.run import run_with
from mnemoscope.models import constructed
from mnemoscope.systems.in_context_bigrams.constructed import noisy_induction
from tests.support import foreign_model, random_model, reads_back, seeded

TOKENS = torch.randint(6, (7, 10), generator=seeded())
WHERE = torch.rand(7, 9, generator=seeded(1)) < 0.6
BATCH = Batch(inputs=TOKENS[:, :-1], targets=TOKENS[:, 1:], scored=torch.ones(7, 9, dtype=torch.bool))
TARGETS = {"next": (BATCH.targets, WHERE), "three": (torch.full((7, 9), 3), BATCH.scored)}


def model(**changes):
    return random_model(n_layers=2, **changes)


def by_hand(logits):
    """Mean probability, log-probability and accuracy of both targets."""
    log_probs = logits.double().log_softmax(-1)
    rows = []
    for tokens, where in TARGETS.values():
        at, right = log_probs.gather(-1, tokens[..., None])[..., 0][where], (log_probs.argmax(-1) == tokens)[where]
        rows.append([at.exp().mean(), at.mean(), right.double().mean()])
    return torch.tensor(rows)


def scores(found, when=""):
    names = [f"{when}{name}" for name in ("probability", "log_prob", "accuracy")]
    return torch.stack([torch.tensor(found[name].values) for name in names], -1)


MATRICES = [ParamSite(name=n, layer=None if n in ("W_E", "W_pos", "W_U") else 1) for n in WEIGHTS if n[0] == "W"]


@pytest.mark.parametrize("site", [*MATRICES, ParamSite(name="W_O", layer=0, head=1)], ids=str)
def test_the_ends_are_the_model_itself_and_a_weight_of_zero(site):
    whole = model()
    full = min(dict(whole.named_parameters())[site.parameter].shape[-2:])
    found = truncate(whole, BATCH, weights={"it": [site]}, targets=TARGETS, ranks=(0, full)).sel(weight="it")
    clean, zero = (by_hand(run_with(whole, BATCH, changes)) for changes in ([], [Zero(site=site)]))
    for name in ("probability", "log_prob", "accuracy"):  # the model itself, bit for bit
        for part, rank in (("top", full), ("rest", 0)):
            assert (found[name].sel(part=part, rank=rank) == found[f"clean_{name}"]).all()
    torch.testing.assert_close(scores(found, "clean_"), clean)
    for part, rank in (("top", 0), ("rest", full)):
        torch.testing.assert_close(scores(found.sel(part=part, rank=rank)), zero)
    assert (clean - zero).abs().max() > 1e-4


@pytest.mark.parametrize("part", ["top", "rest"])
def test_every_rank_is_what_a_model_with_that_weight_says(part):
    site, whole, other = ParamSite(name="W_in", layer=1), model(), model()
    found = truncate(whole, BATCH, weights={"W_in": [site]}, targets=TARGETS, parts=[part])
    left, size, right = torch.linalg.svd(whole.blocks[1].mlp.W_in.detach().double(), full_matrices=False)
    assert found["rank"].values.tolist() == list(range(len(size) + 1))
    torch.testing.assert_close(torch.tensor(found.singular_value.values[0]), size, rtol=1e-5, atol=0)
    for rank in range(len(size) + 1):
        kept = slice(rank) if part == "top" else slice(rank, None)
        with torch.no_grad():
            other.blocks[1].mlp.W_in.copy_((left[:, kept] * size[kept]) @ right[kept])
            expected = by_hand(other(BATCH.inputs))
        torch.testing.assert_close(scores(found.sel(weight="W_in", part=part, rank=rank)), expected, atol=1e-5, rtol=0)


def test_weights_that_are_cut_together_and_the_heads_of_one():
    whole = model()
    found = truncate(whole, BATCH, weights=last_mlp(whole), targets=TARGETS, ranks=(0, 1))
    assert found.weight.values.tolist() == ["L1 W_in", "L1 W_out", "L1 W_in + L1 W_out"]
    assert found.full_rank.values.tolist() == [8, 8, 8]
    assert found.matrix.values.tolist() == ["L1 W_in", "L1 W_out"]
    zero = [Zero(site=ParamSite(name=name, layer=1)) for name in ("W_in", "W_out")]
    together = found.sel(weight="L1 W_in + L1 W_out", part="top", rank=0)
    torch.testing.assert_close(scores(together), by_hand(run_with(whole, BATCH, zero)))
    site = ParamSite(name="W_V", layer=0)
    weights = {"heads": [site], "embedding": [ParamSite(name="W_E")]}
    found = truncate(whole, BATCH, weights=weights, targets=TARGETS, ranks=(5,))
    assert found.matrix.values.tolist() == ["L0H0 W_V", "L0H1 W_V", "W_E"]
    assert found.full_rank.values.tolist() == [4, 6]
    assert found.singular_value.isnull().sum("index").values.tolist() == [2, 2, 0]
    beyond = found.sel(weight="heads", rank=5)  # of matrices of rank 4
    assert (beyond.probability.sel(part="top") == beyond.clean_probability).all()
    torch.testing.assert_close(scores(beyond.sel(part="rest")), by_hand(run_with(whole, BATCH, [Zero(site=site)])))


def test_models_that_cannot_go_on_from_a_layer_start_at_the_tokens():
    """Shortformer attention adds positions in every layer."""
    whole = foreign_model(positional_embedding_type="shortformer")
    found = truncate(whole, BATCH, weights={"W_O": [ParamSite(name="W_O", layer=1)]}, targets=TARGETS, ranks=(0, 3))
    torch.testing.assert_close(scores(found, "clean_"), by_hand(run_with(whole, BATCH, [])))
    zero = by_hand(run_with(whole, BATCH, [Zero(site=ParamSite(name="W_O", layer=1))]))
    torch.testing.assert_close(scores(found.sel(weight="W_O", part="top", rank=0)), zero)


def test_the_state_is_left_as_found_also_after_an_exception():
    whole, weights = model(), {"W_out": [ParamSite(name="W_out", layer=0)]}
    before = {name: (value.data_ptr(), value.clone()) for name, value in whole.named_parameters()}

    def fail(activation, hook):
        if not torch.equal(whole.blocks[0].mlp.W_out, before["blocks.0.mlp.W_out"][1]):
            raise RuntimeError("inside a cut")

    truncate(whole, BATCH, weights=weights, targets=TARGETS)
    with whole.hooks(fwd_hooks=[("blocks.0.hook_mlp_out", fail)]), pytest.raises(RuntimeError, match="inside a cut"):
        truncate(whole, BATCH, weights=weights, targets=TARGETS)
    for name, value in whole.named_parameters():
        assert value.data_ptr() == before[name][0]
        assert torch.equal(value, before[name][1])


def test_hooks_that_are_on_the_model_take_part():
    whole, weights = model(), {"W_in": [ParamSite(name="W_in", layer=1)]}
    for point in ("blocks.0.hook_resid_post", "blocks.1.hook_resid_post"):
        with whole.hooks(fwd_hooks=[(point, lambda activation, hook: activation * 1.5)]):
            found = truncate(whole, BATCH, weights=weights, targets=TARGETS, ranks=(8,))
            torch.testing.assert_close(scores(found, "clean_"), by_hand(whole(BATCH.inputs).detach()))
        assert (found.probability.sel(weight="W_in", part="top", rank=8) == found.clean_probability).all()


def test_a_planted_memory_of_rank_one_goes_with_its_top_component():
    """The noise token is in the largest component of W_out; the induction circuit needs none of it."""
    planted = noisy_induction(6, 16, triggers=(0, 1))
    inputs = torch.tensor([[2, 0, 3, 4, 0, 5, 1, 2, 1, 3, 0]])
    where = torch.zeros_like(inputs, dtype=torch.bool)
    where[:, 8] = True  # trigger 1, which 2 has followed
    batch = Batch(inputs=inputs, targets=inputs, scored=where)
    targets = {name: (torch.full_like(inputs, token), where) for name, token in (("noise", 6), ("seen", 2))}
    found = truncate(planted, batch, weights={"W_out": [ParamSite(name="W_out", layer=1)]}, targets=targets)
    at = found.probability.sel(weight="W_out")
    assert at.sel(target="noise", part="rest").values == pytest.approx([0.5, 0, 0], abs=1e-4)
    assert at.sel(target="seen", part="rest").values == pytest.approx([0.5, 1, 1], abs=1e-4)
    assert at.sel(target="noise", part="top").values == pytest.approx([0, 0.5, 0.5], abs=1e-4)
    assert found.singular_value.values[0] == pytest.approx([20 * 2**0.5, 0], abs=1e-4)


def test_results_are_described_and_stored(tmp_path):
    found = truncate(model(), BATCH, weights=last_mlp(model()), targets=TARGETS, ranks=(0, 2))
    assert found.n.values.tolist() == [int(WHERE.sum()), 63]
    assert found.attrs == {"log_prob_unit": "nats", "n": 7, "weights": "unprocessed"}
    assert reads_back(found, tmp_path / "truncation.nc")


def test_skills_are_targets():
    (name, (tokens, where)), *more = skill_targets(BATCH, {"a": WHERE}).items()
    assert (name, more) == ("a", [])
    assert tokens is BATCH.targets
    assert where is WHERE


IN = {"W_in": [ParamSite(name="W_in", layer=0)]}


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"weights": {}}, "at least one weight"),
        ({"weights": {"none": []}}, "each at least one matrix"),
        ({"weights": {"bias": [ParamSite(name="b_out", layer=0)]}}, "L0 b_out is a bias"),
        ({"weights": {"W_in": [ParamSite(name="W_in", layer=2)]}}, "no parameter blocks.2.mlp.W_in"),
        ({"weights": {"W_V": [ParamSite(name="W_V", layer=0, head=2)]}}, "from 0 to 1; got 2"),
        ({"ranks": (9,)}, "rank must be from 0 to 8; got 9"),
        ({"ranks": ()}, "must not be empty"),
        ({"parts": ("bottom",)}, "part must be one of: top, rest"),
        ({"targets": {}}, "at least one token"),
        ({"targets": {"a": (BATCH.targets, ~BATCH.scored)}}, "tested at no position"),
        ({"targets": {"a": (BATCH.targets[:, :3], WHERE)}}, "tokens of target a must have the shape"),
        ({"targets": {"a": (BATCH.targets + 6, WHERE)}}, "tokens of target a must be from 0 to 5"),
    ],
)
@pytest.mark.usefixtures("as_installed")
def test_what_is_refused(changes, named):
    with pytest.raises(InputError, match=named):
        truncate(model(), BATCH, **{"weights": IN, "targets": TARGETS, **changes})


def test_a_model_without_an_mlp_has_no_last_one():
    with pytest.raises(InputError, match="the model has no MLP"):
        last_mlp(constructed.induction(5, 8))
