import pytest

from tests.systems.retrieval_prompts import tiny


@pytest.fixture(scope="session")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("tiny-models")


@pytest.fixture(scope="session", params=tiny.KINDS)
def model(request, place):
    """With a chat template."""
    return tiny.loaded(request.param, place)


@pytest.fixture(scope="session")
def llama(place):
    return tiny.loaded("llama", place)


@pytest.fixture(scope="session")
def base(place):
    """Without a chat template."""
    return tiny.loaded("gpt2", place, chat=False)
