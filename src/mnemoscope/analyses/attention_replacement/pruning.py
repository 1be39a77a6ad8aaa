"""The attention circuit of a model: all heads replaced, and of their paths those that are needed.

The last two steps of `search`, gone on with. Every head has the simplest mechanism that holds the loss. Then, as long
as some path is not needed, the one of them whose removal costs least is dropped for good. What is left is a circuit of
which each path is needed: Musat, "Mechanism and emergence of stacked attention heads in multi-layer transformers", who
did this by eye.

*Shows* paths of attention that are enough for the loss, each of them needed given the others.

*Does not show* that they are the only ones that would do: another order of removal may leave others.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import xarray as xr

from mnemoscope.analyses.attention_replacement.paths import FALLBACKS, removed
from mnemoscope.analyses.attention_replacement.replacement import TOLERANCE, Bench, Head, joint
from mnemoscope.analyses.attention_replacement.search import Own, search
from mnemoscope.core.batch import Batch
from mnemoscope.core.patterns import Mechanism, with_fallback
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.skills import Skills


@dataclass(frozen=True, kw_only=True, eq=False)
class Circuit:
    """An attention circuit, and what it was found on.

    Attributes:
        mechanisms: Of every head that was replaced, without the paths that were dropped.
        heads: As `heads` of `reverse_engineer`.
        joint: The loss with all mechanisms at once, before paths were dropped, as `replace_heads` gives it.
        pruned: The same with the paths that are left.
        paths: Of the paths that are left, taken out one at a time, as `remove_paths` gives them; none: no path is left.
        dropped: Names of the paths that were dropped, in that order.
    """

    mechanisms: dict[Head, Mechanism]
    heads: xr.Dataset
    joint: xr.Dataset
    pruned: xr.Dataset
    paths: xr.Dataset | None
    dropped: tuple[str, ...]


def find_circuit(
    model: HookedModel,
    batch: Batch,
    mechanisms: Sequence[Mechanism],
    *,
    skills: Skills | None = None,
    fallbacks: Sequence[Mechanism] = FALLBACKS,
    own: Own | None = None,
    learned: bool = False,
    tolerance: float = TOLERANCE,
    seed: int = 0,
) -> Circuit:
    """Replace all attention by mechanisms and drop the paths that are not needed.

    Arguments and errors as for `reverse_engineer`. A path is a part of a head's mechanism, and needed as `remove_paths`
    has it: also where only the learned attention of later layers misses it.
    """
    found = search(
        model,
        batch,
        mechanisms,
        skills=skills,
        fallbacks=fallbacks,
        learned=learned,
        own=own,
        tolerance=tolerance,
        seed=seed,
    )
    kept, dropped, table = pruned(found.at, found.chosen, fallbacks)
    return Circuit(
        mechanisms=kept,
        heads=found.parts["heads"],
        joint=found.parts["joint"],
        pruned=joint(found.at, kept),
        paths=table,
        dropped=dropped,
    )


def pruned(
    at: Bench, assigned: dict[Head, Mechanism], fallbacks: Sequence[Mechanism]
) -> tuple[dict[Head, Mechanism], tuple[str, ...], xr.Dataset | None]:
    """The rest of mechanisms, the names of the paths that were dropped, and the paths that are left."""
    idle = {fallback.name for fallback in fallbacks}
    dropped: list[str] = []
    while True:
        informed = [head for head, mechanism in assigned.items() if {part.name for part in _parts(mechanism)} - idle]
        table = removed(at, assigned, informed, "mechanism", fallbacks) if informed else None
        if table is None:
            return assigned, tuple(dropped), None
        paths = table.isel(path=~table.part.isin(list(idle)).values)
        spare = paths.isel(path=~paths.needed.values)
        if not spare.sizes["path"]:
            return assigned, tuple(dropped), paths
        least = spare.isel(path=int(spare.rise.max(("later", "skill")).argmin("path")))
        head, part = (int(least.layer), int(least["head"])), least.part.item()
        instead = next(f for f in fallbacks if f.name == least.fallback.sel(later="set").item())
        assigned = {**assigned, head: _without(assigned[head], part, instead)}
        dropped.append(least.path.item())


def _parts(mechanism: Mechanism) -> tuple[Mechanism, ...]:
    return mechanism.parts or (mechanism,)


def _without(mechanism: Mechanism, part: str, instead: Mechanism) -> Mechanism:
    """A mechanism without one of its parts; a fallback takes the place of what was all there is."""
    return reduce(with_fallback, [each for each in _parts(mechanism) if each.name != part] or [instead])
