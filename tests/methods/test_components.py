"""The spread of a measure by source, on values that are drawn with known spreads, and in a trial."""

import numpy as np
import pytest

import mnemoscope as ms
from mnemoscope.methods.components import SOURCES, by_source
from mnemoscope.methods.trial import _label

SPREAD = {"families": 0.2, "variants": 0.1, "noise": 0.05, "prompts": 0.03}


def drawn(rng: np.random.Generator, *, n_families: int, n_noise: int = 3) -> list[list[np.ndarray]]:
    """Values with `SPREAD`: families of three variants, all but the first with noise, two draws of prompts."""
    found = []
    for family in rng.normal(0, SPREAD["families"], n_families):
        circuits = []
        for number, variant in enumerate(rng.normal(0, SPREAD["variants"], 3)):
            noise = rng.normal(0, SPREAD["noise"], (n_noise, 1)) if number else np.zeros((1, 1))
            circuits.append(family + variant + noise + rng.normal(0, SPREAD["prompts"], (len(noise), 2)))
        found.append(circuits)
    return found


def test_planted_spreads_are_found():
    found = dict(zip(SOURCES, by_source(drawn(np.random.default_rng(0), n_families=2000)), strict=False))
    assert found == pytest.approx(SPREAD, rel=0.1)


def test_the_error_with_these_families_is_that_of_new_noise_and_prompts():
    rng = np.random.default_rng(1)
    claimed, means = [], []
    base = [[float(rng.normal(0, 0.3)) for _ in range(3)] for _ in range(8)]
    for _ in range(400):
        families = [
            [
                value
                + rng.normal(0, 0.05 * (number > 0), (3 if number else 1, 1))
                + rng.normal(0, 0.03, (3 if number else 1, 2))
                for number, value in enumerate(family)
            ]
            for family in base
        ]
        claimed.append(by_source(families)[-1])
        means.append(np.mean([np.mean([values.mean() for values in family]) for family in families]))
    assert np.sqrt(np.mean(np.square(claimed))) == pytest.approx(np.std(means), rel=0.12)


def test_one_draw_tells_nothing_of_prompts_and_noise():
    families, variants, noise, prompts, fixed = by_source([[np.array([[0.5]])], [np.array([[0.7]])]])
    assert families == pytest.approx(np.std([0.5, 0.7], ddof=1))
    assert np.isnan([variants, noise, prompts, fixed]).all()


def test_draws_of_noise_differ_and_stand_beside_each_other():
    tried = ms.methods.try_methods(["induction", "induction-noised"], ["eap", "random"], n=4, n_draws=2, n_noise=2)
    assert list(tried.children) == ["induction", "induction-noised", _label("induction-noised", 1)]
    scores = [tried[name].score.sel(finder="eap").values for name in list(tried.children)[1:]]
    assert not np.allclose(*scores)
    summary = ms.methods.summarise(tried)
    assert (summary.attrs["n_circuits"], summary.attrs["n_noise"]) == (2, 2)
    found = ms.methods.variance_components(tried)
    assert found.auroc.sel(source=["noise", "prompts"]).notnull().all()
    assert found.auroc.sel(source="families").isnull().all()
    family = [
        np.mean([tried[name].auroc.sel(finder="random", ranking="absolute").mean() for name in names])
        for names in (["induction"], list(tried.children)[1:])
    ]
    assert summary.auroc.sel(bound="mean", finder="random", ranking="absolute") == pytest.approx(np.mean(family))
