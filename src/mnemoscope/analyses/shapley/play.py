"""A model as a game: its parts are the players, and who is not there is removed.

A part that is not there is replaced, at its sites, by zeros, by its mean over a reference set or by its activation in
another sequence of that set, as in `ablation.removal`. What replaces it is recorded once and is the same in every
coalition. Coalitions are folded into the batch: a pass takes as many of them as fit into `CHUNK` rows and the budget.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mnemoscope.analyses.ablation import Removal, removal
from mnemoscope.analyses.forward import answer_scores
from mnemoscope.analyses.shapley.game import Play
from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError
from mnemoscope.core.intervention import LowRank
from mnemoscope.core.named import Named
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.site import Site
from mnemoscope.core.skills import Places
from mnemoscope.engine.budget import LOG_PROBS, output_width, parts, rows_at_once
from mnemoscope.interventions.edges.graph import check_exists
from mnemoscope.interventions.reading import logits_at
from mnemoscope.interventions.recordings import Recordings, recorded
from mnemoscope.interventions.regions import region
from mnemoscope.interventions.replacements import change
from mnemoscope.interventions.writing import check_written, writing

METRICS = ("accuracy", "log_prob")


@dataclass(frozen=True, kw_only=True, eq=False)
class _Point:
    """The removal at one hook point.

    `new` replaces the activation. `parts` is 1 at the entries of each player that has some here, 0 elsewhere. In both,
    one row may stand for all. `players` are the players' numbers.
    """

    new: Float[Tensor, "new_row ..."]
    parts: Float[Tensor, "part part_row ..."]
    players: Int[Tensor, " part"]

    def removed(
        self, activation: Float[Tensor, "_ ..."], rows: Int[Tensor, " some"], absent: Float[Tensor, "coalition player"]
    ) -> Float[Tensor, "rows ..."]:
        """The activation without those who are absent, in each coalition's copy of the rows."""
        cells = activation.expand(len(absent) * len(rows), *activation.shape[1:]).unflatten(0, (len(absent), -1))
        parts = self.parts if self.parts.shape[1] == 1 else self.parts[:, rows]
        new = self.new if len(self.new) == 1 else self.new[rows]
        gone = torch.tensordot(absent[:, self.players], parts, dims=1) > 0
        return torch.where(gone, new.to(cells), cells).flatten(0, 1)


@torch.no_grad()
def play_of(
    model: HookedModel,
    batch: Batch,
    *,
    players: Mapping[str, Sequence[Site]],
    places: Places,
    kind: Removal,
    source: Named[Batch],
    within: str | None = None,
    max_bytes: int | None = None,
    seed: int = 0,
) -> Play:
    """The game of coalitions; an outcome is the right or wrong answer and its log-probability at each place.

    Outcomes `metric place` form one row: right or wrong at all places, then log-probabilities (nats).

    `players` maps names to the sites that come and go together. Outcomes are read at `places` of the batch. Means and
    resampled activations come from `source`, with `within`, the name of a latent, from sequences of the same class.
    `max_bytes` bounds what a forward pass allocates; none: 256 MiB, or what one sequence needs. Resampling draws from
    the seed's stream `resample`. Raises InputError where a site does not exist or is no player, or a source does not
    fit the batch; when it is played, where the logits hold NaN.
    """
    points = _points(model, batch, players, kind, source, within, seed)

    held = sum(point.new.nbytes + point.parts.nbytes for point in points.values())
    tested = torch.zeros_like(batch.scored)
    tested[places.sequence, places.pos] = True

    def chunk(rows: slice, where: Tensor, there: Tensor) -> Tensor:
        absent = (~there).to(places.weights.device, torch.float32)
        numbers = torch.arange(rows.start, rows.stop, device=batch.inputs.device)

        def hook_for(point: _Point) -> Any:
            return lambda activation, hook: point.removed(activation, numbers, absent)

        def run(inputs: Tensor) -> Tensor:
            removing = [(name, hook_for(point)) for name, point in points.items()]
            with writing(model, removing) as hooks, model.hooks(fwd_hooks=hooks):
                return model(inputs)

        n, target = len(there), batch.targets[rows][where]
        logits = logits_at(model, batch.inputs[rows].repeat(n, 1), where.repeat(n, 1), run).unflatten(0, (n, -1))
        found = answer_scores(logits, target.expand(n, -1))
        return torch.stack([found[name] for name in METRICS], 1).cpu()

    @torch.no_grad()
    def play(coalitions: Bool[Tensor, "coalition player"]) -> Float[Tensor, "coalition outcome"]:
        passes = []
        for rows, where in parts(model, tested, max_bytes=max_bytes, kept=held):
            n_rows, logits = len(where), int(where.sum(1).max()) * LOG_PROBS * output_width(model)
            room = None if max_bytes is None else max_bytes - held
            fitting = rows_at_once(model, where.shape[1], kept=logits, max_bytes=room)
            chunks = coalitions.split(max(1, fitting // n_rows))
            passes.append(torch.cat([chunk(rows, where, there) for there in chunks]))
        return torch.cat(passes, -1).flatten(1)

    return play


def _points(
    model: HookedModel,
    batch: Batch,
    players: Mapping[str, Sequence[Site]],
    kind: Removal,
    source: Named[Batch],
    within: str | None,
    seed: int,
) -> dict[str, _Point]:
    at: dict[str, list[tuple[int, Site]]] = {}
    for number, sites in enumerate(players.values()):
        for site in sites:
            check_exists(model, site)
            if site.kind == "result":
                raise InputError(f"{site} is held by no hook point and cannot be a player; take z instead")
            check_written(model, site.kind, [site.layer])
            at.setdefault(site.hook, []).append((number, site))
    shapes, recordings, points = recorded(model, batch.select(slice(0, 1)), at), Recordings(model), {}
    for name, sites in at.items():
        intervention = removal(kind, sites[0][1], source, within)
        assert not isinstance(intervention, LowRank)
        new = change(intervention, batch, recordings, seed)(shapes[name])
        masks = torch.broadcast_tensors(*(region(site, batch, shapes[name]) for _, site in sites))
        points[name] = _Point(
            new=new if new.ndim == shapes[name].ndim else new[None],
            parts=torch.stack(masks).float(),
            players=torch.tensor([number for number, _ in sites], device=new.device),
        )
    return points
