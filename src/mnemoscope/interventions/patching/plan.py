"""In which way and in chunks of what size a sweep runs."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from jaxtyping import Int
from torch import Tensor

from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError, one_of
from mnemoscope.core.pairs import PromptPairs
from mnemoscope.core.protocols import HookedModel
from mnemoscope.interventions.patching.changes import places
from mnemoscope.interventions.patching.grid import Grid
from mnemoscope.interventions.patching.memory import CACHE_BYTES, Sizes, prompts_at_once
from mnemoscope.interventions.patching.packed import Packed, packed, unsupported
from mnemoscope.interventions.patching.runs import Patched, Place, Run
from mnemoscope.interventions.patching.through_hooks import by_hooks
from mnemoscope.interventions.patching.through_stream import by_stream, reproduces, stream
from mnemoscope.interventions.writing import check_written

Method = Literal["auto", "stream", "hooks"]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How a sweep runs, whatever its cells are.

    Attributes:
        method: In words, for results.
        places: What to record of both runs.
        read: Positions whose logits are read.
        n_prompts: Prompts of a chunk.
        patched: From some prompts, their run and the other run: their logits in every cell that may matter.
    """

    method: str
    places: Collection[Place]
    read: Int[Tensor, " read"]
    n_prompts: int
    patched: Callable[[Batch, Run, Run], Iterator[Patched]]


@torch.no_grad()
def plan(model: HookedModel, pairs: PromptPairs, grid: Grid, *, max_bytes: int, method: Method) -> Plan:
    """Choose the fast way where the model allows it, and the size of chunks.

    Raises:
        InputError: The model cannot be patched the way that is insisted on, or the budget is too small.
    """
    one_of("method", method, get_args(Method))
    read = pairs.scored.any(0).nonzero()[:, 0]
    n_pos = pairs.clean.inputs.shape[1]
    weights, reason = (None, "asked for") if method == "hooks" else reproduced(model, pairs.clean.inputs[:1], read)
    if weights is None and method == "stream":
        raise InputError(f"method must be 'auto' or 'hooks' for this model, because {reason}; got 'stream'")
    if weights is None:
        check_written(model, grid.kind, grid.layers)
    wanted: set[Place] = places(weights, grid) if weights else {(grid.kind, layer) for layer in grid.layers}
    sizes = Sizes(cfg=model.cfg, n_pos=n_pos, n_read=len(read))
    room = max_bytes - sizes.weights() - (weights.copied_bytes if weights else 0)
    kept = sizes.recorded(wanted)
    at_work = max(sizes.hooked(), sizes.continued(0) if weights else 0)
    target = best_bytes(model, max_bytes)
    n_prompts = prompts_at_once(len(pairs), at_work=at_work, kept=kept, room=room, target=target)
    room -= n_prompts * kept

    def patched(batch: Batch, base: Run, source: Run) -> Iterator[Patched]:
        n = len(batch)
        if weights is None:
            return by_hooks(model, batch.inputs, source, grid, read, n_cells=max(1, room // (n * sizes.hooked())))
        at_once = min(room, target) // n
        run = stream(weights, base, read)
        return by_stream(run, source, grid, n_cells=lambda start: max(1, at_once // sizes.continued(start)))

    return Plan(
        method="stream" if weights else f"hooks ({reason})",
        places=wanted,
        read=read,
        n_prompts=n_prompts,
        patched=patched,
    )


def reproduced(
    model: HookedModel, tokens: Int[Tensor, "prompt pos"], read: Int[Tensor, " read"]
) -> tuple[Packed | None, str]:
    """The weights for the fast way, tried on some prompts; or None and why it is not open."""
    if reason := unsupported(model):
        return None, reason
    weights = packed(model)
    return (weights, "") if reproduces(weights, model, tokens, read) else (None, "its forward pass is a different one")


def best_bytes(model: HookedModel, max_bytes: int) -> int:
    """What a forward pass should not exceed, for speed."""
    on_cpu = next(parameter for _, parameter in model.named_parameters()).device.type == "cpu"
    return CACHE_BYTES if on_cpu else max_bytes
