"""One thread, models that are trained once per session, and, where TYPECHECK is set, type checks at run time.

`make test-thorough` sets it: the annotations and shapes of the package are then checked at every call.
The package is imported inside the fixtures: pytest-xdist's controller reads this file too, and TransformerLens takes
ten seconds.
"""

import os

import hypothesis
import jaxtyping
import pytest
import torch

import tests.typecheck  # noqa: F401 (the hook names it)

pytest_plugins = ["pytester"]
if os.environ.get("TYPECHECK"):
    jaxtyping.install_import_hook("mnemoscope", "tests.typecheck.check")
torch.set_num_threads(1)
hypothesis.settings.register_profile("fixed", derandomize=True, deadline=None, max_examples=30, database=None)
hypothesis.settings.load_profile("fixed")


def _trained(directory, preset: str, **recipe):
    from mnemoscope.training.loop import train
    from tests.support import small_spec

    return train(small_spec(preset, changes={f"recipe.{k}": v for k, v in recipe.items()}), directory / "run")


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """A run of 60 steps on sequences with repeats: two heads, an MLP, not much learned."""
    return _trained(tmp_path_factory.mktemp("tiny"), "v3")


@pytest.fixture(scope="session")
def learned(tmp_path_factory):
    """A v1 that has learned elimination (about 3 s)."""
    return _trained(tmp_path_factory.mktemp("learned"), "v1", n_steps=800, warmup_steps=100, batch_size=256)


@pytest.fixture(scope="session")
def learned_v3(tmp_path_factory):
    """A v3 under the quick recipe (about 15 s): tests that use it are slow."""
    return _trained(tmp_path_factory.mktemp("learned_v3"), "v3", n_steps=3000, warmup_steps=100, batch_size=256)


@pytest.fixture
def planted():
    """The hand-set elimination model, anew for every test."""
    from mnemoscope.systems.tiny_recall.constructed import elimination_only

    return elimination_only()


@pytest.fixture
def pretrained(tmp_path, monkeypatch):
    """What `HookedTransformer.from_pretrained("gpt2")` gives where `gpt2` is a small local model; no network."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformer_lens import HookedTransformer
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    from tests.support import perturbed

    monkeypatch.chdir(tmp_path)
    words = Tokenizer(WordLevel({str(i): i for i in range(11)}, unk_token="0"))
    PreTrainedTokenizerFast(tokenizer_object=words, bos_token="0", eos_token="0").save_pretrained("gpt2")
    config = GPT2Config(vocab_size=11, n_positions=16, n_ctx=16, n_embd=8, n_layer=2, n_head=2)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        perturbed(GPT2LMHeadModel(config)).save_pretrained("gpt2")
        return HookedTransformer.from_pretrained("gpt2", device="cpu")


@pytest.fixture
def as_installed():
    """No type checks at run time, as for a user: the package's own validation answers."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
