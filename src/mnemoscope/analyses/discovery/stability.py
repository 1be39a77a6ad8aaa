"""Circuits that stay: would the circuit be the same with other prompts, another choice of the analyst, another seed?

A circuit is found on several draws of prompts under the *usual* choices. On each draw every choice is then changed
alone: the wording of the prompts, the metric, what edges outside carry, the target, the search. At last all are changed
at once: for each draw one combination, every factor drawn at random. For each of these changes:

- the *overlap* (Jaccard) of circuits: with the usual circuit of the same draw; under the usual choices, and with all
  changed at once, between draws;
- each edge's *share* of the circuits, and the *core*: edges in nearly all circuits;
- what chance gives for circuits of these sizes (`chance`): random connected ones on the same graph.

An overlap that is no higher than that of random circuits is chance, however large. A circuit of nearly all edges
overlaps with any other. *Contrasts* are pairs that differ in something else; they ask another question, are compared
with the usual pairs, and take no part in `all at once`.

*Shows* which choice moves the circuit, and which edges do not hang on the choices that were tried. *Does not show* that
an edge of the core is needed, nor that one outside is not: searches share biases, and draws of one task have prompts in
common. Between seeds heads are compared by role: a wrong role lowers the overlap.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product

import numpy as np
import torch
import xarray as xr
from jaxtyping import Bool, Float

from mnemoscope.analyses.discovery.chance import Place, RandomCircuits, edge_tests, overlap_test, pair_overlaps
from mnemoscope.analyses.discovery.rankings import CIRCUIT_SEARCHES, CircuitSearch
from mnemoscope.analyses.discovery.setting import Setting
from mnemoscope.core.arguments import check_arguments
from mnemoscope.core.errors import InputError, in_range
from mnemoscope.core.metrics import KL, LOG_PROB, LOGIT_DIFF, Metric
from mnemoscope.core.pairs import PromptPairs
from mnemoscope.core.protocols import ModelLike
from mnemoscope.core.seeding import generator, stream_seed
from mnemoscope.core.site import edge_coordinates
from mnemoscope.interventions.edge_states import EdgeReplacement
from mnemoscope.interventions.graph import Embeddings

PROMPTS, ALL = "other prompts", "all at once"
"""Changes: nothing but the prompts, and every choice."""
USUAL = "usual"
"""The name of the pairs that others are compared with."""
FACTORS = {"pairs": "wording"}
"""Words for the choices that are called otherwise in tables."""
CORE = 0.9
"""Share of circuits from which on an edge belongs to the core."""
ALPHA = 0.05
"""An overlap with a larger p is chance."""
METRICS = (LOGIT_DIFF, LOG_PROB, KL)
REPLACEMENTS: tuple[EdgeReplacement, ...] = ("patch", "mean", "zero")
TARGETS = (0.9, 0.8, 0.95)
"""Choices by default; the first is the usual one."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The choices that a circuit is found under; `factor` and `level` say which of them was changed, to what."""

    factor: str
    level: str
    pairs: str
    metric: Metric
    replacement: EdgeReplacement
    target: float
    search: str

    @property
    def label(self) -> str:
        """The change in words."""
        return f"{self.factor} {self.level}".strip()

    @property
    def words(self) -> dict[str, str]:
        """All choices by name."""
        names = {"pairs": self.pairs, "metric": self.metric.name, "replacement": self.replacement}
        return {**names, "target": f"{self.target:g}", "search": self.search}

    def setting(self, ground: Setting) -> Setting:
        """The setting on the pairs of a ground."""
        return ground.changed(metric=self.metric, replacement=self.replacement)


def resample_pairs(pairs: PromptPairs, n_draws: int, *, seed: int = 0) -> list[PromptPairs]:
    """Draws of as many pairs from given ones, with replacement, where no fresh prompts can be had.

    Draws come from the seed's stream `resampled`. They share about two thirds of the prompts, so that they vary less
    than fresh ones.

    >>> [len(drawn) for drawn in ms.analyses.resample_pairs(pairs, 2)] == [len(pairs)] * 2
    True
    """
    in_range("n_draws", n_draws, 1, float("inf"))
    stream, n = generator(seed, "resampled"), len(pairs)
    return [pairs.select(torch.randint(n, (n,), generator=stream)) for _ in range(n_draws)]


@check_arguments
def circuit_stability(
    model: ModelLike,
    pairs: Sequence[PromptPairs],
    *,
    wordings: Mapping[str, Sequence[PromptPairs]] | None = None,
    contrasts: Mapping[str, Sequence[PromptPairs]] | None = None,
    metrics: Sequence[Metric] = METRICS,
    replacements: Sequence[EdgeReplacement] = REPLACEMENTS,
    targets: Sequence[float] = TARGETS,
    searches: Mapping[str, CircuitSearch] = CIRCUIT_SEARCHES,
    embeddings: Embeddings = "together",
    core: float = CORE,
    n_random: int = 200,
    refuse: bool = True,
    max_bytes: int | None = None,
    max_seconds: float | None = 600.0,
    seed: int = 0,
) -> xr.Dataset:
    """Circuits of a model under other prompts and other choices, their overlap, and the edges that stay.

    Of `metrics`, `replacements`, `targets` and `searches` the first is the usual choice. Random circuits and the
    combinations of `all at once` come from the seed's streams. A search that does not fit a combination is not made.

    Args:
        model: A run, a subject or a model.
        pairs: At least two draws of pairs, fresh or from `resample_pairs`.
        wordings: The same question in other words (templates): name to as many draws.
        contrasts: Pairs that differ in another respect: name to as many draws.
        metrics: As in `Setting`.
        replacements: As in `Setting`.
        targets: Faithfulness that circuits are to reach.
        searches: By name; `ms.analyses.CIRCUIT_SEARCHES` has all.
        embeddings: As in `Setting`.
        core: Share of circuits from which on an edge belongs to the core.
        n_random: Random circuits for each circuit.
        refuse: As in `Setting`, for the usual choices on every draw. Others that tell nothing apart find no circuit.
        max_bytes: As in `Setting`.
        max_seconds: As in `Setting`, for all searches together.
        seed: An integer.

    Returns:
        Over `change`, the labels of the changes (`other prompts`, the usual choices; `metric kl` and so on; `all at
        once`), with coordinates `factor` and `level`:

        - `circuit` over (change, draw, edge), `n_edges` over (change, draw), 0 where none was found; `n_found`;
        - `share`, `expected` by chance, `p`, `q` and `core` over (change, edge);
        - `jaccard`, `by_chance` (its mean over random circuits) and `p_jaccard`; `overlap` over (change, draw): the
          mean of a draw; `random` over (change, null).

        `choice` over (draw, name): the combinations of `all at once`.

    Raises:
        InputError: There are fewer than two draws, or not as many of each wording; a wording and a contrast share a
            name; a list of choices is empty; a number is out of range; or as `Setting.span`.

    >>> draws = ms.analyses.resample_pairs(pairs, 3)
    >>> few = {"metrics": [ms.core.metrics.LOGIT_DIFF], "replacements": ["patch"], "n_random": 20}
    >>> found = ms.analyses.circuit_stability(model, draws, **few)
    >>> found.change.values.tolist()[:3]
    ['other prompts', 'target 0.8', 'target 0.95']
    """
    asked = {USUAL: pairs, **(wordings or {})}
    compared = {**(contrasts or {})}
    if twice := sorted(asked.keys() & compared.keys()):
        raise InputError(f"wordings and contrasts must have names of their own; both have {twice[0]}; rename one")
    _check(asked | compared, metrics=metrics, replacements=replacements, targets=targets, searches=searches)
    in_range("core", core, 0, 1)
    in_range("n_random", n_random, 1, float("inf"))
    ground = Setting(
        model=model,
        pairs=pairs[0],
        embeddings=embeddings,
        refuse=refuse,
        max_bytes=max_bytes,
        max_seconds=max_seconds,
    )
    every = _combinations(ground, asked, metrics, replacements, targets, searches)
    usual = every[0]
    changes = _single_changes(every, compared)
    stream = np.random.default_rng(stream_seed(seed, "choices"))
    joint = [replace(every[i], factor=ALL, level="") for i in stream.integers(len(every), size=len(pairs))]
    plan = [[usual, *changes, at_once] for at_once in joint]
    distinct = [
        choice for each in plan for choice in {tuple(choice.words.values()): choice for choice in each}.values()
    ]
    _check_time(ground, distinct, searches)
    circuits = np.stack(
        [
            _find(ground, {name: each[draw] for name, each in (asked | compared).items()}, choices, searches)
            for draw, choices in enumerate(plan)
        ],
        1,
    )
    chance = RandomCircuits(n_random=n_random, n_circuits=circuits.shape[0] * circuits.shape[1], seed=seed)
    labelled = {
        "change": [choice.label for choice in plan[0]],
        "factor": ("change", [choice.factor for choice in plan[0]]),
        "level": ("change", [choice.level for choice in plan[0]]),
        "draw": range(len(pairs)),
        "name": list(usual.words),
    }
    return xr.Dataset(
        {
            "circuit": (("change", "draw", "edge"), circuits),
            "n_edges": (("change", "draw"), circuits.sum(-1)),
            "n_found": ("change", circuits.any(-1).sum(-1)),
            **_compare_with_chance(ground, circuits, plan, chance, core),
            "choice": (("draw", "name"), [list(choice.words.values()) for choice in joint]),
        },
        coords={**edge_coordinates(ground.edges), **labelled},
        attrs={**usual.setting(ground).attrs, "core": core, "n_random": n_random, "seed": seed},
    )


def _check(pairs: Mapping[str, Sequence[PromptPairs]], **choices: Collection[object]) -> None:
    n_draws = len(pairs[USUAL])
    if n_draws < 2:
        raise InputError(f"pairs must hold at least two draws, to compare their circuits; got {n_draws}")
    for name, each in pairs.items():
        if len(each) != n_draws:
            raise InputError(f"{name} must have as many draws as pairs, {n_draws}; got {len(each)}")
    for name, each in choices.items():
        if not each:
            raise InputError(f"{name} must name at least one choice, the usual one first; got none")


def _combinations(
    ground: Setting,
    pairs: Iterable[str],
    metrics: Sequence[Metric],
    replacements: Sequence[EdgeReplacement],
    targets: Sequence[float],
    searches: Mapping[str, CircuitSearch],
) -> list[Choice]:
    """Every combination that its search can be made on; the usual one first."""
    every = [
        Choice(factor=PROMPTS, level="", pairs=name, metric=metric, replacement=other, target=target, search=search)
        for name, metric, other, target, search in product(pairs, metrics, replacements, targets, searches)
    ]
    fits = [searches[choice.search].fits(choice.setting(ground)) for choice in every]
    if not fits[0]:
        raise InputError(
            f"the usual search, {every[0].search}, does not fit metric {every[0].metric.name} with replacement "
            f"{every[0].replacement}; put another first"
        )
    return [choice for choice, fit in zip(every, fits, strict=True) if fit]


def _single_changes(every: Sequence[Choice], contrasts: Iterable[str]) -> list[Choice]:
    """The combinations that differ from the first in one choice, named after it; contrasts last."""
    usual, found = every[0].words, []
    for choice in every:
        changed = {name: level for name, level in choice.words.items() if level != usual[name]}
        if len(changed) == 1:
            ((name, level),) = changed.items()
            found.append(replace(choice, factor=FACTORS.get(name, name), level=level))
    order = ["wording", "metric", "replacement", "target", "search"]
    others = [replace(every[0], factor="contrast", level=name, pairs=name) for name in contrasts]
    return [*sorted(found, key=lambda choice: order.index(choice.factor)), *others]


def _check_time(ground: Setting, choices: Sequence[Choice], searches: Mapping[str, CircuitSearch]) -> None:
    n_circuits = sum(searches[choice.search].n_circuits(len(ground.edges)) for choice in choices)
    ground.check_time(n_circuits, "stability", "leave out searches that run each edge, or give fewer draws and choices")


def _find(
    ground: Setting, pairs: Mapping[str, PromptPairs], choices: Sequence[Choice], searches: Mapping[str, CircuitSearch]
) -> Bool[np.ndarray, "choice edge"]:
    """The circuit of every choice on one draw; empty where none is found. What choices share is made once."""
    settings: dict[tuple[str, str, str], Setting] = {}
    groups: dict[tuple[Setting, str], list[int]] = {}
    for number, choice in enumerate(choices):
        kind = (choice.pairs, choice.metric.name, choice.replacement)
        if kind not in settings:
            refuse = ground.refuse and not settings  # the usual choices come first
            settings[kind] = choice.setting(ground.changed(pairs=pairs[choice.pairs], refuse=refuse))
        groups.setdefault((settings[kind], choice.search), []).append(number)
    found = np.zeros((len(choices), len(ground.edges)), dtype=bool)
    for (setting, search), members in groups.items():
        targets, which = np.unique([choices[number].target for number in members], return_inverse=True)
        found[members] = searches[search].find(setting, targets.tolist())[which]
    return found


def _compare_with_chance(
    ground: Setting,
    circuits: Bool[np.ndarray, "change draw edge"],
    plan: Sequence[Sequence[Choice]],
    chance: RandomCircuits,
    core: float,
) -> dict[str, tuple[str | tuple[str, ...], np.ndarray]]:
    """The variables on overlap and on shares of edges, for every change."""
    n_changes, n_draws, _ = circuits.shape
    grounds = {choice.replacement: choice.setting(ground) for each in plan for choice in each}
    sizes = circuits.sum(-1)

    def drawn(place: Place) -> Bool[np.ndarray, "null edge"]:
        change, draw = place
        setting = grounds[plan[draw][change].replacement]
        return chance.draw(setting, int(sizes[place]), change + draw * n_changes)

    tests, edges, overlap, random = [], [], np.full((n_changes, n_draws), np.nan), []
    for change in range(n_changes):
        pairs = _compared_pairs(sizes > 0, change)
        each, by_chance = pair_overlaps(pairs, circuits.__getitem__, drawn)
        for draw in range(n_draws):
            inside = [any(place == (change, draw) for place in pair) for pair in pairs]
            overlap[change, draw] = each[inside].mean() if any(inside) else np.nan
        random.append(_random_means(by_chance, chance.n_random, replicates=not _is_single(change, n_changes)))
        tests.append(overlap_test(each, random[-1]))
        there = np.flatnonzero(sizes[change]).tolist()
        often = [chance.frequency(grounds[plan[d][change].replacement], int(sizes[change, d])) for d in there]
        edges.append(edge_tests(circuits[change, there], np.array(often)))
    by_edge = {name: np.stack([each[name] for each in edges]) for name in edges[0]}
    return {
        **{name: ("change", np.array([test[name] for test in tests])) for name in tests[0]},
        "overlap": (("change", "draw"), overlap),
        "random": (("change", "null"), np.stack(random)),
        **{name: (("change", "edge"), values) for name, values in by_edge.items()},
        "core": (("change", "edge"), by_edge["share"] >= core),
    }


def _is_single(change: int, n_changes: int) -> bool:
    """True for changes of one choice: all but the first, the usual choices, and the last, all at once."""
    return 0 < change < n_changes - 1


def _random_means(
    by_chance: Float[np.ndarray, "pair null"], n_random: int, *, replicates: bool
) -> Float[np.ndarray, " null"]:
    """The overlap of random circuits: means over pairs, or of one pair in turn where pairs are no replicates."""
    if not len(by_chance):
        return np.full(n_random, np.nan)
    turn = np.arange(n_random)
    return by_chance.mean(0) if replicates else by_chance[turn % len(by_chance), turn]


def _compared_pairs(there: Bool[np.ndarray, "change draw"], change: int) -> list[tuple[Place, Place]]:
    """The circuits that a change compares: with the usual one of the same draw, or those of different draws."""
    if _is_single(change, len(there)):
        return [((0, int(draw)), (change, int(draw))) for draw in np.flatnonzero(there[0] & there[change])]
    return [((change, one), (change, other)) for one, other in combinations(np.flatnonzero(there[change]).tolist(), 2)]
