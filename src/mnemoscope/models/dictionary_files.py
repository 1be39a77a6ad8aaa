"""Files of dictionaries: our own, and those of SAELens and sparsify. Nothing is unpickled.

Ours is one safetensors file with the settings in the metadata and a digest of everything. The two others are
directories with `cfg.json` beside `sae_weights.safetensors` (SAELens) or `sae.safetensors` (sparsify). A dictionary
that was loaded gives the features and the reconstructions of the library that wrote it. What a `Dictionary` cannot
represent is refused.

SAELens names TransformerLens's hook points. sparsify names modules of transformers: an autoencoder of a module
reconstructs its output, and a transcoder of an MLP reads the input of that module. This input has the gain and the bias
of the normalisation in it, which `mlp_in` has not, so that both are moved into the encoder and the skip connection.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from mnemoscope.core.dictionary import Dictionary, ReadKind
from mnemoscope.core.errors import InputError, one_of
from mnemoscope.core.protocols import ModelLike, norm_gain, resolve_model
from mnemoscope.models.checkpoint import read_tensors, write_tensors

_KIND = "dictionary"
_CONFIGURATION = "cfg.json"
_SAELENS, _SPARSIFY = "sae_weights.safetensors", "sae.safetensors"
ARCHITECTURES = ("standard", "topk", "jumprelu", "transcoder", "skip_transcoder", "jumprelu_transcoder")
"""SAELens's architectures that are read."""
_HOOK = re.compile(
    r"blocks\.(?P<layer>\d+)\.(?:hook_(?P<kind>resid_pre|resid_mid|resid_post|attn_out|mlp_out|mlp_in)"
    r"|(?P<normalized>ln2\.hook_normalized))"
)
_MODULE = re.compile(r"(?:(?:model|transformer|gpt_neox)\.)*(?:layers|h)\.(?P<layer>\d+)(?:\.(?P<part>\w+))?")
_PARTS: dict[str | None, ReadKind] = {
    None: "resid_post", "mlp": "mlp_out", "attn": "attn_out", "attention": "attn_out", "self_attn": "attn_out"
}  # fmt: skip


def save_dictionary(dictionary: Dictionary, path: Path) -> None:
    """Write a dictionary to a safetensors file, in one move.

    >>> eye = torch.eye(2)
    >>> parts = {"w_enc": eye, "b_enc": torch.zeros(2), "w_dec": eye, "b_dec": torch.zeros(2)}
    >>> found = ms.Dictionary(name="identity", layer=0, reads="mlp_out", writes="mlp_out", **parts)
    >>> ms.save_dictionary(found, Path("identity.safetensors"))
    >>> ms.load_dictionary(Path("identity.safetensors")) == found
    True
    """
    tensors = {name: value.clone() for name, value in dictionary.tensors.items()}  # tied weights share memory
    write_tensors(Path(path), tensors, {"kind": _KIND, "settings": json.dumps(dictionary.settings)})


def load_dictionary(
    path: Path, *, name: str | None = None, hook: str | None = None, model: ModelLike | None = None
) -> Dictionary:
    """The dictionary of a file of `save_dictionary`, or of a directory of SAELens or sparsify.

    Args:
        path: The file, or the directory.
        name: Name in results; None: that of our file, or the name of the directory.
        hook: For a directory, the hook point or module that was read, such as `blocks.8.hook_mlp_out` or
            `layers.8.mlp`; None: SAELens's configuration says it, and for sparsify the name of the directory does.
        model: The model that a transcoder of sparsify belongs to, whose normalisation is moved into the dictionary.

    Returns:
        The dictionary, in float32 unless the file is in float64.

    Raises:
        InputError: The file is missing, damaged or of another kind; or it has something that a `Dictionary` does not
            represent, such as another architecture, a normalisation of activations, or another hook point.

    >>> eye = torch.eye(2)
    >>> parts = {"w_enc": eye, "b_enc": torch.zeros(2), "w_dec": eye, "b_dec": torch.zeros(2)}
    >>> found = ms.Dictionary(name="one", layer=3, reads="resid_post", writes="resid_post", **parts)
    >>> ms.save_dictionary(found, Path("one.safetensors"))
    >>> ms.load_dictionary(Path("one.safetensors"), name="another").name
    'another'
    """
    path = Path(path)
    if not path.is_dir():
        tensors, metadata = read_tensors(path, _KIND)
        fields: dict[str, Any] = {**json.loads(metadata["settings"]), **tensors}
        found = Dictionary(**fields)
        return found if name is None else replace(found, name=name)
    configuration = _configuration(path)
    called, place = name or path.name, str(path)
    if (path / _SAELENS).exists():
        return _from_saelens(called, place, configuration, _weights(path / _SAELENS), hook)
    if (path / _SPARSIFY).exists():
        return _from_sparsify(called, place, configuration, _weights(path / _SPARSIFY), hook or path.name, model)
    raise InputError(f"{path} holds neither {_SAELENS} (SAELens) nor {_SPARSIFY} (sparsify); name the directory of one")


def _configuration(path: Path) -> dict[str, Any]:
    try:
        found = json.loads((path / _CONFIGURATION).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path / _CONFIGURATION} cannot be read: {error.strerror}") from None
    except ValueError:
        raise InputError(f"{path / _CONFIGURATION} is no JSON; restore it") from None
    if not isinstance(found, dict):
        raise InputError(f"{path / _CONFIGURATION} must be a mapping; got a {type(found).__name__}")
    return found


def _weights(file: Path) -> dict[str, Tensor]:
    try:
        found = load_file(file)
    except (OSError, SafetensorError) as error:
        raise InputError(f"{file} is truncated or no safetensors file ({error}); restore it") from None
    return {name: value if value.dtype == torch.float64 else value.float() for name, value in found.items()}


def _take(tensors: dict[str, Tensor], place: str, *names: str) -> list[Tensor]:
    """The tensors of these names; raises InputError where one is missing, or there are others."""
    if missing := [name for name in names if name not in tensors]:
        raise InputError(f"{place} lacks {', '.join(missing)}: its encoder, decoder and biases must be there")
    if others := sorted(tensors.keys() - {*names}):
        raise InputError(f"{place} also holds {', '.join(others)}, which its architecture has not; it cannot be read")
    return [tensors[name].contiguous() for name in names]


def _from_saelens(
    name: str, place: str, cfg: dict[str, Any], tensors: dict[str, Tensor], hook: str | None
) -> Dictionary:
    """The names of options before version 6 are read too; they had the hook point outside `metadata`."""
    old = {"hook_point": "hook_name", "hook_point_head_index": "hook_head_index", "activation_fn_str": "activation_fn"}
    cfg = {**{old.get(key, key): value for key, value in cfg.items()}, **(cfg.get("metadata") or {})}
    arguments = cfg.get("activation_fn_kwargs") or {}
    function, k = cfg.get("activation_fn", "relu"), cfg.get("k", arguments.get("k"))
    architecture = "topk" if function == "topk" and k is not None else cfg.get("architecture") or "standard"
    one_of(f"the architecture of {place}", architecture, ARCHITECTURES)
    one_of(f"the activation function of {place}", function, ("relu", "topk"))
    _refuse_options(place, cfg)
    if architecture == "topk" and k is None:
        raise InputError(f"{place} must name k, the number of active features; its configuration does not")
    if (scale := tensors.pop("scaling_factor", None)) is not None and (scale != 1).any():
        raise InputError(f"{place} has factors of finetuning, which cannot be represented; take it without finetuning")
    transcoder, jumps = architecture.endswith("transcoder"), architecture.startswith("jumprelu")
    extra = [*(["threshold"] if jumps else []), *(["W_skip"] if architecture == "skip_transcoder" else [])]
    w_enc, b_enc, w_dec, b_dec, *more = _take(tensors, place, "W_enc", "b_enc", "W_dec", "b_dec", *extra)
    w_enc = w_enc.T.contiguous()
    if architecture == "topk" and cfg.get("rescale_acts_by_decoder_norm"):
        norm = w_dec.norm(dim=-1)
        w_enc, b_enc, w_dec = w_enc * norm[:, None], b_enc * norm, w_dec / norm[:, None]
    layer, reads = _place_of(hook or str(cfg.get("hook_name")), place)
    writes = reads
    if transcoder:
        layer_out, writes = _place_of(str(cfg.get("hook_name_out") or f"blocks.{layer}.hook_mlp_out"), place)
        if layer_out != layer:
            raise InputError(f"{place} reads layer {layer} and writes layer {layer_out}; a dictionary has one layer")
    centred = not transcoder and cfg.get("apply_b_dec_to_input", True)
    return Dictionary(
        **{"name": name, "layer": layer, "reads": reads, "writes": writes},
        **{"w_enc": w_enc, "b_enc": b_enc, "w_dec": w_dec, "b_dec": b_dec, "centre": b_dec if centred else None},
        skip=more[-1] if "W_skip" in extra else None,
        activation="jumprelu" if jumps else "topk" if architecture == "topk" else "relu",
        k=int(k) if architecture == "topk" and k is not None else None,
        threshold=more[0].clamp(min=0) if jumps else None,  # SAELens multiplies what exceeds it with a ReLU
    )


def _refuse_options(place: str, cfg: Mapping[str, Any]) -> None:
    """Refuse options of SAELens that a `Dictionary` cannot represent."""
    if (kind := cfg.get("normalize_activations")) not in (None, False, "none"):
        raise InputError(
            f"{place} normalises activations ({kind}), which cannot be represented; fold the factor into the weights "
            "and set normalize_activations to none"
        )
    if cfg.get("reshape_activations") == "hook_z" or cfg.get("hook_head_index") is not None:
        raise InputError(f"{place} reads z of attention heads, which dictionaries here do not; take one of attn_out")


def _from_sparsify(
    name: str, place: str, cfg: Mapping[str, Any], tensors: dict[str, Tensor], hook: str, model: ModelLike | None
) -> Dictionary:
    activation, transcode = cfg.get("activation", "topk"), bool(cfg.get("transcode"))
    one_of(f"the activation of {place}", activation, ("topk", "groupmax"))
    if cfg.get("signed") or "k" not in cfg:
        raise InputError(f"{place} must name k and have no signed features; other ones cannot be represented")
    skips = bool(cfg.get("skip_connection"))
    names = ["encoder.weight", "encoder.bias", "W_dec", "b_dec", *(["W_skip"] if skips else [])]
    w_enc, b_enc, w_dec, b_dec, *more = _take(tensors, place, *names)
    layer, writes = _place_of(hook, place)
    reads: ReadKind = "mlp_in" if transcode else writes
    if transcode and writes != "mlp_out":
        raise InputError(f"{place} is a transcoder of {hook}; only those of an MLP, layers.{layer}.mlp, are read")
    found = Dictionary(
        **{"name": name, "layer": layer, "reads": reads, "writes": writes},
        **{"w_enc": w_enc, "b_enc": b_enc, "w_dec": w_dec, "b_dec": b_dec, "centre": None if transcode else b_dec},
        skip=more[0] if more else None,
        activation=activation,
        k=int(cfg["k"]),
    )
    return _before_gain(found, place, model) if transcode else found


def _before_gain(found: Dictionary, place: str, model: ModelLike | None) -> Dictionary:
    """A dictionary of the MLP's input as one of the normalised stream: gain and bias go into encoder and skip."""
    if model is None:
        raise InputError(f"{place} reads the input of an MLP after gain and bias of its normalisation; give model= too")
    model = resolve_model(model)
    if model.cfg.normalization_type is None:
        return found
    norm = getattr(model.blocks[found.layer], "ln2", None)
    if getattr(norm, "w", None) is None:
        raise InputError(f"the model of {place} has its gain folded into the MLP; load it with fold_ln=False")
    gain = norm_gain(norm).detach().to(found.w_enc)
    bias = gain.new_zeros(len(gain)) if getattr(norm, "b", None) is None else norm.b.detach().to(gain)  # pyright: ignore
    skip = found.skip
    return replace(
        found,
        w_enc=found.w_enc * gain,
        b_enc=found.b_enc + found.w_enc @ bias,
        skip=None if skip is None else skip * gain,
        b_dec=found.b_dec if skip is None else found.b_dec + skip @ bias,
    )


def _place_of(hook: str, place: str) -> tuple[int, ReadKind]:
    """Layer and kind of a hook point of TransformerLens, or of the output of a module of transformers."""
    if found := _HOOK.fullmatch(hook):
        kind = "mlp_in" if found["normalized"] else {"mlp_in": "resid_mid"}.get(found["kind"], found["kind"])
        return int(found["layer"]), cast("ReadKind", kind)
    if (found := _MODULE.fullmatch(hook)) and found["part"] in _PARTS:
        return int(found["layer"]), _PARTS[found["part"]]
    raise InputError(
        f"{place} is of {hook!r}; dictionaries are of hook points such as blocks.8.hook_mlp_out or "
        "blocks.8.ln2.hook_normalized, or of modules such as layers.8, layers.8.mlp or h.8.attn: say it with hook="
    )
