"""Models that are kept: the same as converted ones, converted anew where anything has changed, and never needed."""

import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import mnemoscope as ms
from mnemoscope.models.language import conversion, sources
from tests.language_models import KINDS, save, tokenizer, transformer

TEXT = "When John and Mary went to the store , John gave a drink to"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("MNEMOSCOPE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "language_models"


@pytest.fixture
def conversions(monkeypatch) -> list:
    """Grows by one whenever a source is read."""
    made, load = [], conversion.loaded

    def counted(source, *args):
        made.append(source)
        return load(source, *args)

    monkeypatch.setattr(conversion, "loaded", counted)
    return made


def same(one, other) -> bool:
    states = one.state_dict(), other.state_dict()
    return list(states[0]) == list(states[1]) and all(v.equal(states[1][n]) for n, v in states[0].items())


@torch.no_grad()
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_kept_model_is_the_converted_one(kind, dtype, tmp_path, cache, conversions):
    place = save(kind, tmp_path / "source")
    first, second = (ms.language_model(place, dtype=dtype) for _ in range(2))
    assert len(conversions) == 1
    assert len(list(cache.iterdir())) == 1
    assert same(first, second)
    configurations = [{**vars(model.cfg), "tokenizer_name": None} for model in (first, second)]
    assert configurations[0] == configurations[1]
    tokens = second.tokenizer(TEXT, return_tensors="pt").input_ids
    assert tokens.equal(first.tokenizer(TEXT, return_tensors="pt").input_ids)
    assert second(tokens).equal(first(tokens))
    assert first.to_tokens(TEXT).equal(second.to_tokens(TEXT))
    assert (second.training, second.W_E.requires_grad) == (False, first.W_E.requires_grad)
    if dtype == "float32":
        expected = transformer(kind)(tokens).logits.log_softmax(-1)
        assert (second(tokens).log_softmax(-1) - expected).abs().max() < 1e-3


def test_another_source_or_option_is_converted_by_itself(tmp_path, cache, conversions):
    place = save("gpt2", tmp_path / "source")
    ms.language_model(place)
    ms.language_model(place, n_ctx=8)
    ms.language_model(place, dtype="float16")
    assert ms.language_model(place, n_ctx=8).cfg.n_ctx == 8
    assert len(conversions) == 3
    other = ms.language_model(save("gpt2", place, seed=1))
    assert len(conversions) == 4
    assert other.W_E.equal(transformer("gpt2", 1).transformer.wte.weight)
    tokenizer().save_pretrained(place.with_name("copy"))
    for file in place.iterdir():
        (place.with_name("copy") / file.name).write_bytes(file.read_bytes())
    assert same(ms.language_model(place.with_name("copy")), other)
    assert len(conversions) == 4, "the content counts, not the path"


def test_another_version_of_what_converts_is_converted_anew(tmp_path, conversions, monkeypatch):
    place = save("gpt2", tmp_path / "source")
    ms.language_model(place)
    monkeypatch.setattr(sources, "version", lambda name: "another")
    ms.language_model(place)
    assert len(conversions) == 2


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "other"])
def test_a_damaged_file_is_converted_anew_and_replaced(damage, tmp_path, cache, conversions):
    place = save("llama", tmp_path / "source")
    first = ms.language_model(place)
    (file,) = cache.iterdir()
    content = file.read_bytes()
    flipped = content[:-40] + bytes([content[-40] ^ 1]) + content[-39:]
    file.write_bytes({"cut": content[:-100], "flipped": flipped, "empty": b"", "other": b"x" * 1000}[damage])
    assert same(ms.language_model(place), first)
    assert len(conversions) == 2
    assert same(ms.language_model(place), first)
    assert len(conversions) == 2


@pytest.mark.parametrize("why", ["switched off", "no directory", "full", "too large", "another tokenizer"])
def test_models_load_where_nothing_can_be_kept(why, tmp_path, conversions, monkeypatch):
    place = save("gpt2", tmp_path / "source")
    (tmp_path / "file").touch()
    match why:
        case "switched off":
            monkeypatch.setenv("MNEMOSCOPE_CACHE", "")
        case "no directory":
            monkeypatch.setenv("MNEMOSCOPE_CACHE", str(tmp_path / "file"))
        case "full":
            monkeypatch.setattr(sources.shutil, "disk_usage", lambda path: SimpleNamespace(free=1000))
        case "too large":
            monkeypatch.setattr(sources, "LARGEST", 1000)
        case _:
            monkeypatch.setattr(sources, "_tokenizer", lambda files: lambda text: SimpleNamespace(input_ids=[0]))
    assert same(*(ms.language_model(place) for _ in range(2)))
    assert len(conversions) == 2


def test_a_read_only_directory_is_no_error(tmp_path, monkeypatch):
    def refused(*_, **__):
        raise PermissionError(13, "Permission denied")

    place = save("gpt2", tmp_path / "source")
    expected = ms.language_model(place)
    monkeypatch.setattr(sources, "write_atomically", refused)
    assert same(ms.language_model(place), expected)


def test_several_loads_at_once_leave_one_whole_file(tmp_path, cache):
    place = save("gpt2", tmp_path / "source")
    model, target = ms.language_model(place), next(cache.iterdir())
    writers = [threading.Thread(target=sources.write_cached_model, args=(model, target)) for _ in range(4)]
    for writer in writers:
        writer.start()
    found = [sources.read_cached_model(target) for _ in range(5)]
    for writer in writers:
        writer.join()
    assert all(each is not None and same(each, model) for each in found)
    assert list(cache.iterdir()) == [target]


def test_a_name_on_the_hub_is_kept_by_its_commit(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda *_, **__: None)
    assert sources.cached_file("somebody/something", None) is None

    def cached(commit):
        found = tmp_path / "snapshots" / commit / "config.json"
        monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda *_, **__: str(found))
        return sources.cached_file("somebody/something", None)

    assert cached("one") == cached("one") != cached("two")


@pytest.mark.parametrize("source", ["a/b/c", "no such model", "/nowhere/model.gguf"])
def test_what_is_no_source_has_no_place(source):
    assert sources.cached_file(source, None) is None
