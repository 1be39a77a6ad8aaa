"""A circuit of attention whose patterns are chosen together, and the heads that matter alone.

`circuit_effects` accepts the pattern of each head by itself and then sets all of them at once, so that errors add up.
Here the pattern of a head is chosen given those of all other heads. The menu is the source's (Musat, appendix E): one
place of the chain for each place that the head attends from, all keys alike, or the query itself. Heads are taken from
the last layer to the first, twice. Of patterns whose errors differ by less than `ALIKE` the simplest is taken. Then
paths are dropped, the cheapest first, as long as the error of the whole circuit rises by at most `BUDGET`.

A quarter of the sequences chooses and the others test. Where a path is taken out, its queries attend to all keys alike
or to themselves, whichever hurts less.

*Shows* that such a circuit exists. *Does not show* that another order, or more rounds, would find no better one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import product
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from mnemoscope import Batch, HookedModel, Mean, Named, Site, Subject, generator, run_with
from mnemoscope.analyses import layer_attention
from mnemoscope.claims import GATE
from mnemoscope.core import Mechanism, one_of
from mnemoscope.core.patterns import fixed, identity, uniform, with_fallback
from mnemoscope.systems.retrieval.analyses import LEVEL, chain_attention, strongest, within_chain
from mnemoscope.systems.retrieval.claim_parts import partial_losses, task_of

N_CHOOSING, N_TESTING = 64, 192
ALIKE = 0.002
BUDGET = 0.04
"""Rise of the error that dropping paths may come to, on the sequences that choose: .01 below what the claim allows."""
ROUNDS = 2
MATTERS = 0.05
"""Rise of the error without the output of one head from which the head matters alone."""

Others = Literal["menu", "mean"]
Head = tuple[int, int]
Place = tuple[int, int]
"""From which place of the chain to which."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Choice:
    """The pattern of a head: from some places to one place each, and `rest` from all other positions."""

    places: tuple[Place, ...]
    rest: Mechanism

    @property
    def mechanism(self) -> Mechanism:
        """The pattern, which says something about every query."""
        return reduce(with_fallback, [*(within_chain(*place) for place in self.places), self.rest])


Circuit = dict[Head, Choice]


class PatternErrors:
    """The squared error of a model on a batch, with the patterns of some heads set."""

    def __init__(self, model: HookedModel, subject: Subject, batch: Batch):
        self._model, self._task, self._batch = model, task_of(subject), batch
        self._rows: dict[tuple[Head, tuple[Place, ...], str], Tensor] = {}
        self.clean = self({})

    @torch.no_grad()
    def __call__(self, circuit: Circuit) -> float:
        """The error, mean over symbols."""
        layers: dict[int, dict[int, Tensor]] = {}
        for head, choice in circuit.items():
            layers.setdefault(head[0], {})[head[1]] = self._pattern(head, choice)
        hooks = [
            (f"blocks.{layer}.attn.hook_pattern", partial(_set_patterns, patterns))
            for layer, patterns in layers.items()
        ]
        return float(self._task.loss(self._model.run_with_hooks(self._batch.inputs, fwd_hooks=hooks), self._batch))

    def rise(self, circuit: Circuit) -> float:
        """The error above that of the model as it is."""
        return self(circuit) - self.clean

    def _pattern(self, head: Head, choice: Choice) -> Float[Tensor, "batch query key"]:
        key = (head, choice.places, choice.rest.name)
        if key not in self._rows:
            self._rows[key] = choice.mechanism.pattern(self._batch)
        return self._rows[key]


def _set_patterns(
    patterns: dict[int, Tensor], pattern: Float[Tensor, "batch head_index query key"], **_: object
) -> Float[Tensor, "batch head_index query key"]:
    result = pattern.clone()
    for head, rows in patterns.items():
        result[:, head] = rows.to(result)
    return result


def menu(model: HookedModel, batch: Batch, others: Others) -> dict[Head, list[Choice]]:
    """The patterns to choose from for each head, the simplest first; heads from the last layer to the first.

    Places are read off the head: from each place the one that gets half of its attention or more. `others` says what
    other positions do: all alike or themselves (`menu`), or what the head does on average over the batch (`mean`).
    """
    one_of("others", others, ("menu", "mean"))
    found: dict[Head, list[Choice]] = {}
    for layer in reversed(range(model.cfg.n_layers)):
        within, learned = chain_attention(model, batch, layers=[layer]).sel(layer=layer), None
        if others == "mean":
            learned = layer_attention(model, layer, batch).mean(0)
        for head in range(model.cfg.n_heads):
            own = strongest(within.sel(head=head), LEVEL)
            idle = [uniform(), identity()]
            rests = idle if learned is None else [fixed("its mean", learned[head])]
            sets = dict.fromkeys([*((place,) for place in own), *((tuple(own),) if own else ())])
            chosen = [Choice(places=(), rest=rest) for rest in dict.fromkeys([*idle, *rests])]
            found[layer, head] = [*chosen, *(Choice(places=p, rest=r) for p, r in product(sets, rests))]
    return found


def choose_together(at: PatternErrors, menus: dict[Head, list[Choice]]) -> Circuit:
    """The pattern of every head, chosen given those of the others."""
    circuit: Circuit = {}
    for head, options in [*menus.items()] * ROUNDS:
        errors = [at({**circuit, head: option}) for option in options]
        circuit[head] = next(
            option for option, error in zip(options, errors, strict=True) if error <= min(errors) + ALIKE
        )
    return circuit


def paths_of(circuit: Circuit) -> list[tuple[Head, Place]]:
    """The paths of a circuit: a head, and a place that it connects with another."""
    return [(head, place) for head, choice in circuit.items() for place in choice.places]


def without(at: PatternErrors, circuit: Circuit, path: tuple[Head, Place]) -> tuple[float, Circuit]:
    """The error without a path, whose queries attend as hurts least, and the circuit that is left."""
    head, place = path
    choice = circuit[head]
    left = tuple(each for each in choice.places if each != place)
    rests = {choice.rest.name: choice.rest, "uniform": uniform(), "identity": identity()}
    found = [{**circuit, head: replace(choice, places=left, rest=rest)} for rest in rests.values()]
    errors = [at(each) for each in found]
    best = min(range(len(errors)), key=errors.__getitem__)
    return errors[best], found[best]


def prune(at: PatternErrors, circuit: Circuit) -> Circuit:
    """The circuit without paths, the cheapest first, as long as its error rises by at most `BUDGET` in all."""
    while paths := paths_of(circuit):
        error, left = min((without(at, circuit, path) for path in paths), key=lambda found: found[0])
        if error - at.clean > BUDGET:
            break
        circuit = left
    return circuit


def heads_alone(subject: Subject, batch: Batch, reference: Batch) -> list[float]:
    """The rise of the error without each head: its output is its mean over other sequences, position by position."""
    task, model = task_of(subject), subject.model
    source = Named(name="reference", value=reference)
    clean = float(task.loss(run_with(model, batch, []), batch))
    sites = [Site(kind="z", layer=layer, head=head) for layer, head in _heads(model)]
    return [float(task.loss(run_with(model, batch, [Mean(site=site, source=source)]), batch)) - clean for site in sites]


def _heads(model: HookedModel) -> Sequence[Head]:
    return [*product(range(model.cfg.n_layers), range(model.cfg.n_heads))]


def _parted(subject: Subject) -> tuple[Batch, Batch]:
    """Sequences to choose by, and to test on."""
    task = task_of(subject)
    batch = task.sample(N_CHOOSING + N_TESTING, split="test", generator=generator(subject.seed, "joint circuit"))
    choosing, testing = torch.arange(len(batch)).split([N_CHOOSING, N_TESTING])
    return batch.select(choosing), batch.select(testing)


@torch.no_grad()
def take_apart_together(subject: Subject, *, others: Others = "menu") -> dict[str, float]:
    """The effects of a circuit that is chosen together, on the sequences that did not choose it, and `GATE`.

    `others` says what positions do that no path is about: as in `menu`.
    """
    choosing, testing = _parted(subject)
    at = PatternErrors(subject.model, subject, choosing)
    whole = choose_together(at, menu(subject.model, choosing, others))
    circuit = prune(at, whole)
    tested = PatternErrors(subject.model, subject, testing)
    kept = tested(circuit)
    rises = {path: without(tested, circuit, path)[0] - kept for path in paths_of(circuit)}
    lowest = min((head[0] for head, _ in rises), default=0)
    above = [rise for ((layer, _), _), rise in rises.items() if layer > lowest]
    query, elsewhere = (
        [rise for (_, (place, _)), rise in rises.items() if (place == 0) == own] for own in (True, False)
    )
    return {
        "kept": kept - tested.clean,
        "kept with every path": tested.rise(whole),
        "removed": min(above, default=0.0),
        "at_query": min(query, default=0.0),
        "elsewhere": max(elsewhere, default=0.0),
        "first": max((rise for ((layer, _), _), rise in rises.items() if layer == lowest), default=0.0),
        "paths": float(len(rises)),
        "heads": float(len({head for head, _ in rises})),
        "first_hop": min((rise for (_, place), rise in rises.items() if place == (0, 2)), default=0.0),
        GATE: max(partial_losses(subject).values()),
    }


@torch.no_grad()
def matter_alone(subject: Subject, *, matters: float = MATTERS) -> dict[str, float]:
    """The share of the heads without which the error rises by more than `matters` (`share`), and `GATE`."""
    reference, batch = _parted(subject)
    rises = torch.tensor(heads_alone(subject, batch, reference))
    return {
        "share": float((rises > matters).double().mean()),
        "heads": float((rises > matters).sum()),
        "largest": float(rises.max()),
        GATE: max(partial_losses(subject).values()),
    }
