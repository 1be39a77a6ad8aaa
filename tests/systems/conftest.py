"""Claims are tried on planted models, which takes minutes: these tests are slow, and so is their calibration."""

from pathlib import Path

import pytest

from tests.systems import on_trial

HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark the tests of claims below this folder."""
    for item in items:
        claims = "claims" in item.path.parts or item.path.stem in ("test_calibration", "test_nulls")
        if claims and item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session", autouse=True)
def controls_kept(common):
    """The controls of a claim are measured once a session, for its registration and for its own tests."""
    on_trial.STORE = common / "controls"
