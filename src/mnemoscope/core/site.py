"""The places in a model at which something is read or changed: activations, weights, and edges between parts.

Every part adds its output to the residual stream, and every later part reads the sum. An edge is one summand of one
reader's input; path patching changes it. The nodes of this graph are the embeddings, the heads, the MLPs and the logits
(Wang et al. 2022, "Interpretability in the wild"; Goldowsky-Dill et al. 2023, "Localizing model behavior with path
patching"). Where heads share keys and values, as in Llama models, a key/value head reads these for all of them. Where a
dictionary reconstructs the output of an MLP, its features and what they leave out are nodes in the place of the MLP.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal, cast, get_args

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
    "feature",
    "error",
]
KINDS: tuple[Kind, ...] = get_args(Kind)
ATTENTION: tuple[Kind, ...] = ("scores", "pattern")
"""Kinds with a query and a key in place of a position."""
BY_HEAD: tuple[Kind, ...] = ("q", "k", "v", "z", "result", *ATTENTION)
BY_NEURON: tuple[Kind, ...] = ("pre", "post", "feature")
"""Kinds divided by neuron, or by feature, which takes its place."""
MLP: tuple[Kind, ...] = ("pre", "post", "mlp_out")
OF_DICTIONARY: tuple[Kind, ...] = ("feature", "error")
"""Kinds of a model with dictionaries (`ms.with_dictionaries`)."""
MLP_PARTS: tuple[Kind, ...] = ("mlp_out", *OF_DICTIONARY)
"""Kinds of the parts that an MLP is on edges: itself, or features and what these leave out."""
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
    **{kind: f"hook_{kind}" for kind in OF_DICTIONARY},
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
_SITE = re.compile(
    r"(?:L(?P<layer>\d+)(?:H(?P<head>\d+))?)?(?: ?(?!neuron |pos |query |key )(?P<kind>\w+))?"
    r"(?: neuron (?P<neuron>\([^)]*\)|\d+))?(?: (?:pos|query) (?P<pos>\([^)]*\)|\S+))?(?: key (?P<key>\([^)]*\)|\S+))?"
)
_PARAMETER = re.compile(r"(blocks\.(?P<layer>\d+)\.)?\w+\.(?P<name>\w+)")
_BY_HEAD_WEIGHTS = ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V")


@dataclass(frozen=True, kw_only=True)
class Site:
    """A place among the activations, in TransformerLens's words.

    Attributes:
        kind: Which activation. `result` is what one head adds to the residual stream; `scores` and `pattern` are
            attention before and after the softmax; `pre` and `post` an MLP before and after its activation function;
            `feature` and `error` the features of a layer's dictionary, and what these leave out.
        layer: Number of the block, from 0; none for `embed` and `pos_embed` only.
        head: Number of the head, for kinds that have heads; none: all of them.
        neuron: One or several neurons, for `pre` and `post`, or features; none: all of them.
        pos: Positions, negative ones from the end; or the name of one, where the batch has names; or the name of a
            latent of the batch that holds one position a sequence (below 0: none, that sequence stays as it is) or a
            mask `batch pos`. None: all. For `scores` and `pattern` the position of the query.
        key: Likewise the position of the key, for `scores` and `pattern`.

    >>> site = ms.Site(kind="z", layer=0, head=1, pos=-1)
    >>> print(site, "at", site.hook)
    L0H1 pos -1 at blocks.0.attn.hook_z
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

    @classmethod
    def read(cls, text: str) -> "Site":
        """The site of a text as `str` writes it: `L1H3`, `L0 MLP`, `L0H1 pattern query -1 key 2`, `embed`.

        Raises InputError where it is none.

        >>> ms.Site.read("L0H1 pos -1") == ms.Site(kind="z", layer=0, head=1, pos=-1)
        True
        """
        found = _SITE.fullmatch(text.strip())
        if found is None or not (found["layer"] or found["kind"]):
            raise InputError(f"a place must look like L1H3, L0 MLP, L0H1 pattern or L0 resid_post pos 2; got {text!r}")
        named = found.groupdict()
        kind = {None: "z" if named["head"] else None, "MLP": "mlp_out"}.get(named["kind"], named["kind"])
        if kind is None:
            raise InputError(f"{text!r} names a layer and no kind of activation; such as {text.strip()} MLP")
        numbers = {axis: int(named[axis]) for axis in ("layer", "head") if named[axis] is not None}
        places: dict[str, Any] = {axis: _read_number(named[axis]) for axis in ("neuron", "pos", "key") if named[axis]}
        return cls(kind=cast("Kind", kind), **numbers, **places)

    @property
    def hook(self) -> str:
        """Name of the hook point at which the site is changed; `result` is changed in the sum of the heads."""
        return _HOOKS[self.kind] if self.layer is None else f"blocks.{self.layer}.{_HOOKS[self.kind]}"


def _read_number(text: str) -> Position:
    """A number, several in parentheses, or a name."""
    if text.startswith("("):
        return tuple(int(part) for part in text.strip("(), ").split(","))
    return int(text) if re.fullmatch(r"-?\d+", text) else text


@dataclass(frozen=True, kw_only=True)
class ParamSite:
    """A weight.

    Attributes:
        name: In TransformerLens's words.
        head: Number of the head, for weights of attention; none: all of them, each for itself.

    >>> ms.analyses.weight_matrix(model, ms.ParamSite(name="W_V", layer=0, head=1)).shape
    torch.Size([32, 16])
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


Through = Literal["q", "k", "v"]
THROUGH: tuple[Through, ...] = get_args(Through)
LOGITS = "logits"

_WRITERS = (*EMBEDDINGS, "resid_pre", "z", *MLP_PARTS)
SHARED: tuple[Kind, ...] = ("k", "v")
"""Kinds of the readers that are key/value heads."""
_READERS = ("z", *MLP_PARTS, *SHARED)


@dataclass(frozen=True, kw_only=True)
class Edge:
    """The addition of one part to the input of a later one.

    Attributes:
        writer: `embed`, `pos_embed`, a head (a site of kind z), an MLP (kind mlp_out), or `resid_pre` of layer 0 for
            all embeddings together. In the place of an MLP with a dictionary: a feature (kind feature with its
            number), or all that features leave out (kind error). Otherwise without head, pos and key.
        reader: A head, an MLP or its features and error, or the logits; where heads share keys and values, these are
            read by a key/value head: a site of kind k or v with its number.
        through: By which input a head reads; none: by all three. Of a key/value head its kind, of all others none.
        pos: Where along the sequence; as for a site. None: everywhere.

    >>> edge = ms.Edge(writer=ms.Site(kind="z", layer=0, head=1))
    >>> print(edge)
    L0H1 → logits
    """

    writer: Site
    reader: Site | Literal["logits"] = LOGITS
    through: Through | None = None
    pos: Position | None = None

    def __post_init__(self) -> None:
        one_of("the kind of an edge's writer", self.writer.kind, _WRITERS)
        if self.writer.kind == "resid_pre" and self.writer.layer != 0:
            raise InputError(f"an edge starts at resid_pre of layer 0 only (all embeddings); got {self.writer}")
        _check_part("writer", self.writer)
        if isinstance(self.reader, Site):
            one_of("the kind of an edge's reader", self.reader.kind, _READERS)
            _check_part("reader", self.reader)
            if reading_depth(self.writer) >= reading_depth(self.reader):
                raise InputError(f"an edge leads to a later part; {self.writer} writes after {self.reader} has read")
        else:
            one_of("the reader of an edge that is no site", self.reader, (LOGITS,))
        self._check_through()

    def _check_through(self) -> None:
        kind = self.reader.kind if isinstance(self.reader, Site) else LOGITS
        if kind in SHARED and self.through != kind:
            raise InputError(f"a key/value head of kind {kind} reads through={kind!r}; got {self.through!r}")
        if self.through is not None:
            one_of("through", self.through, THROUGH)
            if kind in (*MLP_PARTS, LOGITS):
                raise InputError(f"only a head reads through q, k or v; {self.reader} has one input: leave through out")

    @property
    def input(self) -> str:
        """The reader and its input: `L1H0 q`, `L1KV0 k`, `L0 MLP`, `logits`."""
        name = part_name(self.reader)
        return name if self.through is None else f"{name} {self.through}"

    @property
    def written(self) -> Site:
        """The addition of the writer to the residual stream, at the positions of the edge."""
        return replace(self.writer, kind="result" if self.writer.kind == "z" else self.writer.kind, pos=self.pos)

    def __str__(self) -> str:
        return self.named(part_name(self.writer), part_name(self.reader))

    def named(self, writer: str, reader: str) -> str:
        """The text of the edge, from the names of its parts."""
        through = "" if self.through is None else f" {self.through}"
        at = "" if self.pos is None else f" pos {self.pos}"
        return f"{writer} → {reader}{through}{at}"

    def at(self, pos: Position | None) -> "Edge":
        """The same edge at some positions only."""
        return replace(self, pos=pos)


@cache
def part_name(part: Site | Literal["logits"]) -> str:
    """The name of a part: `L0H1`, `L0 MLP`, `embed`, `input` for all embeddings together, `L0KV1`, `L0F3`, `logits`."""
    if isinstance(part, Site) and part.kind in SHARED:
        return f"L{part.layer}KV{part.head}"
    if isinstance(part, Site) and part.kind == "feature":
        return f"L{part.layer}F{part.neuron}"
    return "input" if isinstance(part, Site) and part.kind == "resid_pre" else str(part)


def edge_coordinates(edges: Sequence[Edge]) -> dict[str, tuple[str, list[str]]]:
    """Labels of a result along `edge`; `through` is empty for readers with one input."""
    # parts by identity: to hash a site takes longer than to name it
    names = {id(part): part for edge in edges for part in (edge.writer, edge.reader)}
    names = {number: part_name(part) for number, part in names.items()}
    return {
        "edge": ("edge", [edge.named(names[id(edge.writer)], names[id(edge.reader)]) for edge in edges]),
        "writer": ("edge", [names[id(edge.writer)] for edge in edges]),
        "reader": ("edge", [names[id(edge.reader)] for edge in edges]),
        "through": ("edge", [edge.through or "" for edge in edges]),
    }


def _check_part(end: str, site: Site) -> None:
    by_head = site.kind == "z" or site.kind in SHARED
    one_feature = isinstance(site.neuron, int) if site.kind == "feature" else site.neuron is None
    if site.pos is not None or not one_feature or by_head != (site.head is not None):
        raise InputError(
            f"the {end} of an edge is one head (kind z with a head), an MLP, one feature (kind feature with its number)"
            f" or embeddings, at every position; got {site!r}; say positions in the edge"
        )


def reading_depth(part: Site | Literal["logits"]) -> float:
    """Place in the order of reading; parts of equal depth do not read each other, and the logits come last."""
    if not isinstance(part, Site):
        return math.inf
    if part.layer is None or part.kind == "resid_pre":
        return -1
    return 2 * part.layer + (part.kind in MLP_PARTS)
