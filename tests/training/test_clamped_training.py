"""Whole trainings with clamps: resumed, many at once, until and after the clamp; and what is refused before."""

from dataclasses import replace

import pytest
import torch

from mnemoscope.core.clamp import Clamp
from mnemoscope.core.errors import InputError
from mnemoscope.core.specification import RunSpec
from mnemoscope.training.clamped import check_clamps
from mnemoscope.training.loop import train, train_together
from tests.support import contents, small_spec
from tests.training.lookup_with_parts import WithParts

SHORT = {
    "recipe.n_steps": 24,
    "recipe.warmup_steps": 4,
    "recipe.batch_size": 16,
    "recipe.metrics_every": 4,
    "recipe.save_every": 10,
    "recipe.checkpoint_steps": (8, 12),
    "model.n_layers": 2,
    "model.d_model": 8,
    "model.dtype": "float64",
}
TEXTS = (
    "L0H1=zero from 6 to 18 ramp 8",
    "L0H0 pattern=pattern previous token from 8",
    "L1 resid_pre pos source_pos=scale 0.5",
    "L1H0 scores key 0=knockout from 3 ramp 50",
    "L0 W_in=rank 4 from 9 ramp 3",
    "W_pos=hold to 7",
    "ideal copy from 16",
)


def spec_of(seed: int = 0, texts=TEXTS, more=None) -> RunSpec:
    spec = small_spec(seed=seed, changes={**SHORT, "recipe.clamps": tuple(map(Clamp.read, texts)), **(more or {})})
    return replace(spec, task=WithParts(repeat_ratio=0.5).for_seed(seed))


def assert_same_parameters(one, other, step=None, **tolerance):
    ours, theirs = one.hooked(step).state_dict(), other.hooked(step).state_dict()
    for name in ours:
        torch.testing.assert_close(ours[name], theirs[name], **tolerance)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return train(spec_of(), tmp_path_factory.mktemp("clamps") / "whole")


@pytest.mark.parametrize("killed_at", [12, 20])
def test_a_killed_run_continues_bit_for_bit(killed_at, whole, tmp_path):
    def kill(progress):
        if progress.step >= killed_at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(spec_of(), tmp_path / "run", report=kill)
    continued = train(spec_of(), tmp_path / "run")
    assert contents(continued.path) == contents(whole.path)


@pytest.mark.full
def test_many_seeds_at_once_are_the_same_as_one_at_a_time(whole, tmp_path):
    together = train_together([spec_of(0), spec_of(1)], [tmp_path / "0", tmp_path / "1"])
    for run, alone in zip(together, [whole, train(spec_of(1), tmp_path / "alone")], strict=True):
        assert_same_parameters(run, alone, atol=1e-5, rtol=0)
        for name in ("clamped_train_loss", "train_loss"):
            assert abs(run.metrics()[name] - alone.metrics()[name]).max() < 1e-5


def test_metrics_are_of_the_free_model_and_of_the_clamped_one(whole):
    metrics = whole.metrics().sel(step=[0, 8, 12, 24])
    free, clamped = metrics.train_loss.values, metrics.clamped_train_loss.values
    assert (abs(free - clamped) > 1e-6).all()
    assert {name.removeprefix("clamped_") for name in whole.metrics() if name.startswith("clamped_")} == {
        name for name in whole.metrics() if not name.startswith("clamped_")
    }


def test_until_it_starts_a_clamp_changes_no_bit_and_afterwards_training_is_free_again(tmp_path):
    clamped = train(spec_of(texts=["L0H1=zero from 8 to 12"]), tmp_path / "clamped")
    free = train(replace(spec_of(texts=[]), preset="free"), tmp_path / "free")
    for step in (0, 8):
        assert_same_parameters(clamped, free, step, atol=0, rtol=0)
    assert not torch.equal(clamped.hooked(12).embed.W_E, free.hooked(12).embed.W_E)
    metrics = clamped.metrics()
    apart = abs(metrics.train_loss - metrics.clamped_train_loss).values
    assert [bool(each) for each in apart > 0] == [False, False, True, False, False, False, False]


def test_a_removed_head_gets_no_gradient(tmp_path):
    run = train(spec_of(texts=["L1H0=zero"]), tmp_path / "run")
    before, after = run.hooked(0).blocks[1].attn, run.hooked().blocks[1].attn
    assert torch.equal(before.W_V[0], after.W_V[0])
    assert not torch.equal(before.W_V[1], after.W_V[1])


# ---- what is refused before training


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("L2H0=zero", "the layer of site L2H0 must be from 0 to 1; got 2"),
        ("L0H5=zero", "the head of site L0H5 must be from 0 to 1; got 5"),
        ("L0 post neuron 99=zero", "the neuron of site"),
        ("L0 resid_mid pos 40=zero", "a position of site L0 resid_mid pos 40 must be from -9 to 8; got 40"),
        ("L0 resid_mid pos nowhere=zero", "the name or the latent that gives the position .* must be one of"),
        ("L7 W_in=zero", "has no parameter blocks.7.mlp.W_in"),
        ("L0H0 pattern=pattern previous", "the pattern of a clamp must be one of: .*the nearest: previous token"),
        ("ideal perfection", "an ideal part of lookup-with-parts must be one of: previous, match, copy"),
        ("ideal too wide", "the clamp ideal too wide does not fit its place"),
        ("ideal backwards", "reads L1 z, which comes later in the forward pass"),
        ("L0H0=patch L1H1", "reads L1H1, which comes later in the forward pass"),
        ("L0H0 q=patch L0H0 k", "reads L0H0 k, which comes later"),
        ("L0 attn_out=patch L0 z", "copies from all heads; name one, such as L0H1 z"),
        ("L0 pattern=patch L0 resid_pre", "copies between activations of unlike axes"),
        ("L1 attn_out pos 2=patch L0 mlp_out pos (1, 3)", "a patch takes one position, or as many as the place names"),
        ("L1 resid_post pos 3=zero", "reaches nothing: with it the scored outputs of 64 sequences stay the same"),
        ("L0H1=scale 1.0", "reaches nothing"),
        ("L0 W_in=rank 99", "reaches nothing"),
    ],
)
def test_a_clamp_that_cannot_work_is_refused(text, message, tmp_path):
    with pytest.raises(InputError, match=message):
        train(spec_of(texts=[text]), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_what_the_architecture_holds_is_not_held_again():
    held = spec_of(texts=["W_E=hold"], more={"model.embeddings": "frozen"})
    with pytest.raises(InputError, match=r"the architecture holds embed.W_E already"):
        check_clamps(held)


def test_a_knockout_needs_a_softmax():
    with pytest.raises(InputError, match="needs a softmax, which attention does not have here"):
        check_clamps(spec_of(texts=["L0H1 scores key 0=knockout"], more={"model.softmax": False}))
