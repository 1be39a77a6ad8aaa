"""Circuits and importances of edges as files of MIB's circuit track and of the EAP-IG package: JSON graphs.

Such a file has `cfg` (`n_layers`, `n_heads`, `parallel_attn_mlp`, `d_model`), `nodes` with `in_graph` each, and `edges`
with `score` and `in_graph` each. Nodes are `input`, heads `a0.h1`, MLPs `m0` and `logits`; an edge is
`input->a0.h1<q>` or `m0->logits`. The input is both embeddings together. A submission of importances has scores; one of
several circuits may have membership alone. The graphs name MLPs that attention-only models do not have: they are
written with the score 0, outside the circuit, and left out when they are read.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from mnemoscope.analyses.discovery.setting import align_to_edges, label_edges
from mnemoscope.core.dictionary_places import model_dictionaries
from mnemoscope.core.errors import InputError
from mnemoscope.core.protocols import ModelLike, resolve_model
from mnemoscope.core.site import LOGITS, Edge, Site
from mnemoscope.interventions.graph import check_graph, model_edges, n_sharing
from mnemoscope.models.files import write_atomically

_MLP = re.compile(r"(^|->)m\d+(->|$)")


def mib_name(edge: Edge) -> str:
    """The name of an edge in MIB's files.

    >>> edges = ms.interventions.model_edges(model)
    >>> ms.methods.mib_name(edges[0]), ms.methods.mib_name(edges[-1])
    ('input->a0.h0<q>', 'm0->logits')
    """
    through = f"<{edge.through}>" if edge.through else ""
    return f"{_node_name(edge.writer)}->{_node_name(edge.reader)}{through}"


def _node_name(part: Site | str) -> str:
    if not isinstance(part, Site):
        return LOGITS
    if part.kind == "z":
        return f"a{part.layer}.h{part.head}"
    return f"m{part.layer}" if part.kind == "mlp_out" else "input"


def write_mib_file(path: Path | str, model: ModelLike, scores: xr.DataArray) -> Path:
    """Write scores of edges, and the circuit of their coordinate `chosen` if they have it, as MIB reads them.

    Raises InputError where scores are not one per edge with embeddings together, or the model's heads share keys.
    """
    hooked, edges = resolve_model(model), _edges(model)
    found = align_to_edges(edges, scores)
    chosen = found["chosen"].to_numpy().astype(bool) if "chosen" in found.coords else np.zeros(len(edges), dtype=bool)
    of_edge = {
        mib_name(edge): {"score": float(score), "in_graph": bool(inside)}
        for edge, score, inside in zip(edges, found.to_numpy(), chosen, strict=True)
    }
    cfg = hooked.cfg
    ordered = {name: of_edge.get(name, {"score": 0.0, "in_graph": False}) for name in _edge_names(cfg)}
    joined = {end for name, each in ordered.items() if each["in_graph"] for end in _ends(name)}
    nodes = {name: {"in_graph": name in joined} for name in _nodes(cfg)}
    shape = {
        "n_layers": cfg.n_layers,
        "n_heads": cfg.n_heads,
        "parallel_attn_mlp": _parallel(cfg),
        "d_model": cfg.d_model,
    }
    write_atomically(found_at := Path(path), json.dumps({"cfg": shape, "nodes": nodes, "edges": ordered}).encode())
    return found_at


def read_mib_file(path: Path | str, model: ModelLike) -> xr.DataArray:
    """Scores of a model's edges from a file of MIB, with its circuit as the coordinate `chosen`.

    Where edges have membership alone, it is their score. Raises InputError where the file holds no such graph, or that
    of another model.
    """
    edges = _edges(model)
    try:
        given: Mapping[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))["edges"]
        members = {name: _entry(entry) for name, entry in given.items()}
    except FileNotFoundError as error:
        raise InputError(f"{path} does not exist; name a file of MIB's circuit track") from error
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError, AttributeError, ValueError) as error:
        raise InputError(f"{path} is no graph of MIB's circuit track: JSON with `cfg`, `nodes` and `edges`") from error
    names = [mib_name(edge) for edge in edges]
    surplus = [
        name
        for name in members
        if name not in set(names) and not (resolve_model(model).cfg.attn_only and _MLP.search(name))
    ]
    if missing := [name for name in names if name not in members] + surplus:
        raise InputError(
            f"{path} must have the {len(names)} edges of the model; it has {len(members)}, and differs in "
            f"{', '.join(missing[:3])}; read it with the model that it was made from"
        )
    scores, chosen = (np.array([members[name][place] for name in names]) for place in (0, 1))
    return label_edges(edges, scores).rename("score").assign_coords(chosen=("edge", chosen.astype(bool)))


def _entry(entry: Mapping[str, Any]) -> tuple[float, bool]:
    inside = bool(entry["in_graph"])
    return float(entry.get("score", inside)), inside


def _edges(model: ModelLike) -> tuple[Edge, ...]:
    hooked = resolve_model(model)
    check_graph(hooked)
    if n_sharing(hooked) > 1:
        raise InputError("MIB's files know no heads that share keys and values; take a model without such heads")
    if model_dictionaries(hooked):
        raise InputError("MIB's files know no features; take the model without dictionaries")
    return model_edges(hooked)


def _parallel(cfg: Any) -> bool:
    return bool(getattr(cfg, "parallel_attn_mlp", False))


def _nodes(cfg: Any) -> list[str]:
    """Every node in MIB's order."""
    layers = ([*(f"a{layer}.h{head}" for head in range(cfg.n_heads)), f"m{layer}"] for layer in range(cfg.n_layers))
    return ["input", *(name for layer in layers for name in layer), LOGITS]


def _edge_names(cfg: Any) -> list[str]:
    """Every edge in MIB's order: by layer, from each earlier node to the heads, then to the MLP; last to the logits."""
    stream, found = ["input"], []
    for layer in range(cfg.n_layers):
        heads, mlp = [f"a{layer}.h{head}" for head in range(cfg.n_heads)], f"m{layer}"
        found += [f"{writer}->{head}<{way}>" for writer in stream for head in heads for way in "qkv"]
        found += [f"{writer}->{mlp}" for writer in (stream if _parallel(cfg) else stream + heads)]
        stream += [*heads, mlp]
    return [*found, *(f"{writer}->{LOGITS}" for writer in stream)]


def _ends(name: str) -> list[str]:
    return [end.partition("<")[0] for end in name.split("->")]
