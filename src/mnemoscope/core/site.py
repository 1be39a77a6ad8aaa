"""The places in a model at which something is read or changed."""

import re
from dataclasses import dataclass
from typing import Literal, cast, get_args

from mnemoscope.core.errors import InputError, in_range, one_of

Kind = Literal[
    "embed",
    "pos_embed",
    "resid_pre",
    "resid_mid",
    "resid_post",
    "q",
    "k",
    "v",
    "z",
    "result",
    "scores",
    "pattern",
    "attn_out",
    "pre",
    "post",
    "mlp_out",
]
KINDS: tuple[Kind, ...] = get_args(Kind)
ATTENTION: tuple[Kind, ...] = ("scores", "pattern")
"""Kinds with a query and a key in place of a position."""
BY_HEAD: tuple[Kind, ...] = ("q", "k", "v", "z", "result", *ATTENTION)
BY_NEURON: tuple[Kind, ...] = ("pre", "post")
MLP: tuple[Kind, ...] = (*BY_NEURON, "mlp_out")
EMBEDDINGS: tuple[Kind, ...] = ("embed", "pos_embed")

Position = int | tuple[int, ...] | str

_HOOKS = {
    "embed": "hook_embed",
    "pos_embed": "hook_pos_embed",
    "scores": "attn.hook_attn_scores",
    "result": "hook_attn_out",
    "pre": "mlp.hook_pre",
    "post": "mlp.hook_post",
    **{kind: f"attn.hook_{kind}" for kind in ("q", "k", "v", "z", "pattern")},
    **{kind: f"hook_{kind}" for kind in ("resid_pre", "resid_mid", "resid_post", "attn_out", "mlp_out")},
}

Weight = Literal[
    "W_E",
    "W_pos",
    "W_U",
    "b_U",
    "W_Q",
    "W_K",
    "W_V",
    "W_O",
    "b_Q",
    "b_K",
    "b_V",
    "b_O",
    "W_in",
    "b_in",
    "W_out",
    "b_out",
]
WEIGHTS: tuple[Weight, ...] = get_args(Weight)
_MODULES = {"W_E": "embed", "W_pos": "pos_embed", "W_U": "unembed", "b_U": "unembed"}
_TEXT = re.compile(r"(L(?P<layer>\d+)(H(?P<head>\d+))? )?(?P<name>\w+)")
_PARAMETER = re.compile(r"(blocks\.(?P<layer>\d+)\.)?\w+\.(?P<name>\w+)")
_BY_HEAD_WEIGHTS = ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V")


@dataclass(frozen=True, kw_only=True)
class Site:
    """A place among the activations, in TransformerLens's words.

    Attributes:
        kind: Which activation. `result` is what one head adds to the residual stream; `scores` and `pattern` are
            attention before and after the softmax; `pre` and `post` an MLP before and after its activation function.
        layer: Number of the block, from 0; none for `embed` and `pos_embed` only.
        head: Number of the head, for kinds that have heads; none: all of them.
        neuron: One or several neurons, for `pre` and `post`; none: all of them.
        pos: Positions, negative ones from the end; or the name of one, where the batch has names; or the name of a
            latent of the batch that holds one position a sequence (below 0: none, that sequence stays as it is) or a
            mask `batch pos`. None: all. For `scores` and `pattern` the position of the query.
        key: Likewise the position of the key, for `scores` and `pattern`.
    """

    kind: Kind
    layer: int | None = None
    head: int | None = None
    neuron: int | tuple[int, ...] | None = None
    pos: Position | None = None
    key: Position | None = None

    def __post_init__(self) -> None:
        one_of("the kind of a site", self.kind, KINDS)
        if (self.kind in EMBEDDINGS) != (self.layer is None):
            raise InputError(f"a site names its layer, save {' and '.join(EMBEDDINGS)}; got {self!r}")
        for axis, kinds in (("head", BY_HEAD), ("neuron", BY_NEURON), ("key", ATTENTION)):
            if getattr(self, axis) is not None and self.kind not in kinds:
                raise InputError(f"a site of kind {self.kind} has no {axis}; kinds that have one: {', '.join(kinds)}")
        neurons = self.neuron if isinstance(self.neuron, tuple) else (self.neuron,)
        for name, value in (("layer", self.layer), ("head", self.head), *(("neuron", n) for n in neurons)):
            if value is not None:
                in_range(f"the {name} of a site", value, 0, float("inf"))

    def __str__(self) -> str:
        layer = "" if self.layer is None else f"L{self.layer}"
        head = "" if self.head is None else f"H{self.head}"
        short = {"z": head, "mlp_out": " MLP"}.get(self.kind, "")
        name = layer + (short or f"{head} {self.kind}")
        parts = [("neuron", self.neuron), ("pos" if self.key is None else "query", self.pos), ("key", self.key)]
        return " ".join([name.strip(), *(f"{axis} {value}" for axis, value in parts if value is not None)])

    @property
    def hook(self) -> str:
        """Name of the hook point at which the site is changed; `result` is changed in the sum of the heads."""
        return _HOOKS[self.kind] if self.layer is None else f"blocks.{self.layer}.{_HOOKS[self.kind]}"


@dataclass(frozen=True, kw_only=True)
class ParamSite:
    """A weight.

    Attributes:
        name: In TransformerLens's words.
        head: Number of the head, for weights of attention; none: all of them, each for itself.
    """

    name: Weight
    layer: int | None = None
    head: int | None = None

    def __post_init__(self) -> None:
        one_of("the name of a weight", self.name, WEIGHTS)
        if (self.name in _MODULES) != (self.layer is None):
            raise InputError(f"a weight names its layer, save {', '.join(_MODULES)}; got {self!r}")
        if self.head is not None and self.name not in _BY_HEAD_WEIGHTS:
            raise InputError(f"{self.name} is not divided among heads; leave head out, got head {self.head}")
        for axis in ("layer", "head"):
            if getattr(self, axis) is not None:
                in_range(f"the {axis} of a weight", getattr(self, axis), 0, float("inf"))

    def __str__(self) -> str:
        layer = "" if self.layer is None else f"L{self.layer}"
        return f"{layer}{'' if self.head is None else f'H{self.head}'} {self.name}".strip()

    @classmethod
    def read(cls, text: str) -> "ParamSite":
        """The weight of a text such as `L1H0 W_O`, `L1 W_out`, `W_E`, or its parameter's name, `blocks.1.mlp.W_out`.

        Raises InputError where the text is no weight.
        """
        found = _TEXT.fullmatch(text) or _PARAMETER.fullmatch(text)
        if found is None:
            raise InputError(f"a weight must look like L1 W_out, L1H0 W_O, W_E or blocks.1.mlp.W_out; got {text!r}")
        named = found.groupdict()
        layer, head = (None if named.get(axis) is None else int(named[axis]) for axis in ("layer", "head"))
        site = cls(name=cast("Weight", named["name"]), layer=layer, head=head)
        if "." in text and site.parameter != text:
            raise InputError(f"there is no parameter {text}; perhaps {site.parameter}")
        return site

    @property
    def is_matrix(self) -> bool:
        """True if it is one matrix, or one per head, and no bias."""
        return self.name.startswith("W_")

    @property
    def parameter(self) -> str:
        """Name of the parameter in the model."""
        if self.layer is None:
            return f"{_MODULES[self.name]}.{self.name}"
        module = "mlp" if self.name.endswith(("_in", "_out")) else "attn"
        return f"blocks.{self.layer}.{module}.{self.name}"
