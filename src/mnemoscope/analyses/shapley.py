"""The worth of each component of a model for each skill: Shapley values, interactions, and single removals beside them.

The players are components (or any sets of sites: heads, neurons, positions, parts called by their roles). A coalition
is worth the model's accuracy, and its mean log-probability of the answer, on a skill when every other player is
removed. `games` has the formulas. Up to 12 players every coalition is played; beyond that, orders are sampled.

It divides the difference between the whole model and the model without all of them among the parts. Parts that can
stand in for each other both get their share, where removing one at a time says that neither is needed. It does not show
what a part computes; the values are of this kind of removal, on these sequences, among these players: what no player
holds is in every coalition. Most coalitions are far from anything the model was trained as. Accuracy jumps where the
log-probability slides, so that their values can differ. Intervals are of 95 % and hold both errors there are: over
sequences, as if they were drawn (1.96 standard errors), and over sampled orders (Student's t).

*Agreement with removal*, the dissociation table read both ways. Everything is a share of what is lost when all parts
are removed, in accuracy. By removal a part *costs* a skill if what is lost without it alone is more than the margin,
and *spares* it if it is less; by value it does if its Shapley value is. Intervals that hold the margin leave a cell
undecided. Both tables are judged by `ablation.dissociation`. Where parts only add, the two are equal. In general

    lost_i - value_i = 1/2 · sum over j of interaction_ij + higher orders

and the higher orders are 0 if no three parts work together (a 2-additive game, Grabisch 1997). So a part that removal
spares and that has a Shapley value stands in for others, and they for it: *redundancy*, if the sum is below 0. A part
that costs a skill and has little value works together with others only: *synergy*, above 0. A disagreement is called so
where the sum has the sign of the difference and makes up at least half of it, otherwise `higher orders`. Neither is the
right one: removal asks what the model as it is cannot do without, the value what a part adds to any set of the others.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float
from scipy import stats
from torch import Tensor

from mnemoscope.analyses.ablation import REPLACEMENTS, RemovalKind, heads_and_mlps, target_labels
from mnemoscope.analyses.dissociation_tables import LEARNED, MARGIN, Z, dissociation
from mnemoscope.analyses.forward import check_fits
from mnemoscope.analyses.games import (
    MAX_EXACT,
    METRICS,
    Play,
    error_and_margin,
    exact_values,
    make_game,
    n_played,
    player_pairs,
    sample_values,
)
from mnemoscope.analyses.neuron_removal import MIN_CARRIED, N_ERRORS
from mnemoscope.core.arguments import check_arguments
from mnemoscope.core.batch import Batch, Named
from mnemoscope.core.errors import InputError, in_range, one_of
from mnemoscope.core.numerics import to_numpy
from mnemoscope.core.protocols import ModelLike, resolve_model
from mnemoscope.core.site import Site
from mnemoscope.core.skills import SkillPlaces, Skills, skill_places


@dataclass(frozen=True, kw_only=True, eq=False)
class Shares:
    """Values of players, then of pairs, with their errors over sequences and over samples."""

    value: Float[Tensor, "index skill metric"]
    error: Float[Tensor, "index skill metric"]
    sampling_error: Float[Tensor, "index skill metric"]
    low: Float[Tensor, "index skill metric"]
    high: Float[Tensor, "index skill metric"]


def shares(parts: Iterable[Float[Tensor, "index outcome"]], places: SkillPlaces) -> Shares:
    """Figures of one exact reading of a game, or of several independent estimates; a single one has no spread."""
    total, means = torch.zeros(()), []
    for part in parts:
        total = total + part
        means.append(_read(part, places)[0])
    value, error = _read(total / len(means), places)
    sampling, width = error_and_margin(torch.stack(means)) if len(means) > 1 else (torch.zeros_like(value),) * 2
    half = ((Z * error).square() + width.square()).sqrt()
    return Shares(value=value, error=error, sampling_error=sampling, low=value - half, high=value + half)


def _read(
    outcome: Float[Tensor, "index outcome"], places: SkillPlaces
) -> tuple[Float[Tensor, "index skill metric"], Float[Tensor, "index skill metric"]]:
    """Means over the places of each skill, and their standard errors over sequences."""
    by_metric = outcome.to(places.weights).unflatten(1, (len(METRICS), -1)).unbind(1)
    means, errors = ([read(values) for values in by_metric] for read in (places.means, places.errors))
    return torch.stack(means, -1).cpu(), torch.stack(errors, -1).cpu()


def reference_scores(play: Play, places: SkillPlaces, n: int) -> dict[str, Tensor]:
    """The whole model, the model without any player, and what is lost without each of them alone."""
    there = torch.cat((torch.ones(1, n), torch.zeros(1, n), 1 - torch.eye(n))).bool()
    outcome = play(there)
    (full, empty, carried), (_, _, carried_error) = _read(
        torch.stack((outcome[0], outcome[1], outcome[0] - outcome[1])), places
    )
    lost, lost_error = _read(outcome[:1] - outcome[2:], places)
    return {
        "full": full,
        "empty": empty,
        "carried": carried,
        "carried_error": carried_error,
        "lost": lost,
        "lost_error": lost_error,
    }


def by_player(shares: Shares, n: int) -> dict[str, Tensor]:
    """Values over players, and interactions over two of them."""
    result = {}
    for name, values in vars(shares).items():
        result[name] = values[:n]
        if len(values) > n:
            square = values.new_full((n, n, *values.shape[1:]), torch.nan)
            first, second = player_pairs(n).T
            square[first, second] = square[second, first] = values[n:]
            result["interaction" if name == "value" else f"interaction_{name}"] = square
    return result


MAX_PLAYERS = 128
N_SAMPLES = 16
"""Sampled squares of orders, where the caller does not say."""
MIN_SAMPLES = 8
"""Fewer give no interval to be trusted."""


@check_arguments
def shapley(
    model: ModelLike,
    batch: Batch,
    *,
    skills: Skills,
    reference: Batch,
    targets: Mapping[str, Sequence[Site]] | None = None,
    kinds: Sequence[RemovalKind] = ("mean",),
    within: str | None = None,
    interactions: bool = True,
    n_samples: int | None = None,
    max_bytes: int | None = None,
    seed: int = 0,
) -> xr.Dataset:
    """Shapley values and pairwise interactions of components by skill.

    Args:
        model: A run, a subject or any hooked model whose vocabulary and context are large enough.
        batch: Sequences that test the skills; its weights, if it has them, count within a skill.
        skills: For each skill the positions whose answer it alone gives (`task.skills(batch)`).
        reference: Sequences that means and resampled activations come from; as long as those of `batch`.
        targets: The players: name to the sites that are removed together (`ablation.targets`); none: every head and
            every MLP for itself.
        kinds: How players are removed: `zero`, `mean`, `resample` (one draw per sequence, the same in every coalition).
        within: Name of a latent: means and resampled activations come from sequences of the same class.
        interactions: Whether to give these too; where orders are sampled, they double the work.
        n_samples: Sample so many squares of orders; none: play every coalition of up to 12 players, and sample 16
            squares of more. n players have n² coalitions in a square, 2 n² with interactions.
        max_bytes: Bound on what a forward pass allocates; results do not depend on it. None: 256 MiB, or what one
            sequence needs.
        seed: Orders and resampling come from this seed's streams `orders` and `resample`.

    Returns:
        Over (kind, component, skill, metric), for accuracy and log-probability (nats): `value`; `error` over
        sequences and `sampling_error` over orders (standard errors); the interval `low` to `high`; `lost`, what
        removing this one alone costs, with `lost_error` over sequences. Over (kind, skill, metric): `full` and
        `empty`, the model with all players and with none, and `carried`, their difference, which the values add up
        to, with `carried_error`. With interactions, over (kind, component, other, skill, metric), NaN for a
        component with itself: `interaction` and the same four with that prefix.

    Raises:
        InputError: There are too few or too many players, two share a site, or one cannot be removed that way. The
            model is too small for the batch, a skill is tested nowhere, the reference has another length,
            `max_bytes` does not suffice, or the logits hold NaN.

    >>> shares = ms.shapley(model, batch, skills=skills, reference=batch)
    >>> shares.value.dims
    ('kind', 'component', 'skill', 'metric')
    """
    model = resolve_model(model, batch=batch, reference=reference)
    players = heads_and_mlps(model) if targets is None else targets
    _check(players, kinds, n_samples)
    check_fits(model, batch)
    places, source = skill_places(batch, skills), Named(name="reference", value=reference)
    n, sampled = len(players), n_samples is not None or len(players) > MAX_EXACT
    n_samples = (n_samples or N_SAMPLES) if sampled else 1
    cells = []
    for kind in kinds:
        removed: Any = {"kind": kind, "source": source, "within": within, "seed": seed}
        play = make_game(model, batch, players=players, places=places, max_bytes=max_bytes, **removed)
        if sampled:
            parts = sample_values(play, n, n_samples=n_samples, seed=seed, interactions=interactions)
        else:
            parts = [exact_values(play, n, interactions=interactions)]
        cells.append(reference_scores(play, places, n) | by_player(shares(parts, places), n))
    return xr.Dataset(
        {name: _array(name, [cell[name] for cell in cells]) for name in cells[0]},
        coords={
            "kind": list(kinds),
            "component": list(players),
            "skill": list(skills),
            "metric": list(METRICS),
            **({"other": list(players)} if interactions else {}),
            **target_labels(players, batch),
        },
        attrs={
            "log_prob_unit": "nats",
            "method": "sampled orders" if sampled else "every coalition",
            "n_samples": n_samples if sampled else 0,
            "n_coalitions": n_samples * n_played(n, interactions) if sampled else 2**n,
            "interval": "95 %, over sequences" + (" and over orders" if sampled else ""),
            "n": len(batch),
            "n_reference": len(reference),
            "reference": str(source),
            "within": within or "all sequences",
            "weights": "unprocessed",
        },
    )


def _check(players: Mapping[str, Sequence[Site]], kinds: Sequence[RemovalKind], n_samples: int | None) -> None:
    for kind in kinds:
        one_of("the kind of a removal", kind, REPLACEMENTS)
    if not kinds:
        raise InputError(f"kinds must name at least one of: {', '.join(REPLACEMENTS)}; got none")
    in_range("the number of players (group some of them)", len(players), 2, MAX_PLAYERS)
    if n_samples is not None:
        in_range("n_samples", n_samples, MIN_SAMPLES, float("inf"))
    owner: dict[Site, str] = {}
    for name, sites in players.items():
        if not sites:
            raise InputError(f"player {name} has no site; name at least one, or leave it out")
        for site in sites:
            if owner.setdefault(site, name) != name:
                raise InputError(f"{site} belongs to {owner[site]} and to {name}; give every site to one player")


def _array(name: str, cells: Sequence[Tensor]) -> tuple[tuple[str, ...], object]:
    values = to_numpy(torch.stack(list(cells)))
    between = {3: (), 4: ("component",), 5: ("component", "other")}[values.ndim]
    return ("kind", *between, "skill", "metric"), values


MIN_EXPLAINED = 0.5
"""The least share of the difference that pairs must explain."""
_DECIMALS = 9


def removal_agreement(result: xr.Dataset, *, margin: float = MARGIN, learned: float = LEARNED) -> xr.Dataset:
    """Single removals against Shapley values, by skill.

    `result` comes from `shapley`, with interactions; over `component`, or over `role` (`analyses.roles.by_role`). A
    part costs a skill above `margin`, a share in (0, 1) of what all parts carry. A skill counts as learned from the
    accuracy `learned` of the intact model on. Raises InputError where there are no interactions, or one skill only.

    Returns:
        Over (kind, component or role, skill): `lost_share` and `value_share`; `by_removal` and `by_value` (`costs`,
        `spares`, `undecided`); `agreement` (`agrees`, `disagrees`, `undecided`); `pairs`, half the sum of its
        interactions, and `rest`, the higher orders, as shares; `reason` of a disagreement (`redundancy`, `synergy`,
        `higher orders`) and `partner`, the part that it interacts most with in that direction. Over (kind, skill):
        `rank_correlation` (Spearman's) of what is lost with values. Over (kind, skill, other_skill):
        `removal_outcome` and `value_outcome`, as `dissociation` gives them.

    >>> shares = ms.shapley(model, batch, skills=skills, reference=batch)
    >>> ms.analyses.removal_agreement(shares).reason.dims
    ('kind', 'skill', 'component')
    """
    if "interaction" not in result:
        raise InputError("agreement needs interactions; call shapley with interactions=True")
    in_range("margin", margin, 0, 1)
    at = result.sel(metric="accuracy", drop=True)
    part = "role" if "role" in at.dims else "component"
    carried = at.carried.where((at.carried >= MIN_CARRIED) & (at.carried >= N_ERRORS * at.carried_error))
    lost, value = at.lost / carried, at.value / carried
    pairs = at.interaction.sum("other") / 2 / carried
    tables = {
        "removal": _table(at.full, lost, at.lost_error / carried, margin, learned),
        "value": _table(at.full, value, (at.high - at.low) / (2 * Z) / carried, margin, learned),
    }
    by_removal, by_value = (table.effect for table in tables.values())
    undecided = (by_removal == "undecided") | (by_value == "undecided")
    agrees = xr.where(undecided, "undecided", xr.where(by_removal == by_value, "agrees", "disagrees"))
    difference = lost - value
    explained = pairs * np.sign(difference) >= MIN_EXPLAINED * abs(difference)
    reason = xr.where(explained, xr.where(difference < 0, "redundancy", "synergy"), "higher orders")
    disagrees = agrees == "disagrees"
    partner = (at.interaction * np.sign(difference)).fillna(-np.inf).idxmax("other")
    return xr.Dataset(
        {
            "lost_share": lost,
            "value_share": value,
            "by_removal": by_removal,
            "by_value": by_value,
            "agreement": agrees,
            "pairs": pairs,
            "rest": difference - pairs,
            "reason": xr.where(disagrees, reason, ""),
            "partner": xr.where(disagrees & explained, partner, ""),
            "rank_correlation": xr.apply_ufunc(
                _rank_correlation, lost, value, input_core_dims=[[part]] * 2, vectorize=True
            ),
            **{f"{name}_outcome": table.outcome for name, table in tables.items()},
        },
        attrs={"margin": margin, "learned": learned, "unit": "share of what all parts carry, in accuracy"},
    )


def _table(full: xr.DataArray, share: xr.DataArray, error: xr.DataArray, margin: float, learned: float) -> xr.Dataset:
    """The dissociation table in which a part's removal costs a share."""
    table = xr.Dataset({"accuracy": full - share, "accuracy_error": error, "clean_accuracy": full})
    return dissociation(table, margin=margin, learned=learned)


def _rank_correlation(first: np.ndarray, second: np.ndarray) -> float:
    """Spearman's; NaN where one of the two is constant, or missing. Rounding does not separate equal values."""
    first, second = first.round(_DECIMALS), second.round(_DECIMALS)
    if np.ptp(first) > 0 and np.ptp(second) > 0:
        return float(np.corrcoef(stats.rankdata(first), stats.rankdata(second))[0, 1])
    return float("nan")
