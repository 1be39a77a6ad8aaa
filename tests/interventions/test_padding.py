"""Sequences of different lengths: padding is not read, is not averaged, and is not drawn."""

import pytest
import torch

from mnemoscope import Batch, InputError, Mean, Named, PromptPairs, Resample, Site, Zero, run_with
from mnemoscope.analyses import head_scores
from mnemoscope.interventions.edge_states import replacement_outputs
from mnemoscope.interventions.measurement import SweepQuestion
from tests.support import random_model

HOOK = "blocks.0.attn.hook_z"
LENGTHS = (5, 3, 5, 4)
SITE = Site(kind="z", layer=0, head=1)


@pytest.fixture(scope="module")
def model():
    return random_model(n_layers=2)


def batch_of(rows, **fields):
    n_pos = max(map(len, rows))
    inputs = torch.tensor([[*row, *[0] * (n_pos - len(row))] for row in rows])
    lengths = torch.tensor([len(row) for row in rows])
    scored = torch.arange(n_pos) == lengths[:, None] - 1
    return Batch(inputs=inputs, targets=inputs, scored=scored, lengths=lengths, **fields)


@pytest.fixture(scope="module")
def rows():
    draw = torch.Generator().manual_seed(0)
    return [torch.randint(1, 6, (n,), generator=draw).tolist() for n in LENGTHS]


@torch.no_grad()
def test_what_is_real_does_not_see_the_padding(model, rows):
    batch = batch_of(rows)
    for interventions in ([], [Zero(site=SITE)]):
        found = run_with(model, batch, interventions)
        for i, row in enumerate(rows):
            alone = run_with(model, batch_of([row]), interventions)
            assert found[i, : len(row)].allclose(alone[0], atol=1e-6)


@torch.no_grad()
@pytest.mark.parametrize("over", ["batch", "position", "kind"])
def test_means_are_those_of_real_positions(model, rows, over):
    batch = batch_of(rows, known={"kind": torch.tensor([0, 0, 1, 1])})
    z = [model.run_with_cache(torch.tensor([row]), names_filter=HOOK)[1][HOOK][0, :, 1] for row in rows]
    everywhere = torch.cat(z).mean(0)

    def expected(i, pos):
        if over == "position":
            return everywhere
        alike = range(4) if over == "batch" else [(0, 1), (2, 3)][i // 2]
        return torch.stack([z[j][pos] for j in alike if len(rows[j]) > pos]).mean(0)

    def write(found, hook):
        found = found.clone()
        for i, row in enumerate(rows):
            for pos in range(len(row)):
                found[i, pos, 1] = expected(i, pos)
        return found

    by_hand = model.run_with_hooks(batch.inputs, fwd_hooks=[(HOOK, write)])
    found = run_with(model, batch, [Mean(site=SITE, source=Named(name="these", value=batch), over=over)])
    assert found[batch.real].allclose(by_hand[batch.real], atol=1e-5)


@torch.no_grad()
def test_means_of_patterns_have_rows_that_add_up_to_one(model, rows):
    batch = batch_of(rows)
    seen = {}
    mean = Mean(site=Site(kind="pattern", layer=0), source=Named(name="these", value=batch))
    look = [(HOOK.replace("z", "pattern"), lambda found, hook: seen.update(found=found))]
    with model.hooks(fwd_hooks=look):
        run_with(model, batch, [mean])
    of_real = seen["found"].sum(-1).movedim(1, 2)[batch.real]
    assert of_real.allclose(torch.ones_like(of_real))


@torch.no_grad()
def test_what_is_drawn_is_at_least_as_long(model, rows):
    batch = batch_of(rows)
    source = batch_of([rows[1], rows[0]])
    swapped = [Resample(site=SITE, source=Named(name="two", value=source))]
    of_longer = [Resample(site=SITE, source=Named(name="one", value=batch_of([rows[0]])))]
    long = torch.tensor([len(row) > 3 for row in rows])
    found, expected = (run_with(model, batch, each, seed=4) for each in (swapped, of_longer))
    assert found[long].allclose(expected[long], atol=1e-5)
    short = batch_of([rows[1]])
    padded = Batch(
        inputs=torch.cat((short.inputs, torch.zeros(1, 2, dtype=torch.long)), 1),
        targets=torch.zeros(1, 5, dtype=torch.long),
        scored=torch.ones(1, 5, dtype=torch.bool),
        lengths=torch.tensor([3]),
    )
    with pytest.raises(InputError, match="short has no sequence with as many tokens"):
        run_with(model, batch, [Resample(site=SITE, source=Named(name="short", value=padded))])


def test_means_that_would_take_in_padding_are_refused(model, rows):
    batch = batch_of(rows)
    with pytest.raises(InputError, match="the batch is padded"):
        head_scores(model, batch)
    question = SweepQuestion(model=model, pairs=PromptPairs(clean=batch, corrupted=batch, name="same"))
    with pytest.raises(InputError, match="these are padded"):
        replacement_outputs(question, "mean", 4)
