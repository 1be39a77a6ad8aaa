"""Claims are tried on planted models, which takes minutes: all of it is slow but the contract that each claim keeps."""

from pathlib import Path

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark what is below this folder."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent) and item.path.stem != "test_contract":
            item.add_marker(pytest.mark.slow)
