"""Phases and onsets of planted trajectories, and the ways from one head to the other."""

import numpy as np
import pytest
import xarray as xr

from mnemoscope import InputError
from mnemoscope.systems.markov.analyses.course import (
    halfway,
    in_order,
    nearest,
    onset,
    phases,
    simpler_first,
    tracked,
    trajectory,
)
from mnemoscope.systems.markov.analyses.distances import compared, prompts
from mnemoscope.systems.markov.analyses.paths import first_head_paths
from mnemoscope.systems.markov.constructed import bigram_circuit
from mnemoscope.systems.markov.tasks import MarkovChains

TASK = MarkovChains(length=30)
STEPS = [0, 100, 200, 300]
PLANTED = xr.Dataset(
    {
        "kl_uniform": ("step", [0.0, 0.1, 0.2, 0.3]),
        "kl_unigram": ("step", [0.1, 0.0, 0.1, 0.2]),
        "kl_bigram": ("step", [0.2, 0.1, 0.0, 0.0]),
        "closed": ("step", [0.0, 0.0, 0.6, 1.0]),
    },
    coords={"step": STEPS},
)
NAMES = ("uniform", "unigram", "bigram")


def test_phases_are_runs_of_the_nearest_predictor():
    assert phases(PLANTED, NAMES) == [("uniform", 0, 0), ("unigram", 100, 100), ("bigram", 200, 300)]
    assert in_order(nearest(PLANTED, NAMES), NAMES)
    assert not in_order(["uniform", "unigram", "uniform", "bigram"], NAMES)
    assert simpler_first(TASK) == NAMES
    assert simpler_first(MarkovChains(order=2))[-1] == "trigram"


def test_onsets_lie_between_checkpoints_and_never_is_after_the_last():
    assert onset(PLANTED, "closed", 0.3) == pytest.approx(150)
    assert onset(PLANTED, "closed", 1.5) == 301
    assert halfway(PLANTED, "closed", before=150) == pytest.approx(100 + 100 * 0.5 / 0.6)
    with pytest.raises(InputError, match="there is no trajectory of this run"):
        tracked(None, "closed")
    with pytest.raises(InputError, match="a measure of the trajectory must be one of: kl_uniform"):
        onset(PLANTED, "previous", 0.5)


def test_a_checkpoint_has_what_claims_read():
    found = trajectory(bigram_circuit(TASK), TASK, seed=0, n=16)
    names = {"closed", "gap", "previous", "successors", "closed_previous", "closed_successors"}
    assert set(found.data_vars) == names | {f"kl_{name}" for name in NAMES}
    assert all(np.isfinite(value) for value in found.values())
    finite = MarkovChains(length=30, n_chains=4, chains_seed=0)
    known = trajectory(bigram_circuit(finite), finite, seed=0, n=16)
    assert {"known_kl_bigram_retrieval", "kl_unigram_retrieval"} <= set(known.data_vars)
    assert "closed_previous" not in trajectory(bigram_circuit(TASK), MarkovChains(length=30, order=2), seed=0, n=16)


def test_the_first_head_is_read_through_keys_alone():
    found = first_head_paths(bigram_circuit(TASK), TASK, prompts(TASK, 0, 32))
    assert float(found.sel(way="k")) > 0.3
    assert float(abs(found.drop_sel(way="k")).max()) < 1e-6


def test_predictors_are_computed_once_for_all_checkpoints(monkeypatch):
    task, seen, known = MarkovChains(length=30, n_chains=4, chains_seed=1), [], MarkovChains.reference
    monkeypatch.setattr(MarkovChains, "reference", lambda *given: seen.append(given[2]) or known(*given))
    first, again = (trajectory(bigram_circuit(task), task, seed=3, n=16) for _ in range(2))
    assert sorted(seen) == sorted(2 * compared(task))
    xr.testing.assert_identical(first, again)
