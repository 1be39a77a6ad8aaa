"""Places of the parts of a model in a drawing of its edges, and the curves along which the edges run.

Parts stand on a grid: a row for the embeddings, then for every layer one for its heads and one for its MLP, the logits
last; heads in columns, MLPs in a separate column to the right. Every row is one unit high, every column one unit
wide. An edge is a curve that leaves a part upwards and enters another from below. If it would cross a part on its way,
it runs through the gap between two columns instead, where each edge has a separate lane. The same edges always give
the same drawing.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float

from mnemoscope.core.site import EMBEDDINGS, LOGITS, Edge, Site

Node = Site | Literal["logits"]
Curve = Float[np.ndarray, "point 2"]

HALF_WIDTH, HALF_HEIGHT = 0.33, 0.25
PORTS = {"q": -0.2, "k": 0.0, "v": 0.2, None: 0.3}
"""Distance from the middle of a head to where an edge ends, by what the head reads through; none: all three."""
_APART = 0.07
"""Distance between two edges that leave or enter a part side by side."""
_LANES = tuple(0.045 * lane for lane in (0, -1, 1, -2, 2, -3, 3))
"""Distances from the middle of a gap between columns."""
_UPRIGHT = 0.13
"""Length of the vertical end of an edge: that of an arrowhead."""
_N_POINTS = 24


@dataclass(frozen=True, kw_only=True)
class Box:
    """The place of a part in a drawing: its middle, and how far it reaches to either side."""

    x: float
    y: float
    half_width: float = HALF_WIDTH

    def near(self, curve: Curve) -> bool:
        """True if a curve comes into the box or close to its border."""
        away = np.abs(curve - (self.x, self.y)) - (self.half_width + 0.03, HALF_HEIGHT + 0.03)
        return bool((away < 0).all(1).any())


def places(edges: Sequence[Edge]) -> dict[Node, Box]:
    """A box for every part that an edge starts or ends at, from the embeddings to the logits."""
    rows: dict[float, list[Node]] = defaultdict(list)
    parts: set[Node] = {part for edge in edges for part in (edge.writer, edge.reader)}
    for part in sorted(parts, key=_order):
        rows[_order(part)[0]].append(part)
    n_heads = max((len(row) for row in rows.values() if _is_head(row[0])), default=0)
    has_mlp = any(part != LOGITS and part.kind == "mlp_out" for part in parts)
    n_columns = max(1, n_heads + has_mlp)
    found: dict[Node, Box] = {}
    for y, row in enumerate(rows.values()):
        for i, part in enumerate(row):
            if is_bar(part):
                reach = n_columns / len(row) / 2
                found[part] = Box(x=(2 * i + 1) * reach - 0.5, y=y, half_width=reach - 0.5 + HALF_WIDTH)
            else:
                found[part] = Box(x=i + (n_heads - len(row)) // 2 if _is_head(part) else n_columns - 1, y=y)
    return found


def is_bar(part: Node) -> bool:
    """True for parts that are drawn across the columns: embeddings and logits."""
    return part == LOGITS or part.layer is None or part.kind == "resid_pre"


def routes(edges: Sequence[Edge], boxes: Mapping[Node, Box]) -> list[Curve]:
    """The curve of every edge, from its writer to its reader."""
    starts, ends = _ends(edges, boxes)
    taken: dict[float, list[tuple[float, float]]] = defaultdict(list)
    curves = []
    for edge, x0, x1 in zip(edges, starts, ends, strict=True):
        start, end = (x0, boxes[edge.writer].y + HALF_HEIGHT), (x1, boxes[edge.reader].y - HALF_HEIGHT)
        upright = (x1, end[1] - _UPRIGHT)
        curve = _bent(start, upright)
        others = [box for part, box in boxes.items() if part not in (edge.writer, edge.reader)]
        if any(box.near(curve) for box in others):
            curve = _through_gap(start, upright, _gaps(boxes), taken)
        curves.append(np.concatenate([curve, [end]]))
    return curves


def _order(part: Node) -> tuple[float, int]:
    if part == LOGITS:
        return float("inf"), 0
    if part.layer is None or part.kind == "resid_pre":
        return -1, EMBEDDINGS.index(part.kind) if part.kind in EMBEDDINGS else 0
    return 2 * part.layer + (part.kind == "mlp_out"), part.head or 0


def _is_head(part: Node) -> bool:
    return part != LOGITS and part.kind == "z"


def _ends(edges: Sequence[Edge], boxes: Mapping[Node, Box]) -> tuple[list[float], list[float]]:
    """The places along their writer and reader at which the edges start and end."""
    ends = [boxes[edge.reader].x + PORTS[edge.through] if _is_head(edge.reader) else None for edge in edges]
    for part, box in boxes.items():
        if not _is_head(part):
            mine = [i for i, edge in enumerate(edges) if edge.reader == part]
            for i, x in zip(mine, _side_by_side([_from(edges[i].writer, boxes) for i in mine], box), strict=True):
                ends[i] = x
    settled = [x for x in ends if x is not None]
    starts = list(settled)
    for part, box in boxes.items():
        mine = [i for i, edge in enumerate(edges) if edge.writer == part]
        for i, x in zip(mine, _side_by_side([settled[i] for i in mine], box), strict=True):
            starts[i] = x
    return starts, settled


def _from(part: Node, boxes: Mapping[Node, Box]) -> float:
    """The best place for an edge at a part: above its middle; for a part as wide as the drawing, above a gap."""
    x = boxes[part].x
    return math.floor(x - 0.5) + 0.5 if is_bar(part) else x


def _side_by_side(wanted: Sequence[float], box: Box) -> list[float]:
    """Places along a box, as near as possible to those wanted, in their order and apart from each other."""
    low, high = box.x - box.half_width + 0.05, box.x + box.half_width - 0.05
    gap = min(_APART, (high - low) / max(1, len(wanted) - 1))
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    inside = [min(max(wanted[i], low), high) for i in order]
    placed = _apart(inside, gap)
    shift = (sum(inside) - sum(placed)) / max(1, len(placed))
    placed = _apart([max(x + shift, low) for x in placed], gap)
    placed = [-x for x in _apart([-min(x, high) for x in reversed(placed)], gap)]
    return [x for _, x in sorted(zip(order, reversed(placed), strict=True))]


def _apart(ascending: Sequence[float], gap: float) -> list[float]:
    """The same numbers, moved up where one is nearer than `gap` to that before it."""
    result: list[float] = []
    for x in ascending:
        result.append(max(x, result[-1] + gap) if result else x)
    return result


def _bent(start: tuple[float, float], end: tuple[float, float]) -> Curve:
    """A curve that starts and ends upright."""
    t = np.linspace(0, 1, _N_POINTS)
    middle = (start[1] + end[1]) / 2
    corners = np.array([start, (start[0], middle), (end[0], middle), end])
    shares = np.stack([(1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3], 1)
    return shares @ corners


def _gaps(boxes: Mapping[Node, Box]) -> list[float]:
    """The middle of every gap between columns, and of the space outside them."""
    right = max(box.x + box.half_width for box in boxes.values())
    return [i - 0.5 for i in range(round(right - HALF_WIDTH) + 2)]


def _through_gap(
    start: tuple[float, float],
    end: tuple[float, float],
    gaps: Sequence[float],
    taken: dict[float, list[tuple[float, float]]],
) -> Curve:
    """A curve along a lane in a near gap, free if there is a free one; `taken` gets the stretch."""
    (x0, y0), (x1, y1) = start, end

    def cost(x: float) -> float:
        return abs(x0 - x) + abs(x1 - x) + sum(low < y1 and y0 < high for low, high in taken[x])

    x = min((round(gap + lane, 3) for gap in gaps for lane in _LANES), key=lambda x: (cost(x), x))
    taken[x].append((y0, y1))
    between = 1 - 2 * HALF_HEIGHT
    first, last = _bent(start, (x, y0 + between)), _bent((x, y1 - between + _UPRIGHT), end)
    steps = np.linspace(y0 + between, y1 - between + _UPRIGHT, _N_POINTS)[1:-1]
    return np.concatenate([first, np.stack([np.full_like(steps, x), steps], 1), last])
