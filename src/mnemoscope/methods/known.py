"""Models whose circuit is known: by construction, or as far as verdicts on trained models have established it.

By construction every edge is judged: those of the circuit carry the answer, and no other edge carries any of it. A
verdict on trained models says so of some edges only. Their circuit names the edges that are `absent` too; precision,
recall and AUROC are over these two kinds, and all other edges are unjudged. A method by which the circuit was
established is not tried on it. Where nothing is known, as of a language model, both sides are empty, and methods have
measures of faithfulness alone.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from mnemoscope.core.errors import InputError
from mnemoscope.core.guests import Registry
from mnemoscope.core.pairs import PromptPairs
from mnemoscope.core.protocols import HookedModel
from mnemoscope.interventions.graph import Embeddings, check_graph, model_edges
from mnemoscope.models.run import find_runs
from mnemoscope.models.subjects import Subject, subject
from mnemoscope.models.zoo import archive_file


@dataclass(frozen=True, kw_only=True, eq=False)
class KnownCircuit:
    """A model, pairs of prompts, and the edges that carry the answer on them.

    Attributes:
        name: The name in tables.
        family: Circuits that are variants of one program or of one mechanism; intervals are taken over families.
        source: The program, or the sentence that says what each part does.
        model: The model.
        pairs: Draws a number of pairs from a seed.
        edges: The edges of the circuit, named as `str(edge)` names those of `model_edges`.
        embeddings: Whether the circuit names token and positional embeddings `together` or `apart`.
        absent: Edges that carry nothing of the answer. None: all that are not in the circuit. Empty, as are `edges`:
            nothing is known.
        established_by: Methods that took part in establishing the circuit, by name; they are not tried on it.

    Raises InputError where an edge does not exist in the model or is on both sides, or one side is empty.
    """

    name: str
    family: str
    source: str
    model: HookedModel
    pairs: Callable[[int, int], PromptPairs]
    edges: frozenset[str]
    embeddings: Embeddings = "together"
    absent: frozenset[str] | None = None
    established_by: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_graph(self.model)
        sides = {"edges": self.edges} if self.absent is None else {"edges": self.edges, "absent": self.absent}
        sides = sides if self.edges or self.absent != frozenset() else {}
        for side, names in sides.items():
            unknown = sorted(names - {str(edge) for edge in model_edges(self.model, embeddings=self.embeddings)})
            if unknown or not names:
                raise InputError(
                    f"{side} of the known circuit {self.name} must be at least one edge of the model, named as "
                    f"interventions.model_edges names them; got {', '.join(unknown) or 'none'}"
                )
        if both := sorted(self.edges & (self.absent or frozenset())):
            raise InputError(f"the known circuit {self.name} has edges that are absent too: {', '.join(both)}")


KNOWN_CIRCUITS: Registry[Callable[[], KnownCircuit]] = Registry("known circuit", "circuits")
"""Functions that build a known circuit, by its name; guests add theirs in a module `circuits`."""


def plant_circuit(
    name: str,
    *,
    family: str,
    source: str,
    make: Callable[[], HookedModel],
    pairs: Callable[[int, int], PromptPairs],
    edges: Iterable[str],
) -> None:
    """Register a hand-set model and its edges as a known circuit; the model is built when the circuit is."""

    def build() -> KnownCircuit:
        return KnownCircuit(
            name=name, family=family, source=source, model=make(), pairs=pairs, edges=frozenset(edges)
        )  # fmt: skip

    KNOWN_CIRCUITS.add(name, build)


@dataclass(frozen=True, kw_only=True)
class TrainedCircuit:
    """A known circuit of a run in the zoo, built when it is called.

    Attributes:
        name: The name in tables, without the seed.
        label: The configuration of the zoo.
        seed: The run.
        source: The claims that establish the circuit, and what they measured.
        sides: The edges of the circuit and the absent ones, of a trained model.
        pairs: Draws a number of pairs for a trained model from a seed.
        established_by: As of `KnownCircuit`.
    """

    name: str
    label: str
    seed: int
    source: str
    sides: Callable[[Subject], tuple[Iterable[str], Iterable[str]]]
    pairs: Callable[[Subject, int, int], PromptPairs]
    established_by: tuple[str, ...] = ()

    @property
    def by_default(self) -> bool:
        """True if the archive of the run is installed, so that it takes part where no circuit is named."""
        return archive_file(self.label) is not None

    def __call__(self) -> KnownCircuit:
        """The known circuit; raises InputError where the archive is not installed."""
        (run,) = find_runs(f"zoo:{self.label}/seed-{self.seed:02d}")
        trained = subject(run)
        inside, absent = self.sides(trained)
        return KnownCircuit(
            name=f"{self.name}-seed-{self.seed}",
            family=self.name,
            source=self.source,
            model=trained.model,
            pairs=partial(self.pairs, trained),
            edges=frozenset(inside),
            absent=frozenset(absent),
            established_by=self.established_by,
        )


@dataclass(frozen=True, kw_only=True)
class NoisedCircuit:
    """A known circuit with something random in it; `build` draws it from a `seed`."""

    build: Callable[..., KnownCircuit]

    def __call__(self, draw: int = 0) -> KnownCircuit:
        """The known circuit of one draw of the noise."""
        return self.build(seed=draw)


@dataclass(frozen=True, kw_only=True)
class OpenQuestion:
    """A model of whose circuit nothing is known, built when it is called; it takes part where it is named."""

    name: str
    source: str
    make: Callable[[], HookedModel]
    pairs: Callable[[HookedModel, int, int], PromptPairs]
    by_default: bool = False

    def __call__(self) -> KnownCircuit:
        """The model with its pairs, and no edge that is judged."""
        model, nothing = self.make(), frozenset()
        what = {"name": self.name, "family": self.name, "source": self.source, "edges": nothing, "absent": nothing}
        return KnownCircuit(model=model, pairs=partial(self.pairs, model), **what)


def plant_trained(seeds: Iterable[int], **circuit: Any) -> None:
    """Register the circuit of some runs of one configuration; `circuit` are the other fields of `TrainedCircuit`."""
    for seed in seeds:
        KNOWN_CIRCUITS.add(f"{circuit['name']}-seed-{seed}", TrainedCircuit(seed=seed, **circuit))
