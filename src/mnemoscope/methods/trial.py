"""Every method on every known circuit: scores of edges, and how well they find the circuit.

A draw gives two sets of pairs: methods score edges on the first, faithfulness is measured on the second. Results of a
circuit are kept in a file of its own, so that an interrupted trial goes on where it was.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Bool

from mnemoscope.analyses.discovery.setting import Setting, circuit
from mnemoscope.claims.functions import source_digest
from mnemoscope.claims.store import instrument, text_digest
from mnemoscope.core.arguments import check_arguments
from mnemoscope.core.errors import InputError, in_range
from mnemoscope.core.guests import Registry
from mnemoscope.core.metrics import metrics_for
from mnemoscope.core.seeding import stream_seed
from mnemoscope.interventions.graph import model_edges
from mnemoscope.methods.catalogue import KNOWN_CIRCUITS, METHODS
from mnemoscope.methods.known import KnownCircuit, NoisedCircuit
from mnemoscope.methods.measures import (
    SHARES,
    areas,
    auroc,
    nested_circuits,
    precision_and_recall,
    precision_at_size,
    protocol_auroc,
)
from mnemoscope.methods.method import score_edges
from mnemoscope.models.files import write_atomically
from mnemoscope.run.executor import analyse_many

RANKINGS = ("absolute", "signed")
"""Edges by the size of their score, or by the score with its sign."""
_AXES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("auroc", "precision_at_size", "CPR", "CMD"), ("ranking",)),
    **dict.fromkeys(("precision", "recall", "n_chosen", "protocol_auroc", "seconds"), ()),
    "faithfulness": ("ranking", "share"),
    **dict.fromkeys(("score", "chosen"), ("edge",)),
}
"""Results of a method on a circuit with their axes after finder, which names the method, and draw."""
MEASURES = tuple(name for name in _AXES if name not in ("faithfulness", "score", "chosen"))
"""Names of the measures."""


def judge_method(
    name: str,
    selection: Setting,
    judging: Setting,
    truth: Bool[np.ndarray, " edge"],
    judged: Bool[np.ndarray, " edge"],
    seed: int,
) -> dict[str, Any]:
    """Measures of one method on one draw, as in `try_circuit`. Raises InputError where it refuses the model."""
    start = process_time()
    found = score_edges(name, selection, seed)
    seconds = process_time() - start
    scores, chosen = found.to_numpy(), found.chosen.to_numpy()
    ranked, true = {"absolute": abs(scores)[judged], "signed": scores[judged]}, truth[judged]
    faithful = [
        judging.faithfulness(nested_circuits(judging, scores, signed=ranking == "signed")) for ranking in RANKINGS
    ]
    by_size = np.array([areas(SHARES, curve) for curve in faithful])
    precision, recall = precision_and_recall(chosen[judged], true)
    return {
        "auroc": [auroc(ranked[ranking], true) for ranking in RANKINGS],
        "precision_at_size": [precision_at_size(ranked[ranking], true) for ranking in RANKINGS],
        "CPR": by_size[:, 0],
        "CMD": by_size[:, 1],
        "faithfulness": faithful,
        "precision": precision,
        "recall": recall,
        "n_chosen": chosen.sum(),
        "protocol_auroc": protocol_auroc(judging, scores, truth, judged),
        "seconds": seconds,
        "score": scores,
        "chosen": chosen,
    }


def try_circuit(
    known: KnownCircuit, methods: Sequence[str], *, n: int, n_draws: int, noise: int = 0, seed: int = 0
) -> xr.Dataset:
    """All methods on one known circuit; `noise` is the number of its draw of noise, so that prompts differ too.

    Returns what `MEASURES` names over (finder, draw) and, where scores are ranked, ranking; `faithfulness` also over
    share; `score` and `chosen` over (finder, draw, edge); `truth` and `judged` over edge. A method that refuses the
    model, or established the circuit, has NaN, and `refused` over finder says why. Raises InputError where all do.
    """
    edges = model_edges(known.model, embeddings=known.embeddings)
    inside = circuit(edges, known.edges)
    truth = inside.to_numpy()
    judged = truth | (True if known.absent is None else circuit(edges, known.absent).to_numpy())
    sizes = {"ranking": len(RANKINGS), "share": len(SHARES), "edge": len(inside)}
    found = {
        name: np.full([len(methods), n_draws, *(sizes[axis] for axis in axes)], np.nan) for name, axes in _AXES.items()
    }
    own_work = "it took part in establishing the circuit"
    refused: dict[str, str] = {name: own_work for name in methods if name in known.established_by}
    spans = []
    for draw in range(n_draws):
        selection, judging = (
            _setting(known, known.pairs(n, stream_seed(seed, "pairs", known.name, noise, draw, half) % 2**31))
            for half in ("selection", "judging")
        )
        spans.append(judging.span)
        for number, method in enumerate(methods):
            if method in known.established_by:
                continue
            try:
                own = stream_seed(seed, "method", known.name, noise, draw)  # random scores differ between circuits
                cell = judge_method(method, selection, judging, truth, judged, own)
            except InputError as error:
                refused[method] = str(error)
                continue
            for name, value in cell.items():
                found[name][number, draw] = value
    if len(refused) == len(methods):
        raise InputError(f"no method takes the known circuit {known.name}: {next(iter(refused.values()))}")
    return xr.Dataset(
        {
            **{name: (("finder", "draw", *axes), found[name]) for name, axes in _AXES.items()},
            "truth": ("edge", truth.astype(float)),
            "judged": ("edge", judged.astype(float)),
            "span": ("draw", spans),
            "refused": ("finder", [refused.get(method, "") for method in methods]),
        },
        coords={
            **inside.coords,
            "finder": list(methods),
            "draw": range(n_draws),
            "ranking": list(RANKINGS),
            "share": list(SHARES),
        },
        attrs={
            **{"circuit": known.name, "family": known.family, "source": known.source},
            **{"n": n, "noise": noise, "seed": seed},
        },
    )


def _setting(known: KnownCircuit, pairs: Any) -> Setting:
    """The setting of a known circuit; where the metric is noise faithfulness is NaN."""
    metric = metrics_for(vectors=pairs.clean.has_vectors)[0]
    return Setting(model=known.model, pairs=pairs, metric=metric, embeddings=known.embeddings, refuse=False)


@dataclass(frozen=True, kw_only=True)
class Piece:
    """The work on one draw of a known circuit; `kept` is the file of its result, None where nothing is kept."""

    name: str
    methods: tuple[str, ...]
    n: int
    n_draws: int
    seed: int
    noise: int = 0
    kept: Path | None = None

    @property
    def stamp(self) -> str:
        """A word for all that the result depends on: options, and the source of methods, circuit and measures."""
        functions = (KNOWN_CIRCUITS.get(self.name), *map(METHODS.get, self.methods), try_circuit, score_edges, areas)
        options = (self.name, self.methods, self.n, self.n_draws, self.seed, self.noise, instrument())
        return text_digest(repr((*options, *map(source_digest, functions))))

    def read(self) -> xr.Dataset | None:
        """The result that is kept; None where there is none of this stamp."""
        if self.kept is None or not self.kept.is_file():
            return None
        try:
            found = xr.load_dataset(self.kept, engine="h5netcdf")
        except (OSError, ValueError):  # a file that was cut short
            return None
        return found if found.attrs.get("stamp") == self.stamp else None


def measure_piece(piece: Piece) -> xr.Dataset:
    """The result of a piece, read where it is kept, else measured and kept."""
    found = piece.read()
    if found is None:
        build = KNOWN_CIRCUITS.get(piece.name)
        known = build(piece.noise) if isinstance(build, NoisedCircuit) else build()
        what = {"n": piece.n, "n_draws": piece.n_draws, "noise": piece.noise, "seed": piece.seed}
        found = try_circuit(known, piece.methods, **what)
        found = found.assign_attrs(stamp=piece.stamp)
        if piece.kept is not None:
            content = found.to_netcdf(engine="h5netcdf")
            write_atomically(piece.kept, bytes(content), shared=True)  # pyright: ignore[reportArgumentType]
    return found


@check_arguments
def try_methods(
    circuits: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    *,
    n: int = 32,
    n_draws: int = 2,
    n_noise: int = 1,
    seed: int = 0,
    jobs: int = 1,
    store: Path | None = None,
) -> xr.DataTree:
    """Every method on every known circuit.

    `circuits` and `methods` are registered names, None: all whose models are installed. Each of `n_draws` draws takes
    `n` pairs to score edges and `n` others to judge circuits. Of circuits with noise `n_noise` are drawn. `jobs` are
    worker processes, 0: one per core. A `store` is a directory that keeps the result of every circuit; the same call
    takes it from there. Raises InputError where a name is unknown or none is given, a number is out of range, or no
    method takes a circuit.

    Returns a tree with a dataset for each circuit, as `try_circuit` gives it; further draws of the noise of a circuit
    follow as `<name>@1` and so on.

    >>> found = ms.methods.try_methods(["induction"], ["eap", "random"], n=8, n_draws=1)
    >>> found["induction"].auroc.sel(finder="eap", ranking="absolute").values.tolist()
    [1.0]
    """
    in_range("n", n, 2, float("inf"))
    in_range("n_draws", n_draws, 1, float("inf"))
    in_range("n_noise", n_noise, 1, float("inf"))
    pieces = pieces_of(circuits, methods, n=n, n_draws=n_draws, n_noise=n_noise, seed=seed, store=store)
    return tree_of(analyse_many(pieces, measure_piece, jobs=jobs))


def pieces_of(
    circuits: Sequence[str] | None,
    methods: Sequence[str] | None,
    *,
    n: int,
    n_draws: int,
    n_noise: int,
    seed: int,
    store: Path | None,
) -> list[Piece]:
    """The work of a trial, a piece for each draw of each circuit; arguments as of `try_methods`."""
    known, tried = _names("known circuit", KNOWN_CIRCUITS, circuits), _names("method", METHODS, methods)
    what = {"methods": tuple(tried), "n": n, "n_draws": n_draws, "seed": seed}
    return [
        Piece(name=name, noise=noise, kept=store and store / f"{_label(name, noise)}.nc", **what)
        for name in known
        for noise in range(n_noise if isinstance(KNOWN_CIRCUITS.get(name), NoisedCircuit) else 1)
    ]


def _label(name: str, noise: int) -> str:
    return f"{name}@{noise}" if noise else name


def tree_of(results: Iterable[xr.Dataset]) -> xr.DataTree:
    """The results of circuits side by side."""
    return xr.DataTree.from_dict({_label(found.attrs["circuit"], found.attrs["noise"]): found for found in results})


def _names(kind: str, registry: Registry[Any], given: Sequence[str] | None) -> Sequence[str]:
    if given is not None and not given:
        raise InputError(f"at least one {kind} must be named; got none; leave it out to take all")
    for name in given or ():
        registry.get(name)
    if given is not None:
        return list(dict.fromkeys(given))
    return [name for name in registry.names() if getattr(registry.get(name), "by_default", True)]
