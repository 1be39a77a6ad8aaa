"""Dictionaries in files: ours, and those of SAELens and sparsify, beside what these libraries compute."""

import json
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file

from mnemoscope.core.dictionary import Dictionary
from mnemoscope.core.errors import InputError
from mnemoscope.models.dictionary_files import load_dictionary, save_dictionary
from tests.support import seeded

D_IN, N = 8, 12


def normal(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=seeded(seed), dtype=torch.float32)


X = normal(5, 3, D_IN, seed=9)


def small(**changes) -> Dictionary:
    parts = {"w_enc": normal(N, D_IN, seed=0), "b_enc": normal(N, seed=1), "w_dec": normal(N, D_IN, seed=2)}
    place = {"name": "small", "layer": 1, "reads": "mlp_in", "writes": "mlp_out"}
    return Dictionary(**{**place, **parts, "b_dec": normal(D_IN, seed=3), **changes})


def test_our_file_gives_the_same_dictionary(tmp_path):
    whole = small(
        centre=normal(D_IN, seed=4), skip=normal(D_IN, D_IN, seed=5), activation="jumprelu", threshold=torch.ones(N)
    )
    for one in (small(), whole, small(activation="topk", k=3)):
        save_dictionary(one, tmp_path / "one.safetensors")
        assert load_dictionary(tmp_path / "one.safetensors") == one
    assert load_dictionary(tmp_path / "one.safetensors", name="two").name == "two"
    assert [file.name for file in tmp_path.iterdir()] == ["one.safetensors"]


def test_weights_that_share_memory_are_saved(tmp_path):
    tied = normal(N, D_IN, seed=0)
    save_dictionary(small(w_enc=tied, w_dec=tied), tmp_path / "one.safetensors")
    assert load_dictionary(tmp_path / "one.safetensors") == small(w_enc=tied, w_dec=tied)
    saelens(tmp_path / "theirs", {**NEW, **META, "architecture": "standard"})
    theirs = load_dictionary(tmp_path / "theirs")
    save_dictionary(theirs, tmp_path / "two.safetensors")
    assert load_dictionary(tmp_path / "two.safetensors") == theirs


def test_a_damaged_file_is_refused(tmp_path):
    file = tmp_path / "one.safetensors"
    save_dictionary(small(), file)
    content = file.read_bytes()
    file.write_bytes(content[:-4] + b"\x00\x00\x80\x3f")
    with pytest.raises(InputError, match="changed after"):
        load_dictionary(file)
    file.write_bytes(content[:-4])
    with pytest.raises(InputError, match="truncated"):
        load_dictionary(file)
    with pytest.raises(InputError, match="does not exist"):
        load_dictionary(tmp_path / "two.safetensors")


# ---- SAELens

NEW = {"d_in": D_IN, "d_sae": N, "dtype": "float32", "apply_b_dec_to_input": True, "normalize_activations": "none"}
META = {"metadata": {"sae_lens_version": "6.21.0", "hook_name": "blocks.2.hook_mlp_out", "hook_head_index": None}}
OLD = {"hook_name": "blocks.2.hook_resid_pre", "hook_layer": 2, "d_in": D_IN, "d_sae": N, "activation_fn_str": "relu"}
TRANSCODER = {
    **NEW,
    "apply_b_dec_to_input": False,
    "hook_name_out": "blocks.2.hook_mlp_out",
    "metadata": {"hook_name": "blocks.2.ln2.hook_normalized"},
}


def saelens(place, cfg, **changes):
    """A directory as SAELens writes it, and its tensors."""
    tensors = {
        "W_enc": normal(D_IN, N, seed=0),
        "b_enc": normal(N, seed=1),
        "W_dec": normal(N, D_IN, seed=2),
        "b_dec": normal(D_IN, seed=3),
        **changes,
    }
    place.mkdir(exist_ok=True)
    (place / "cfg.json").write_text(json.dumps(cfg))
    save_file({name: value for name, value in tensors.items() if value is not None}, place / "sae_weights.safetensors")
    return tensors


def keep_largest(values: torch.Tensor, k: int) -> torch.Tensor:
    """All but the k largest of each row as zero, one row at a time."""
    rows = values.reshape(-1, values.shape[-1]).clone()
    for row in rows:
        row[row.argsort(descending=True)[k:]] = 0
    return rows.view_as(values)


@pytest.mark.parametrize("subtract", [True, False])
def test_a_standard_autoencoder_of_saelens(tmp_path, subtract):
    t = saelens(tmp_path, {**NEW, **META, "architecture": "standard", "apply_b_dec_to_input": subtract})
    found = load_dictionary(tmp_path, name="mine")
    features = ((X - (t["b_dec"] if subtract else 0)) @ t["W_enc"] + t["b_enc"]).clamp(min=0)
    torch.testing.assert_close(found.encode(X), features)
    torch.testing.assert_close(found.reconstruct(X), features @ t["W_dec"] + t["b_dec"])
    assert (found.name, found.layer, found.reads, found.writes) == ("mine", 2, "mlp_out", "mlp_out")


def test_a_configuration_before_version_6(tmp_path):
    t = saelens(tmp_path, {**OLD, "normalize_activations": False}, scaling_factor=torch.ones(N))
    found = load_dictionary(tmp_path)
    torch.testing.assert_close(found.encode(X), ((X - t["b_dec"]) @ t["W_enc"] + t["b_enc"]).clamp(min=0))
    assert (found.layer, found.reads) == (2, "resid_pre")
    t = saelens(tmp_path, {**OLD, "activation_fn_str": "topk", "activation_fn_kwargs": {"k": 3}})
    expected = keep_largest((X - t["b_dec"]) @ t["W_enc"] + t["b_enc"], 3).clamp(min=0)
    torch.testing.assert_close(load_dictionary(tmp_path).encode(X), expected)


@pytest.mark.parametrize("rescale", [True, False])
def test_a_topk_autoencoder_of_saelens(tmp_path, rescale):
    cfg = {**NEW, **META, "architecture": "topk", "k": 4, "rescale_acts_by_decoder_norm": rescale}
    t = saelens(tmp_path, cfg)
    norm = t["W_dec"].norm(dim=-1) if rescale else torch.ones(N)
    features = keep_largest(((X - t["b_dec"]) @ t["W_enc"] + t["b_enc"]) * norm, 4).clamp(min=0)
    found = load_dictionary(tmp_path)
    torch.testing.assert_close(found.encode(X), features)
    torch.testing.assert_close(found.reconstruct(X), (features / norm) @ t["W_dec"] + t["b_dec"])


def test_a_jumprelu_autoencoder_of_saelens(tmp_path):
    threshold = normal(N, seed=6)  # negative ones too: SAELens multiplies by a ReLU
    t = saelens(tmp_path, {**NEW, **META, "architecture": "jumprelu"}, threshold=threshold)
    pre = (X - t["b_dec"]) @ t["W_enc"] + t["b_enc"]
    features = pre.clamp(min=0) * (pre > threshold)
    found = load_dictionary(tmp_path)
    torch.testing.assert_close(found.encode(X), features)
    assert 0 < (features > 0).sum() < (pre > 0).sum()


@pytest.mark.parametrize("architecture", ["transcoder", "skip_transcoder", "jumprelu_transcoder"])
def test_transcoders_of_saelens(tmp_path, architecture):
    extra = {"skip_transcoder": {"W_skip": normal(D_IN, D_IN, seed=7)}}.get(architecture, {})
    extra |= {"jumprelu_transcoder": {"threshold": normal(N, seed=6).abs()}}.get(architecture, {})
    t = saelens(tmp_path, {**TRANSCODER, "architecture": architecture}, **extra)
    pre = X @ t["W_enc"] + t["b_enc"]
    features = pre.clamp(min=0) * (pre > extra.get("threshold", torch.zeros(N)))
    found = load_dictionary(tmp_path)
    torch.testing.assert_close(found.encode(X), features)
    skip = X @ extra["W_skip"].T if "W_skip" in extra else 0
    torch.testing.assert_close(found.reconstruct(X), features @ t["W_dec"] + t["b_dec"] + skip)
    assert (found.layer, found.reads, found.writes) == (2, "mlp_in", "mlp_out")


@pytest.mark.parametrize(
    ("cfg", "tensors", "words"),
    [
        ({"architecture": "gated"}, {}, "must be one of: standard, .*; got 'gated'"),
        ({"architecture": "standard", "activation_fn": "tanh-relu"}, {}, "got 'tanh-relu'"),
        ({"normalize_activations": "layer_norm"}, {}, r"normalises activations \(layer_norm\)"),
        ({"normalize_activations": "constant_norm_rescale"}, {}, "constant_norm_rescale"),
        ({"normalize_activations": "expected_average_only_in"}, {}, "fold the factor"),
        ({"normalize_activations": True}, {}, "normalises"),
        ({"reshape_activations": "hook_z"}, {}, "z of attention heads"),
        ({"metadata": {"hook_name": "blocks.2.attn.hook_z"}}, {}, "is of 'blocks.2.attn.hook_z'"),
        ({"metadata": {}}, {}, "say it with hook="),
        ({}, {"scaling_factor": torch.full((N,), 2.0)}, "factors of finetuning"),
        ({}, {"r_mag": torch.ones(N)}, "also holds r_mag"),
        ({}, {"W_dec": None}, "lacks W_dec"),
        ({"architecture": "jumprelu"}, {}, "lacks threshold"),
        ({"architecture": "topk"}, {}, "must name k"),
        ({**TRANSCODER, "architecture": "transcoder", "hook_name_out": "blocks.3.hook_mlp_out"}, {}, "one layer"),
    ],
)
def test_options_of_saelens_that_cannot_be_represented(tmp_path, cfg, tensors, words):
    saelens(tmp_path, {**NEW, **META, **cfg}, **tensors)
    with pytest.raises(InputError, match=words) as refused:
        load_dictionary(tmp_path)
    assert "\n" not in str(refused.value)


# ---- sparsify


def sparsify(place, cfg, **changes):
    """A directory as sparsify writes it, and its tensors."""
    tensors = {
        "encoder.weight": normal(N, D_IN, seed=0),
        "encoder.bias": normal(N, seed=1),
        "W_dec": normal(N, D_IN, seed=2),
        "b_dec": normal(D_IN, seed=3),
        **changes,
    }
    place.mkdir(parents=True, exist_ok=True)
    cfg = {"expansion_factor": 32, "normalize_decoder": True, "num_latents": N, "k": 4, "d_in": D_IN, **cfg}
    (place / "cfg.json").write_text(json.dumps(cfg))
    save_file(tensors, place / "sae.safetensors")
    return tensors


def a_model(normalization, **norm):
    """Two blocks whose second normalisation has these weights."""
    cfg = SimpleNamespace(normalization_type=normalization)
    return SimpleNamespace(cfg=cfg, blocks=[SimpleNamespace(ln2=SimpleNamespace(**norm))] * 2, run_with_hooks=None)


PLACES = {
    "layers.8": "resid_post",
    "layers.8.mlp": "mlp_out",
    "transformer.h.8.mlp": "mlp_out",
    "h.8.attn": "attn_out",
    "gpt_neox.layers.8.mlp": "mlp_out",
    "gpt_neox.layers.8.attention": "attn_out",
    "model.layers.8": "resid_post",
    "model.layers.8.self_attn": "attn_out",
}


@pytest.mark.parametrize(("folder", "kind"), PLACES.items())
def test_an_autoencoder_of_sparsify(tmp_path, folder, kind):
    t = sparsify(tmp_path / folder, {"activation": "topk"})
    pre = ((X - t["b_dec"]) @ t["encoder.weight"].T + t["encoder.bias"]).clamp(min=0)
    found = load_dictionary(tmp_path / folder)
    torch.testing.assert_close(found.encode(X), keep_largest(pre, 4))
    torch.testing.assert_close(found.reconstruct(X), keep_largest(pre, 4) @ t["W_dec"] + t["b_dec"])
    assert (found.layer, found.reads, found.writes, found.name) == (8, kind, kind, folder)


def test_groups_of_sparsify(tmp_path):
    t = sparsify(tmp_path, {"activation": "groupmax"})
    pre = ((X - t["b_dec"]) @ t["encoder.weight"].T + t["encoder.bias"]).clamp(min=0)
    groups = [keep_largest(pre[..., start : start + 3], 1) for start in range(0, N, 3)]  # 4 groups of 3
    torch.testing.assert_close(load_dictionary(tmp_path, hook="layers.0").encode(X), torch.cat(groups, -1))


@pytest.mark.parametrize("skips", [True, False])
@pytest.mark.parametrize("normalization", ["LN", "RMS", None])
@pytest.mark.usefixtures("as_installed")
def test_a_transcoder_of_sparsify_reads_after_the_gain(tmp_path, skips, normalization):
    gain, bias = normal(D_IN, seed=10), normal(D_IN, seed=11)
    model = a_model(normalization, **{"LN": {"w": gain, "b": bias}, "RMS": {"w": gain}}.get(str(normalization), {}))
    extra = {"W_skip": normal(D_IN, D_IN, seed=7)} if skips else {}
    t = sparsify(tmp_path / "layers.1.mlp", {"transcode": True, "skip_connection": skips}, **extra)
    read = X if normalization is None else X * gain + (bias if normalization == "LN" else 0)
    features = keep_largest((read @ t["encoder.weight"].T + t["encoder.bias"]).clamp(min=0), 4)
    found = load_dictionary(tmp_path / "layers.1.mlp", model=model)
    torch.testing.assert_close(found.encode(X), features)
    written = features @ t["W_dec"] + t["b_dec"] + (read @ t["W_skip"].T if skips else 0)
    torch.testing.assert_close(found.reconstruct(X), written)
    assert (found.layer, found.reads, found.writes) == (1, "mlp_in", "mlp_out")


@pytest.mark.parametrize(
    ("folder", "cfg", "words"),
    [
        ("layers.1.mlp", {"transcode": True}, "give model="),
        ("layers.1", {"transcode": True}, "only those of an MLP"),
        ("layers.1", {"activation": "relu"}, "got 'relu'"),
        ("layers.1", {"signed": True}, "no signed features"),
        ("layers.1", {"skip_connection": True}, "lacks W_skip"),
        ("embed_tokens", {}, "is of 'embed_tokens'"),
        ("layers.1.mlp.up_proj", {}, "say it with hook="),
    ],
)
def test_options_of_sparsify_that_cannot_be_represented(tmp_path, folder, cfg, words):
    sparsify(tmp_path / folder, cfg)
    with pytest.raises(InputError, match=words) as refused:
        load_dictionary(tmp_path / folder)
    assert "\n" not in str(refused.value)


@pytest.mark.usefixtures("as_installed")
def test_a_folded_gain_is_refused(tmp_path):
    sparsify(tmp_path / "layers.0.mlp", {"transcode": True})
    with pytest.raises(InputError, match="fold_ln=False"):
        load_dictionary(tmp_path / "layers.0.mlp", model=a_model("LNPre"))


def test_a_directory_of_something_else_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"cfg\.json cannot be read"):
        load_dictionary(tmp_path)
    (tmp_path / "cfg.json").write_text("[1]")
    with pytest.raises(InputError, match="must be a mapping"):
        load_dictionary(tmp_path)
    (tmp_path / "cfg.json").write_text("{")
    with pytest.raises(InputError, match="no JSON"):
        load_dictionary(tmp_path)
    (tmp_path / "cfg.json").write_text("{}")
    with pytest.raises(InputError, match="neither"):
        load_dictionary(tmp_path)
    (tmp_path / "sae.safetensors").write_bytes(b"no")
    with pytest.raises(InputError, match="no safetensors file"):
        load_dictionary(tmp_path)
