r"""Shapley values and interactions of a game, exact or from sampled orders; and a model as a game.

A game gives every coalition S of its players N a value v(S). A player's Shapley value is what it adds to those who are
there before it, on average over all orders in which the players can come:

    value_i = sum over S without i of  |S|! (n - |S| - 1)! / n!  ·  [v(S + i) - v(S)]

(Shapley 1953, "A value for n-person games"). It is the only one that shares out v(N) - v(none) in full, gives equals
the same and a player who adds nothing 0, and is linear in v. The Shapley interaction index of two players is

    interaction_ij = sum over S without i, j of  |S|! (n - |S| - 2)! / (n - 1)!
                     · [v(S + i + j) - v(S + i) - v(S + j) + v(S)]

(Grabisch & Roubens 1999, "An axiomatic approach to the concept of interaction among players in cooperative games"):
what i is worth where j always is there, less what it is worth where j never is. Below 0 they stand in for each other
(redundancy); above 0 they work together only (synergy); 0 where they add. Both are linear in v: a game may have many
outcomes, and values of a mean are means of values.

With too many players to play every coalition, players come in random orders, and what each adds is averaged (Castro,
Gómez & Tejada 2009, "Polynomial calculation of the Shapley value based on sampling"). A sample is the n rows of a
row-complete Latin square (Williams 1949, "Experimental designs balanced for the estimation of residual effects of
treatments") whose symbols are shuffled. In its rows

- every player stands in every place once, so that coalitions of every size count as they should;
- every order is there together with its reverse: antithetic pairs (Mitchell et al. 2022, "Sampling permutations for
  Shapley value estimation");
- every two players are neighbours twice, once in either order. With S those before them, v(S + i + j) - v(S + i) -
  v(S + j) + v(S) is an unbiased estimate of their interaction.

An odd number of players gets one more who adds nothing. Samples are independent, and in each of them the values add up
to v(N) - v(none) exactly. Their spread gives the error of the mean. On shares of 50 similar weighted votes, of 6 to 10
players, intervals of nominally 95 % held the truth in 93 to 95 % of cases from 8 samples on. A single vote is the hard
case: what is so rare that no sample saw it is not in the error, and with 16 samples of 10 players 89 to 91 % of the
values and 81 to 84 % of the interactions were held.

A part of a model that is not there is replaced, at its sites, by zeros, by its mean over a reference set or by its
activation in another sequence of that set (`make_removal`). What replaces it is recorded once and is the same in
every coalition. Coalitions are folded into the batch: a pass takes as many of them as fit into the budget.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import factorial
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from scipy import stats
from torch import Tensor

from mnemoscope.analyses.forward import answer_scores
from mnemoscope.core.batch import Batch, Named
from mnemoscope.core.errors import InputError
from mnemoscope.core.intervention import LowRank, RemovalKind, make_removal
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.seeding import generator
from mnemoscope.core.site import Site
from mnemoscope.core.skills import SkillPlaces
from mnemoscope.engine.budget import LOG_PROBS, n_rows_at_once, output_width, split_into_passes
from mnemoscope.interventions.graph import check_exists
from mnemoscope.interventions.reading import logits_at
from mnemoscope.interventions.recordings import Recordings, record_activations
from mnemoscope.interventions.replacements import make_replacer, region
from mnemoscope.interventions.writing import check_written, complete_hooks

MAX_EXACT = 12
"""Players up to which every coalition is played: 4,096 of them."""

Play = Callable[[Bool[Tensor, "coalition player"]], Float[Tensor, "coalition outcome"]]
"""A game: from coalitions, as who is there, to their values."""

_AT_ONCE = 64


def coalitions(n: int) -> Bool[Tensor, "coalition player"]:
    """All coalitions of `n` players; in row k are the players of the bits of k, the first player's bit the lowest."""
    return (torch.arange(2**n)[:, None] >> torch.arange(n) & 1).bool()


def player_pairs(n: int) -> Int[Tensor, "pair 2"]:
    """Every pair of players once, in the order of the results."""
    return torch.combinations(torch.arange(n))


def exact_values(play: Play, n: int, *, interactions: bool = True) -> Float[Tensor, "index outcome"]:
    """Shapley values of `n` players and, after them, the interactions of their pairs; every coalition is played."""
    who, weights = coalitions(n), _value_weights(n)
    if interactions:
        weights = torch.cat((weights, _interaction_weights(n)))
    chunks = zip(weights.split(_AT_ONCE, 1), who.split(_AT_ONCE), strict=True)
    return torch.stack([weight @ play(chunk).to(weight) for weight, chunk in chunks]).sum(0)


def _value_weights(n: int) -> Float[Tensor, "player coalition"]:
    there = coalitions(n)
    before = there.sum(1) - there.T.long()  # how many others are there
    weight = torch.tensor([factorial(s) * factorial(n - s - 1) / factorial(n) for s in range(n)], dtype=torch.double)
    return weight[before] * torch.where(there.T, 1.0, -1.0)


def _interaction_weights(n: int) -> Float[Tensor, "pair coalition"]:
    there, (first, second) = coalitions(n), player_pairs(n).T
    i, j = there.T[first], there.T[second]
    before = there.sum(1) - i.long() - j.long()
    weight = [factorial(s) * factorial(n - s - 2) / factorial(n - 1) for s in range(n - 1)]
    return torch.tensor(weight, dtype=torch.double)[before] * torch.where(i == j, 1.0, -1.0)


def sample_values(
    play: Play, n: int, *, n_samples: int, seed: int, interactions: bool = True
) -> Iterator[Float[Tensor, "index outcome"]]:
    """Independent unbiased estimates, each from one square of orders of the seed's stream `orders`.

    Yields Shapley values of the players and, after them, the interactions of their pairs, which double the coalitions.
    """
    square, stream = latin_square(n), generator(seed, "orders")
    first, second = player_pairs(n).T
    number = torch.full(square.shape, len(first))  # the last one is thrown away: neighbours of who adds nothing
    number[first, second] = number[second, first] = torch.arange(len(first))
    for _ in range(n_samples):
        gains, joints = [], []
        shuffled = torch.randperm(len(square), generator=stream)[square]
        for order in shuffled:
            gain, joint = _row(play, order, n, interactions)
            gains.append(gain)
            joints.append(joint)
        result = torch.stack(gains).mean(0)
        if interactions:
            joint = result.new_zeros(len(first) + 1, result.shape[1])
            joint.index_add_(0, number[shuffled[:, :-1], shuffled[:, 1:]].flatten(), torch.cat(joints) / 2)
            result = torch.cat((result, joint[:-1]))
        yield result


def latin_square(n: int) -> Int[Tensor, "row place"]:
    """A row-complete Latin square of `n` players, or `n` + 1: from its number each row zigzags, 0, 1, -1, 2, -2, ..."""
    size = n + n % 2
    place = torch.arange(size)
    zigzag = torch.where(place % 2 == 1, (place + 1) // 2, -(place // 2))
    return (torch.arange(size)[:, None] + zigzag) % size


def error_and_margin(
    by_sample: Float[Tensor, "sample *outcome"],
) -> tuple[Float[Tensor, "*outcome"], Float[Tensor, "*outcome"]]:
    """Standard error of the mean over samples, and half the width of its 95 % interval by Student's t."""
    n = len(by_sample)
    error = by_sample.std(0) / n**0.5
    return error, float(stats.t.ppf(0.975, n - 1)) * error


def n_played(n: int, interactions: bool) -> int:
    """Coalitions that one sample of `n` players plays."""
    size = n + n % 2
    return size * (2 * size if interactions else size + 1)


def _row(
    play: Play, order: Int[Tensor, " place"], n: int, interactions: bool
) -> tuple[Float[Tensor, "player outcome"], Float[Tensor, "neighbours outcome"]]:
    """The addition of each player in one order, and how much more neighbours add together than each for itself."""
    place, step = order.argsort(), torch.arange(len(order) + 1)[:, None]
    before = place < step
    skipped = before[:-2] | (place == step[1:-1]) if interactions else before[:0]  # without the one whose turn it is
    value = play(torch.cat((before, skipped))[:, :n]).double()
    value, without = value[: len(before)], value[len(before) :]
    gain = value.diff(dim=0)[place[:n]]
    joint = value[2:] - value[1:-1] - without + value[:-2] if interactions else without
    return gain, joint


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

    def remove(
        self, activation: Float[Tensor, "_ ..."], rows: Int[Tensor, " some"], absent: Float[Tensor, "coalition player"]
    ) -> Float[Tensor, "rows ..."]:
        """The activation without those who are absent, in each coalition's copy of the rows."""
        cells = activation.expand(len(absent) * len(rows), *activation.shape[1:]).unflatten(0, (len(absent), -1))
        parts = self.parts if self.parts.shape[1] == 1 else self.parts[:, rows]
        new = self.new if len(self.new) == 1 else self.new[rows]
        gone = torch.tensordot(absent[:, self.players], parts, dims=1) > 0
        return torch.where(gone, new.to(cells), cells).flatten(0, 1)


@torch.no_grad()
def make_game(
    model: HookedModel,
    batch: Batch,
    *,
    players: Mapping[str, Sequence[Site]],
    places: SkillPlaces,
    kind: RemovalKind,
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
            return lambda activation, hook: point.remove(activation, numbers, absent)

        def run(inputs: Tensor) -> Tensor:
            removing = [(name, hook_for(point)) for name, point in points.items()]
            with complete_hooks(model, removing) as hooks, model.hooks(fwd_hooks=hooks):
                return model(inputs)

        n, target = len(there), batch.targets[rows][where]
        logits = logits_at(model, batch.inputs[rows].repeat(n, 1), where.repeat(n, 1), run).unflatten(0, (n, -1))
        found = answer_scores(logits, target.expand(n, -1))
        return torch.stack([found[name] for name in METRICS], 1).cpu()

    @torch.no_grad()
    def play(coalitions: Bool[Tensor, "coalition player"]) -> Float[Tensor, "coalition outcome"]:
        passes = []
        for rows, where in split_into_passes(model, tested, max_bytes=max_bytes, kept=held):
            n_rows, logits = len(where), int(where.sum(1).max()) * LOG_PROBS * output_width(model)
            room = None if max_bytes is None else max_bytes - held
            fitting = n_rows_at_once(model, where.shape[1], kept=logits, max_bytes=room)
            chunks = coalitions.split(max(1, fitting // n_rows))
            passes.append(torch.cat([chunk(rows, where, there) for there in chunks]))
        return torch.cat(passes, -1).flatten(1)

    return play


def _points(
    model: HookedModel,
    batch: Batch,
    players: Mapping[str, Sequence[Site]],
    kind: RemovalKind,
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
    shapes, recordings, points = record_activations(model, batch.select(slice(0, 1)), at), Recordings(model), {}
    for name, sites in at.items():
        intervention = make_removal(kind, sites[0][1], source, within)
        assert not isinstance(intervention, LowRank)
        new = make_replacer(intervention, batch, recordings, seed)(shapes[name])
        masks = torch.broadcast_tensors(*(region(site, batch, shapes[name]) for _, site in sites))
        points[name] = _Point(
            new=new if new.ndim == shapes[name].ndim else new[None],
            parts=torch.stack(masks).float(),
            players=torch.tensor([number for number, _ in sites], device=new.device),
        )
    return points
