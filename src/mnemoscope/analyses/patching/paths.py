"""Patching along a path: what the first part tells the last one by this way and no other.

The first edge of the path carries what its writer wrote on the other prompt, the later ones what then is written, and
all other edges what they carried before. Goldowsky-Dill et al. 2023, "Localizing model behavior with path patching".

It shows what a chain of parts carries by itself. Chains that need each other look as if neither counted.
"""

from collections.abc import Collection, Mapping, Sequence

import xarray as xr

from mnemoscope.analyses.patching.activations import check_asked, labelled
from mnemoscope.analyses.patching.edges import states
from mnemoscope.core.edge import LOGITS, Edge
from mnemoscope.core.errors import InputError
from mnemoscope.core.metrics import LOGIT_DIFF, Metric
from mnemoscope.core.pairs import PromptPairs
from mnemoscope.core.protocols import HookedModel
from mnemoscope.interventions.edges.graph import State
from mnemoscope.interventions.edges.run import Freeze
from mnemoscope.interventions.edges.sweep import sweep_states
from mnemoscope.interventions.patching.memory import MAX_BYTES
from mnemoscope.interventions.patching.sweep import DIRECTIONS, Direction


def patch_paths(
    model: HookedModel,
    pairs: PromptPairs,
    paths: Mapping[str, Sequence[Edge]],
    *,
    metrics: Sequence[Metric] = (LOGIT_DIFF,),
    directions: Sequence[Direction] = DIRECTIONS,
    freeze: Collection[Freeze] = (),
    max_bytes: int = MAX_BYTES,
    seed: int = 0,
) -> xr.Dataset:
    """Patch the first edge of a path, and let the change travel along the path only.

    Args:
        model: As for `edges.patch_edges`, and so are the other arguments.
        pairs: Clean and corrupted prompts.
        paths: By name edges of which each starts where the one before has ended; the last one leads to the logits.
        metrics: What is read.
        directions: `noising`, `denoising`, or both.
        freeze: What stays as in the unchanged run.
        max_bytes: Bound on what is allocated on the way.
        seed: For the check of the metrics.

    Returns:
        As `edges.patch_edges`, along `path`.

    Raises:
        InputError: As `edges.patch_edges`; or a path has a gap or does not end at the logits.
    """
    if not paths:
        raise InputError("paths must name at least one; got none")
    for name, path in paths.items():
        readers = [edge.reader for edge in path]
        if not path or readers[-1] != LOGITS or readers[:-1] != [edge.writer for edge in path[1:]]:
            raise InputError(
                f"every edge of a path starts where the one before has ended, and the last one leads to the logits; "
                f"path {name} is {', '.join(map(str, path)) or 'empty'}"
            )
    check_asked(model, pairs, metrics, directions)
    options = {"metrics": metrics, "directions": directions}
    every, told = states(model, [_cell(path) for path in paths.values()], State.FROZEN)
    swept = sweep_states(model, pairs, every, told, **options, freeze=freeze, max_bytes=max_bytes, seed=seed)
    done = "the first edge of a path carries what its writer wrote in the other run"
    result = labelled(model, pairs, swept, {"path": list(paths)}, **options, intervention=done)
    return result.assign_attrs(frozen=" and ".join(freeze) or "nothing")


def _cell(path: Sequence[Edge]) -> Mapping[Edge, State]:
    """The first edge of a path is patched, and the others pass the change on."""
    first, *later = path
    return {**dict.fromkeys(later, State.LIVE), first: State.PATCHED}
