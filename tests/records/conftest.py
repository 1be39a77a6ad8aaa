from pathlib import Path

import pytest

from mnemoscope.models.run import find_runs
from tests.support import small_spec


@pytest.fixture(scope="session")
def learned_pair():
    """Two seeds of the zoo's v3, which has learned both skills."""
    return find_runs([Path("zoo:v3-quick")])[:2]


@pytest.fixture(scope="session")
def untrained_pair(trained_once):
    """Two seeds of a v3 after one step."""
    changes = {
        "recipe.n_steps": 1,
        "recipe.warmup_steps": 0,
        "recipe.metrics_every": 1,
        "recipe.checkpoint_steps": (0,),
        "recipe.save_every": 1,
    }
    return [trained_once(f"one-step/seed-{seed}", small_spec("v3", seed=seed, changes=changes)) for seed in (0, 1)]
