import pytest
import torch
import xarray as xr

from mnemoscope.analyses.predictions import skill_targets
from mnemoscope.core.errors import InputError
from mnemoscope.core.intervention import Zero
from mnemoscope.core.site import Site
from mnemoscope.interventions.run import run_with
from mnemoscope.systems.in_context_bigrams.analyses.noise_or_context import (
    NOISE,
    OUTPUT,
    context_share,
    noise_and_output,
    removed,
    truncated,
)
from mnemoscope.systems.in_context_bigrams.constructed import noisy_induction
from mnemoscope.systems.in_context_bigrams.tasks import NoisyRecall
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup
from tests.support import random_model, reads_back, seeded

TASK = NoisyRecall(length=48, n_tokens=8, n_triggers=3)
BATCH = TASK.sample(96, split="test", generator=seeded())
REFERENCE = TASK.sample(96, split="test", generator=seeded(1))


def shown(batch):
    """Where a trigger stands whose output has followed it before."""
    inputs, trigger = batch.inputs, batch.latents["trigger"]
    output = batch.known["outputs"].gather(1, trigger.clamp(min=0))
    followed = torch.zeros_like(inputs, dtype=torch.bool)
    for t in range(1, inputs.shape[1]):
        before = (inputs[:, :t] == inputs[:, t : t + 1]) & (inputs[:, 1 : t + 1] == output[:, t : t + 1])
        followed[:, t] = before.any(1) & (trigger[:, t] >= 0)
    return followed


def test_both_are_looked_for_at_every_trigger_that_has_occurred():
    tokens = torch.tensor([[1, 8, 1, 4, 0, 1, 6]])
    batch = TASK.batch(tokens, triggers=torch.tensor([[0, 1, 2]]), outputs=torch.tensor([[5, 4, 7]]))
    found = noise_and_output(TASK, batch)
    assert list(found) == [NOISE, OUTPUT]
    for name, token in ((NOISE, 8), (OUTPUT, 4)):
        looked_for, where = found[name]
        assert where[0].nonzero()[:, 0].tolist() == [2, 5]  # 0 occurs once
        assert looked_for[where].tolist() == [token, token]


def test_the_share_is_of_the_two():
    table = xr.DataArray(
        [[0.3, 0.1, 0.5], [0.0, 0.0, 1.0]], coords=[("rank", [0, 1]), ("target", [NOISE, OUTPUT, "next"])]
    )
    share = context_share(table)
    assert float(share[0]) == pytest.approx(0.25)
    assert share.isnull().values.tolist() == [False, True]


@pytest.mark.parametrize(("place", "part"), [("mlp", "MLP"), ("head", "attention"), ("induction", None)])
def test_the_part_that_writes_the_noise_token_is_found(place, part):
    model = noisy_induction(8, 48, noise_in=place)
    found = removed(model, TASK, BATCH, reference=REFERENCE)
    gains = found.context_share - found.clean_context_share
    for component in ("attention", "MLP"):
        at = gains.sel(component=component)
        assert (at > 0.4).all() if component == part else (at < 0.01).all()
    known = shown(BATCH)[BATCH.latents["occurrence"] > 1].double().mean()
    if part:  # the output and the noise token alike, or noise alone where no output was shown
        assert float(found.clean_context_share) == pytest.approx(float(known) / 2, abs=0.01)
        zero = found.sel(kind="zero", component=part).context_share
        assert float(zero) > 0.99


def test_a_removal_is_the_intervention():
    model = random_model(n_layers=2, d_vocab=9, n_ctx=48)
    found = removed(model, TASK, BATCH, reference=REFERENCE, kinds=("zero",))
    for component, kind in (("attention", "attn_out"), ("MLP", "mlp_out")):
        probs = run_with(model, BATCH, [Zero(site=Site(kind=kind, layer=1))]).double().softmax(-1)
        for name, (tokens, where) in noise_and_output(TASK, BATCH).items():
            expected = probs.gather(-1, tokens[..., None])[..., 0][where].mean()
            at = found.probability.sel(kind="zero", component=component, target=name)
            assert float(at) == pytest.approx(float(expected), abs=1e-6)


def test_cuts_of_the_last_mlp(tmp_path):
    model = noisy_induction(8, 48)
    skills = skill_targets(BATCH, TASK.skills(BATCH))
    found = truncated(model, TASK, BATCH, besides=skills)
    assert found.weight.values.tolist() == ["L1 W_in", "L1 W_out", "L1 W_in + L1 W_out"]
    assert found.target.values.tolist() == ["in_context", "noise", "global", NOISE, OUTPUT]
    share = found.context_share.sel(weight="L1 W_out")
    assert share.sel(part="rest").values[1:] == pytest.approx([1, 1, 1], abs=0.01)  # of rank one
    assert share.sel(part="top").values[1:] == pytest.approx([float(found.clean_context_share)] * 3, abs=1e-4)
    step_by_step = found.context_share.sel(weight="L1 W_in", part="rest").values  # a component a trigger
    assert (step_by_step[1:] > step_by_step[:-1] + 0.1).all()
    assert reads_back(found, tmp_path / "cuts.nc")


@pytest.mark.parametrize(
    ("model", "task", "kinds", "named"),
    [
        (random_model(n_ctx=48, d_vocab=9), PermutationLookup(), ("mean",), "the task must be noisy-recall"),
        (random_model(n_ctx=48, d_vocab=9, mlp=False), TASK, ("mean",), "no MLP to remove"),
        (random_model(n_ctx=48, d_vocab=9), TASK, ("resample",), "kind must be one of: mean, zero"),
        (random_model(n_ctx=48, d_vocab=8), TASK, ("mean",), "take a model with more"),
    ],
)
@pytest.mark.usefixtures("as_installed")
def test_what_is_refused(model, task, kinds, named):
    with pytest.raises(InputError, match=named):
        removed(model, task, BATCH, reference=REFERENCE, kinds=kinds)
