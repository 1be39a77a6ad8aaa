"""The packaged language model, loaded once a process."""

import pytest

import mnemoscope as ms


@pytest.fixture(scope="session")
def model():
    return ms.language_model()
