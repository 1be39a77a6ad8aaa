import json

import pytest
import torch

from mnemoscope.core.errors import InputError
from mnemoscope.models.checkpoint import load_checkpoint, read_tensors, save_checkpoint, write_tensors
from tests.engine.test_of_spec import ARCHITECTURES, TOKENS
from tests.support import flip, foreign_model, global_generators_untouched, random_model


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


@pytest.mark.parametrize("fields", [*ARCHITECTURES, {"dtype": "float64"}])
def test_logits_are_identical_after_a_round_trip(path, fields):
    model = random_model(**fields)
    save_checkpoint(model, path, step=3)
    again = load_checkpoint(path)
    assert torch.equal(again(TOKENS), model(TOKENS))
    assert {n: p.dtype for n, p in again.named_parameters()} == {n: p.dtype for n, p in model.named_parameters()}
    assert not again.training


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"attn_only": True, "act_fn": None, "positional_embedding_type": "rotary", "d_head": 4, "rotary_dim": 4},
        {"normalization_type": "RMS", "gated_mlp": True, "final_rms": True},
        {"normalization_type": None, "attn_scale": 2.0, "d_vocab_out": 7},
        {"attention_dir": "bidirectional", "parallel_attn_mlp": True, "dtype": "float64"},
        {"use_local_attn": True, "window_size": 3, "attn_types": ["global", "local"]},
        {"seed": 5, "n_key_value_heads": 1},
    ],
)
def test_a_model_made_elsewhere_survives(path, config):
    with torch.random.fork_rng(devices=[]):
        model = foreign_model(**config)
    save_checkpoint(model, path)
    with global_generators_untouched():
        again = load_checkpoint(path)
    assert torch.equal(again(TOKENS), model(TOKENS))
    assert again.cfg.to_dict() | {"seed": None} == model.cfg.to_dict() | {"seed": None}


def test_a_pretrained_model_survives_away_from_its_files(path, pretrained, monkeypatch):
    save_checkpoint(pretrained, path)
    monkeypatch.chdir("/")
    assert torch.equal(load_checkpoint(path)(TOKENS), pretrained(TOKENS))


def test_damage_is_refused(path):
    save_checkpoint(random_model(), path)
    flip(path, -5)
    with pytest.raises(InputError, match="was changed after it was written"):
        load_checkpoint(path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InputError, match="truncated"):
        load_checkpoint(path)


def test_weights_of_another_shape_are_refused(path):
    save_checkpoint(random_model(), path)
    tensors, metadata = read_tensors(path, "checkpoint")
    config = json.loads(metadata["configuration"])
    write_tensors(path, tensors, {**metadata, "configuration": json.dumps({**config, "d_vocab": 9})})
    with pytest.raises(InputError, match="the weights do not fit the configuration"):
        load_checkpoint(path)


def test_the_file_says_step_and_configuration(path):
    save_checkpoint(random_model(normalization="none"), path, step=12)
    metadata = read_tensors(path, "checkpoint")[1]
    assert metadata["step"] == "12"
    config = json.loads(metadata["configuration"])
    assert (config["d_model"], config["n_heads"], config["normalization_type"]) == (8, 2, None)
    assert not {"device", "seed"} & set(config)
