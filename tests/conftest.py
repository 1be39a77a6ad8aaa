"""Type checks at run time for the whole package, one thread, and models that are trained once a session."""

import jaxtyping

import tests.typecheck  # noqa: F401 (the hook names it)

jaxtyping.install_import_hook("mnemoscope", "tests.typecheck.check")  # before the package is imported

import hypothesis  # noqa: E402
import pytest  # noqa: E402
import torch  # noqa: E402

from mnemoscope.models.run import Run  # noqa: E402
from mnemoscope.training.loop import train  # noqa: E402
from tests.support import elimination_model, small_spec  # noqa: E402

torch.set_num_threads(1)
hypothesis.settings.register_profile("fixed", derandomize=True, deadline=None, max_examples=30, database=None)
hypothesis.settings.load_profile("fixed")


@pytest.fixture(scope="session")
def tiny(tmp_path_factory) -> Run:
    """A run of 60 steps on sequences with repeats: two heads, an MLP, not much learned."""
    return train(small_spec(), tmp_path_factory.mktemp("tiny") / "run")


@pytest.fixture(scope="session")
def learned(tmp_path_factory) -> Run:
    """A v1 that has learned elimination (about 4 s)."""
    spec = small_spec("v1", changes={"recipe.n_steps": 800, "recipe.warmup_steps": 100, "recipe.batch_size": 256})
    return train(spec, tmp_path_factory.mktemp("learned") / "run")


@pytest.fixture(scope="session")
def learned_v3(tmp_path_factory) -> Run:
    """A v3 under the quick recipe (about 15 s): tests that use it are slow."""
    spec = small_spec("v3", changes={"recipe.n_steps": 3000, "recipe.warmup_steps": 100, "recipe.batch_size": 256})
    return train(spec, tmp_path_factory.mktemp("learned_v3") / "run")


@pytest.fixture
def planted():
    """The hand-set elimination model, anew for every test."""
    return elimination_model()


@pytest.fixture
def as_installed():
    """No type checks at run time, as for a user: the package's own validation answers."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
