"""From one part of a model to another along the residual stream: what path patching changes.

Every part adds its output to the residual stream, and every later part reads the sum. An edge is one summand of one
reader's input. This makes a graph of the model: its nodes are the embeddings, the heads, the MLPs and the logits (Wang
et al. 2022, "Interpretability in the wild"; Goldowsky-Dill et al. 2023, "Localizing model behavior with path
patching"). Where heads share keys and values, as in Llama models, a key/value head reads these for all of them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal, get_args

from mnemoscope.core.errors import InputError, one_of
from mnemoscope.core.site import EMBEDDINGS, Kind, Position, Site

Through = Literal["q", "k", "v"]
THROUGH: tuple[Through, ...] = get_args(Through)
LOGITS = "logits"

_WRITERS = (*EMBEDDINGS, "resid_pre", "z", "mlp_out")
SHARED: tuple[Kind, ...] = ("k", "v")
"""Kinds of the readers that are key/value heads."""
_READERS = ("z", "mlp_out", *SHARED)


@dataclass(frozen=True, kw_only=True)
class Edge:
    """The addition of one part to the input of a later one.

    Attributes:
        writer: `embed`, `pos_embed`, a head (a site of kind z), an MLP (kind mlp_out), or `resid_pre` of layer 0 for
            all embeddings together. Otherwise without head, pos and key.
        reader: A head, an MLP, or the logits; where heads share keys and values, these are read by a key/value head: a
            site of kind k or v with its number.
        through: By which input a head reads; none: by all three. Of a key/value head its kind, of an MLP and the logits
            none.
        pos: Where along the sequence; as for a site. None: everywhere.
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
            if depth(self.writer) >= depth(self.reader):
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
            if kind in ("mlp_out", LOGITS):
                raise InputError(f"only a head reads through q, k or v; {self.reader} has one input: leave through out")

    @property
    def input(self) -> str:
        """The reader and its input: `L1H0 q`, `L1KV0 k`, `L0 MLP`, `logits`."""
        name = part_name(self.reader)
        return name if self.through is None else f"{name} {self.through}"

    @property
    def written(self) -> Site:
        """The addition of the writer to the residual stream, at the positions of the edge."""
        kind = "result" if self.writer.kind == "z" else self.writer.kind
        return Site(kind=kind, layer=self.writer.layer, head=self.writer.head, pos=self.pos)

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
    """The name of a part: `L0H1`, `L0 MLP`, `embed`, `input` for all embeddings together, `L0KV1`, `logits`."""
    if isinstance(part, Site) and part.kind in SHARED:
        return f"L{part.layer}KV{part.head}"
    return "input" if isinstance(part, Site) and part.kind == "resid_pre" else str(part)


def coordinates(edges: Sequence[Edge]) -> dict[str, tuple[str, list[str]]]:
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
    if site.pos is not None or site.neuron is not None or by_head != (site.head is not None):
        raise InputError(
            f"the {end} of an edge is one head (kind z with a head), an MLP or embeddings, at every position; got "
            f"{site!r}; say positions in the edge"
        )


def depth(part: Site | Literal["logits"]) -> float:
    """Place in the order of reading; parts of equal depth do not read each other, and the logits come last."""
    if not isinstance(part, Site):
        return math.inf
    if part.layer is None or part.kind == "resid_pre":
        return -1
    return 2 * part.layer + (part.kind == "mlp_out")
