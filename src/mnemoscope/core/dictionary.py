"""A dictionary of sparse features as a value: a sparse autoencoder, or a transcoder.

An encoder turns an activation x into features, few of which are active, and a decoder turns them into a reconstruction:

    pre = W_enc (x - centre) + b_enc,   features = activation(pre),   written = W_dec^T features + b_dec + skip x

A sparse autoencoder reconstructs what it reads (Bricken et al. 2023, "Towards monosemanticity"; Cunningham et al.
2023). A transcoder reads the input of an MLP and reconstructs its output (Dunefsky et al. 2024), with a linear skip
connection (Paulo et al. 2025) or without. Activation functions: ReLU; TopK, the k largest (Gao et al. 2024); JumpReLU,
all above the threshold of their feature (Rajamanoharan et al. 2024); GroupMax, the largest of each of k groups of
neighbours.

*Does not show* that a feature is a unit of the model: another dictionary of the same activations may have others.
"""

import hashlib
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from mnemoscope.core.errors import InputError, in_range, one_of
from mnemoscope.core.protocols import ModelConfig

ReadKind = Literal["resid_pre", "attn_out", "resid_mid", "mlp_in", "mlp_out", "resid_post"]
"""Activations that a dictionary can read, in the order in which a block computes them."""
READ_KINDS: tuple[ReadKind, ...] = get_args(ReadKind)
WriteKind = Literal["resid_pre", "attn_out", "resid_mid", "mlp_out", "resid_post"]
"""Activations that a dictionary can reconstruct."""
WRITE_KINDS: tuple[WriteKind, ...] = get_args(WriteKind)
FeatureActivation = Literal["relu", "topk", "jumprelu", "groupmax"]
FEATURE_ACTIVATIONS: tuple[FeatureActivation, ...] = get_args(FeatureActivation)


def activation_hook(kind: ReadKind, layer: int, cfg: ModelConfig) -> str:
    """The hook point at which a model has an activation that dictionaries read or write.

    Raises InputError where the model has no such layer, no MLP, or no such activation.
    """
    one_of("the activation of a dictionary", kind, READ_KINDS)
    in_range("the layer of a dictionary", layer, 0, cfg.n_layers - 1)
    if cfg.attn_only and kind.startswith("mlp"):
        raise InputError(f"the model has no MLP (attn_only), so that nothing is {kind}; take a model with one")
    stream = "resid_pre" if cfg.parallel_attn_mlp else "resid_mid"
    if kind == "resid_mid" != stream:
        raise InputError("the model has its MLP beside the attention, so that nothing is resid_mid; take resid_pre")
    if kind == "mlp_in":
        return f"blocks.{layer}." + ("ln2.hook_normalized" if cfg.normalization_type else f"hook_{stream}")
    return f"blocks.{layer}.hook_{kind}"


def activate(
    pre: Float[Tensor, "*rows feature"],
    activation: FeatureActivation,
    *,
    k: int | None = None,
    threshold: Float[Tensor, " feature"] | None = None,
) -> Float[Tensor, "*rows feature"]:
    """Features from what the encoder gives; `k` and `threshold` are as for a `Dictionary`."""
    features = pre.relu()
    if threshold is not None:
        return torch.where(pre > threshold, features, 0)
    if k is None:
        return features
    grouped = features.unflatten(-1, (k, -1)) if activation == "groupmax" else features
    values, places = grouped.topk(1 if activation == "groupmax" else k, dim=-1, sorted=False)
    return torch.zeros_like(grouped).scatter(-1, places, values).view_as(features)


@dataclass(frozen=True, kw_only=True, eq=False)
class Dictionary:
    """Sparse features of one activation of one layer. Do not change its tensors any more.

    Attributes:
        name: Name in results.
        layer: Number of the block, from 0.
        reads: What is encoded. `mlp_in` is the stream that the MLP reads: normalised, before gain and bias
            (`ln2.hook_normalized`); in a model without normalisation the stream itself.
        writes: What is reconstructed; the same for an autoencoder, `mlp_out` for a transcoder.
        w_enc: Weights of the encoder, a row a feature.
        b_enc: Biases of the encoder.
        w_dec: Directions that the features write, a row a feature.
        b_dec: What the reconstruction adds without any feature.
        centre: What is taken from an activation before it is encoded; None: nothing.
        skip: Linear map from what is read to what is written, added to the reconstruction; None: nothing.
        activation: `relu`, `topk`, `jumprelu` or `groupmax`.
        k: The number of features that can be active at once: for `topk`, and for `groupmax` the number of groups.
        threshold: For `jumprelu`: values up to here become 0; at least 0.

    >>> eye = torch.eye(2)
    >>> found = ms.Dictionary(
    ...     name="both signs", layer=0, reads="mlp_out", writes="mlp_out",
    ...     w_enc=torch.cat([eye, -eye]), b_enc=torch.zeros(4), w_dec=torch.cat([eye, -eye]), b_dec=torch.zeros(2),
    ... )
    >>> found.encode(torch.tensor([3.0, -1.0]))
    tensor([3., 0., 0., 1.])
    >>> found.decode(found.encode(torch.tensor([3.0, -1.0])))
    tensor([ 3., -1.])
    """

    name: str
    layer: int
    reads: ReadKind
    writes: WriteKind
    w_enc: Float[Tensor, "feature d_in"]
    b_enc: Float[Tensor, " feature"]
    w_dec: Float[Tensor, "feature d_out"]
    b_dec: Float[Tensor, " d_out"]
    centre: Float[Tensor, " d_in"] | None = None
    skip: Float[Tensor, "d_out d_in"] | None = None
    activation: FeatureActivation = "relu"
    k: int | None = None
    threshold: Float[Tensor, " feature"] | None = None

    def __post_init__(self) -> None:
        if not self.name:
            raise InputError("the name of a dictionary must not be empty; results are labelled by it")
        in_range("the layer of a dictionary", self.layer, 0, float("inf"))
        one_of("reads of a dictionary", self.reads, READ_KINDS)
        one_of("writes of a dictionary", self.writes, WRITE_KINDS)
        one_of("the activation of a dictionary", self.activation, FEATURE_ACTIVATIONS)
        if READ_KINDS.index(self.reads) > READ_KINDS.index(self.writes):
            raise InputError(
                f"a dictionary reads what comes first; {self.reads} comes after {self.writes}: exchange them"
            )
        self._check_shapes()
        self._check_activation()

    def _check_shapes(self) -> None:
        for name in ("w_enc", "w_dec"):
            if getattr(self, name).ndim != 2 or not len(getattr(self, name)):
                shape = tuple(getattr(self, name).shape)
                raise InputError(f"{name} of a dictionary must be a matrix with a row a feature; got shape {shape}")
        (n, d_in), d_out = self.w_enc.shape, self.w_dec.shape[1]
        sizes: dict[str, tuple[int, ...]] = {"w_enc": (n, d_in), "b_enc": (n,), "w_dec": (n, d_out), "b_dec": (d_out,)}
        sizes |= {"centre": (d_in,), "skip": (d_out, d_in), "threshold": (n,)}
        for name, value in self.tensors.items():
            if tuple(value.shape) != sizes[name]:
                raise InputError(
                    f"{name} of a dictionary must have shape {sizes[name]}, by {n} features of width {d_in} that write "
                    f"width {d_out}; got {tuple(value.shape)}"
                )
            if not value.is_floating_point() or not value.isfinite().all():
                raise InputError(
                    f"{name} of a dictionary must hold finite floats; got {value.dtype}, or NaN, or infinity"
                )
        if self.reads == self.writes and d_in != d_out:
            raise InputError(
                f"a dictionary that writes {self.writes}, as it reads, has one width; got {d_in} and {d_out}"
            )

    def _check_activation(self) -> None:
        for field, kinds in (("k", ("topk", "groupmax")), ("threshold", ("jumprelu",))):
            if (getattr(self, field) is not None) != (self.activation in kinds):
                needs = "needs" if self.activation in kinds else "has no"
                raise InputError(f"a dictionary of activation {self.activation} {needs} {field}")
        if self.k is not None:
            in_range("k of a dictionary", self.k, 1, self.n_features)
            if self.activation == "groupmax" and self.n_features % self.k:
                raise InputError(
                    f"k of groupmax must divide the {self.n_features} features into equal groups; got {self.k}"
                )
        if self.threshold is not None and (self.threshold < 0).any():
            raise InputError("threshold of a dictionary must be at least 0 everywhere: no feature is below 0")

    @property
    def n_features(self) -> int:
        """Number of features."""
        return len(self.w_enc)

    @property
    def d_in(self) -> int:
        """Width of what is read."""
        return self.w_enc.shape[1]

    @property
    def d_out(self) -> int:
        """Width of what is written."""
        return self.w_dec.shape[1]

    def hooks(self, cfg: ModelConfig) -> tuple[str, str]:
        """The hook points of a model that it reads and writes; raises InputError where it does not fit the model."""
        if (self.d_in, self.d_out) != (cfg.d_model, cfg.d_model):
            widths = f"{self.d_in} to {self.d_out}"
            raise InputError(
                f"{self.name} has width {widths} and the model {cfg.d_model}; take the model that it is of"
            )
        read, written = (activation_hook(kind, self.layer, cfg) for kind in (self.reads, self.writes))
        return read, written

    @property
    def tensors(self) -> dict[str, Tensor]:
        """Its tensors by field; those that are None are left out."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if isinstance(value, Tensor)}

    @property
    def settings(self) -> dict[str, Any]:
        """Its other fields."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name not in _TENSORS}

    @cached_property
    def digest(self) -> str:
        """Eight hexadecimal digits of a hash of everything but the name."""
        content = hashlib.sha256(repr({**self.settings, "name": ""}).encode())
        for name, value in self.tensors.items():
            content.update(repr((name, tuple(value.shape), value.dtype)).encode())
            content.update(value.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
        return content.hexdigest()[:8]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Dictionary) and (self.name, self.digest) == (other.name, other.digest)

    def __hash__(self) -> int:
        return hash((self.name, self.digest))

    def __str__(self) -> str:
        path = self.reads if self.reads == self.writes else f"{self.reads} to {self.writes}"
        return f"{self.name}: {self.n_features} features of L{self.layer} {path} ({self.digest})"

    def __repr__(self) -> str:
        return f"Dictionary({self})"

    def encode(self, x: Float[Tensor, "*rows d_in"]) -> Float[Tensor, "*rows feature"]:
        """The features of activations; never negative, and exactly 0 where a feature is not active."""
        pre = torch.nn.functional.linear(x if self.centre is None else x - self.centre, self.w_enc, self.b_enc)
        return activate(pre, self.activation, k=self.k, threshold=self.threshold)

    def decode(
        self, features: Float[Tensor, "*rows feature"], x: Float[Tensor, "*rows d_in"] | None = None
    ) -> Float[Tensor, "*rows d_out"]:
        """The reconstruction from features; a skip connection also needs what was read.

        Raises InputError where it is missing.
        """
        written = features @ self.w_dec + self.b_dec
        if self.skip is None:
            return written
        if x is None:
            raise InputError(
                f"{self.name} has a skip connection: decode(features, x) needs the activation x that was read"
            )
        return written + torch.nn.functional.linear(x, self.skip)

    def reconstruct(self, x: Float[Tensor, "*rows d_in"]) -> Float[Tensor, "*rows d_out"]:
        """Activations encoded, then decoded."""
        return self.decode(self.encode(x), x)

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> "Dictionary":
        """The same dictionary on another device or in another precision."""
        return replace(self, **{name: value.to(device, dtype) for name, value in self.tensors.items()})


_TENSORS = ("w_enc", "b_enc", "w_dec", "b_dec", "centre", "skip", "threshold")
