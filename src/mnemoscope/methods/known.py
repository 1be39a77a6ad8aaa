"""Models whose circuit is known by construction: the ground truth for methods that look for circuits."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from mnemoscope.core.errors import InputError
from mnemoscope.core.guests import Registry
from mnemoscope.core.pairs import PromptPairs
from mnemoscope.core.protocols import HookedModel
from mnemoscope.interventions.graph import Embeddings, check_graph, model_edges


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

    Raises InputError where an edge does not exist in the model, or none is named.
    """

    name: str
    family: str
    source: str
    model: HookedModel
    pairs: Callable[[int, int], PromptPairs]
    edges: frozenset[str]
    embeddings: Embeddings = "together"

    def __post_init__(self) -> None:
        check_graph(self.model)
        absent = sorted(self.edges - {str(edge) for edge in model_edges(self.model, embeddings=self.embeddings)})
        if absent or not self.edges:
            raise InputError(
                f"edges of the known circuit {self.name} must be at least one edge of the model, named as "
                f"interventions.model_edges names them; got {', '.join(absent) or 'none'}"
            )


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
