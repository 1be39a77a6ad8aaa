"""Exchanges inside a subspace, and from another position of the source."""

from dataclasses import replace

import pytest
import torch

from mnemoscope.core.batch import Named
from mnemoscope.core.errors import InputError
from mnemoscope.core.intervention import Patch
from mnemoscope.core.site import Site
from mnemoscope.interventions.run import intervene, run_with
from tests.support import random_model, seeded, small_spec

TASK = small_spec().task
BATCH = replace(TASK, repeat_ratio=0.5).sample(20, split="train", generator=seeded(1))
OTHER = Named(name="other", value=replace(TASK, repeat_ratio=0.5).sample(20, split="train", generator=seeded(2)))
STREAM = Site(kind="resid_post", layer=0)
HEAD = Site(kind="z", layer=1, head=1)


def basis(rows: int, width: int, seed: int = 0) -> Named:
    return Named(name="directions", value=torch.randn(rows, width, generator=seeded(seed)))


def activation(model, batch, name):
    return model.run_with_cache(batch.inputs)[1][name]


def written(model, batch, hook, value):
    return model.run_with_hooks(batch.inputs, fwd_hooks=[(hook, lambda old, hook: value)])


def test_only_the_part_inside_is_taken_from_the_source():
    model, span = random_model(n_layers=2), basis(3, 8)
    ours, theirs = (activation(model, batch, STREAM.hook) for batch in (BATCH, OTHER.value))
    q = torch.linalg.qr(span.value.T).Q
    expected = written(model, BATCH, STREAM.hook, ours + (theirs - ours) @ q @ q.T)
    torch.testing.assert_close(
        run_with(model, BATCH, [Patch(site=STREAM, source=OTHER, basis=span)]), expected, atol=1e-5, rtol=1e-5
    )


@pytest.mark.parametrize("site", [STREAM, HEAD], ids=str)
def test_the_whole_space_is_the_whole_activation(site):
    model = random_model(n_layers=2)
    span = basis(9, 4 if site is HEAD else 8)  # more directions than dimensions
    inside, whole = (run_with(model, BATCH, [Patch(site=site, source=OTHER, basis=b)]) for b in (span, None))
    torch.testing.assert_close(inside, whole, atol=1e-4, rtol=1e-4)
    nothing = Named(name="nothing", value=torch.zeros(1, span.value.shape[1]))
    assert torch.equal(run_with(model, BATCH, [Patch(site=site, source=OTHER, basis=nothing)]), model(BATCH.inputs))


def test_a_subspace_of_one_head_leaves_the_others():
    model, span = random_model(n_layers=2), basis(2, 4)
    ours, theirs = (activation(model, batch, HEAD.hook) for batch in (BATCH, OTHER.value))
    q = torch.linalg.qr(span.value.T).Q
    expected = ours.clone()
    expected[:, -1, 1] += (theirs - ours)[:, -1, 1] @ q @ q.T
    patched = run_with(model, BATCH, [Patch(site=replace(HEAD, pos=-1), source=OTHER, basis=span)])
    torch.testing.assert_close(patched, written(model, BATCH, HEAD.hook, expected), atol=1e-5, rtol=1e-5)


def test_the_source_is_read_where_its_latent_lies():
    model = random_model(n_layers=2)
    ours, theirs = (activation(model, batch, STREAM.hook) for batch in (BATCH, OTHER.value))
    expected = ours.clone()
    places = zip(BATCH.latents["source_pos"].tolist(), OTHER.value.latents["source_pos"].tolist(), strict=True)
    moved = 0
    for row, (here, there) in enumerate(places):
        if here >= 0 and there >= 0:
            expected[row, here] = theirs[row, there]
            moved += here != there
    assert moved
    site = replace(STREAM, pos="source_pos")
    patched = run_with(model, BATCH, [Patch(site=site, source=OTHER, at="source_pos")])
    assert torch.equal(patched, written(model, BATCH, STREAM.hook, expected))
    fixed = run_with(model, BATCH, [Patch(site=replace(STREAM, pos=2), source=OTHER, at=-1)])
    expected = ours.clone()
    expected[:, 2] = theirs[:, -1]
    assert torch.equal(fixed, written(model, BATCH, STREAM.hook, expected))


def test_directions_have_a_gradient():
    model, rows = random_model(n_layers=2, dtype="float64"), basis(2, 8).value.double()

    def loss(rows):
        patch = Patch(site=STREAM, source=OTHER, basis=Named(name="directions", value=rows))
        with intervene(model, BATCH, [patch]):
            return model(BATCH.inputs).log_softmax(-1)[:, -1, 1].sum()

    given = rows.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(given), given)
    step = 1e-6 * torch.randn(rows.shape, generator=seeded(3), dtype=torch.double)
    with torch.no_grad():
        difference = float(loss(rows + step) - loss(rows - step)) / 2
    assert difference == pytest.approx(float((gradient * step).sum()), rel=1e-4)


def test_values_are_named_and_compared():
    patch = Patch(site=HEAD, source=OTHER, at="source_pos", basis=basis(2, 4))
    assert patch == Patch(site=HEAD, source=OTHER, at="source_pos", basis=basis(2, 4))
    assert patch != Patch(site=HEAD, source=OTHER, at="source_pos", basis=basis(2, 4, seed=1))
    assert str(patch).startswith("L1H1 inside directions (")
    assert str(patch).endswith(") at pos source_pos")


PATTERN = Site(kind="pattern", layer=0)


@pytest.mark.usefixtures("as_installed")
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Patch(site=PATTERN, source=OTHER, basis=basis(2, 9)), "Patch inside a subspace needs a site that"),
        (lambda: Patch(site=PATTERN, source=OTHER, at=0), "at is a position; L0 pattern has a query and a key"),
        (
            lambda: Patch(site=HEAD, source=OTHER, basis=Named(name="d", value=torch.ones(4))),
            r"basis must be \(direction, width\); got shape \(4,\)",
        ),
        (
            lambda: Patch(site=Site(kind="post", layer=0, neuron=1), source=OTHER, basis=basis(1, 16)),
            "a subspace is of all neurons; leave neuron out of L0 post neuron 1",
        ),
        (
            lambda: run_with(random_model(n_layers=2), BATCH, [Patch(site=HEAD, source=OTHER, basis=basis(2, 8))]),
            "directions must be as wide as the site, 4; got 8",
        ),
        (
            lambda: run_with(random_model(), BATCH, [Patch(site=STREAM, source=OTHER, at=9)]),
            "at, a position in other must be from -9 to 8; got 9",
        ),
        (
            lambda: run_with(random_model(), BATCH, [Patch(site=STREAM, source=OTHER, at="mapping")]),
            "latent mapping must hold one number a sequence",
        ),
    ],
)
def test_what_cannot_be_exchanged_is_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()
