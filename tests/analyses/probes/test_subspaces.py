import numpy as np
import pytest
import torch
from scipy.linalg import sqrtm
from sklearn.linear_model import LogisticRegression

from mnemoscope.analyses.probe_rows import with_latent
from mnemoscope.analyses.subspaces import subspace
from mnemoscope.core.errors import InputError
from mnemoscope.core.site import Site
from mnemoscope.models.constructed import induction, induction_batch
from mnemoscope.systems.tiny_recall.constructed import store_and_match, store_and_match_circuit
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup
from tests.support import global_generators_untouched, random_model, seeded

TASK = PermutationLookup(repeat_ratio=0.5, split_seed=0)
BATCH = TASK.sample(400, split="all", generator=seeded(1))
SITE = Site(kind="resid_mid", layer=0, pos=-1)
SLOT = BATCH.latents["source_slot"]


def stream(model):
    return model.run_with_cache(BATCH.inputs)[1]["blocks.0.hook_resid_mid"][:, -1].double()


def erased(found, x):
    return x + found.inside(found.centre - x)


def test_leace_is_the_published_formula():
    model = random_model()
    x, found = stream(model), subspace(model, BATCH, "source_slot", site=SITE, n_shuffles=1)
    centred = (x - x.mean(0)).numpy()
    labels = torch.nn.functional.one_hot(SLOT).double().numpy()
    whitening = np.linalg.inv(np.real(sqrtm(centred.T @ centred / len(x))))
    image = whitening @ centred.T @ (labels - labels.mean(0))
    projection = np.linalg.inv(whitening) @ image @ np.linalg.pinv(image, rcond=1e-9) @ whitening
    torch.testing.assert_close(erased(found, x), x - torch.from_numpy(centred @ projection.T))
    assert len(found.basis) == 4


@pytest.mark.parametrize("method", ["leace", "means"])
def test_after_erasing_class_means_are_equal_and_no_linear_classifier_tells_them(method):
    model = random_model()
    x, found = stream(model), subspace(model, BATCH, "source_slot", site=SITE, method=method, n_shuffles=1)
    rest = erased(found, x)
    for slot in range(5):
        torch.testing.assert_close(rest[slot == SLOT].mean(0), x.mean(0))
    share = np.bincount(SLOT) / len(SLOT)
    probabilities = LogisticRegression(C=1e4, max_iter=5000).fit(rest, SLOT).predict_proba(rest)
    assert abs(probabilities - share).max() < 0.01
    torch.testing.assert_close(erased(found, rest), rest)  # a projection


def test_leace_changes_the_activation_least():
    model = random_model()
    x = stream(model)
    change = {
        method: (erased(subspace(model, BATCH, "source_slot", site=SITE, method=method), x) - x).square().sum()
        for method in ("leace", "means")
    }
    assert change["leace"] < 0.9 * change["means"]


@pytest.mark.parametrize("method", ["leace", "means", "probe"])
def test_it_is_a_projection_onto_the_basis(method):
    found = subspace(random_model(), BATCH, "source_slot", site=SITE, method=method, n_shuffles=3)
    for one in (found, *found.shuffled):
        torch.testing.assert_close(one.basis @ one.basis.T, torch.eye(4, dtype=torch.double))
        torch.testing.assert_close(one.reading @ one.basis.T, torch.eye(4, dtype=torch.double))
        torch.testing.assert_close(one.inside(one.basis), one.basis)
    assert len(found.shuffled) == 3
    assert not torch.allclose(found.basis, found.shuffled[0].basis)


def test_the_directions_of_a_probe_are_its_coefficients():
    model = random_model()
    x, found = stream(model), subspace(model, BATCH, "is_repeat", site=SITE, method="probe", n_shuffles=1)
    by_hand = LogisticRegression(max_iter=2000).fit((x - x.mean(0)) / x.std(0, correction=0), SLOT > 0)
    direction = torch.from_numpy(by_hand.coef_[0]) / x.std(0, correction=0)
    assert abs(float(found.basis[0] @ direction / direction.norm())) == pytest.approx(1)


@pytest.mark.parametrize("method", ["leace", "means"])
def test_a_number_has_no_covariance_with_what_is_left(method):
    model = random_model()
    x = stream(model)
    number = x @ torch.randn(8, generator=seeded(5), dtype=torch.double)
    found = subspace(model, with_latent(BATCH, "mine", number), "mine", site=SITE, method=method, n_shuffles=1)
    rest = erased(found, x)
    assert len(found.basis) == 1
    assert float((number - number.mean()) @ (rest - rest.mean(0)).norm(dim=1)) != 0
    torch.testing.assert_close((number - number.mean()) @ (rest - rest.mean(0)) / len(x), torch.zeros(8).double())
    with pytest.raises(InputError, match="steering needs classes"):
        found.mean_of(BATCH)


def test_the_subspace_of_the_repeated_slot_is_what_the_head_writes():
    """Head 1 of `store_and_match` writes into `source` and `repeat` and nothing else."""
    dims = store_and_match_circuit().dims
    site = Site(kind="result", layer=0, head=1, pos=-1)
    found = subspace(store_and_match(), BATCH, "source_slot", site=site, n_shuffles=1)
    written = found.basis.square().sum(0)
    assert float(written[dims["source"]] + written[dims["repeat"]]) == pytest.approx(2)
    assert len(found.basis) == 2


def test_the_seed_permutes_labels_and_the_global_generators_stay():
    with global_generators_untouched():
        one = subspace(random_model(), BATCH, "source_slot", site=SITE, n_shuffles=1, seed=1)
    again, other = (subspace(random_model(), BATCH, "source_slot", site=SITE, n_shuffles=1, seed=s) for s in (1, 2))
    assert torch.equal(one.shuffled[0].basis, again.shuffled[0].basis)
    assert not torch.equal(one.shuffled[0].basis, other.shuffled[0].basis)


def test_what_has_no_directions_is_refused():
    repeats = BATCH.select(BATCH.latents["is_repeat"])
    with pytest.raises(InputError, match="it takes 1"):
        subspace(random_model(), repeats, "is_repeat", site=SITE)
    batch = induction_batch(20, n_tokens=8, n_ctx=10, generator=seeded())
    with pytest.raises(InputError, match="do not vary with token"):
        subspace(induction(8, 10), batch, "token", site=Site(kind="z", layer=1, head=1))
    found = subspace(random_model(), repeats, "source_slot", site=SITE, n_shuffles=1)
    with pytest.raises(InputError, match="to steer from or to"):
        found.mean_of(BATCH)
