"""In which way and in chunks of what size a sweep runs."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from jaxtyping import Int
from torch import Tensor

from mnemoscope.core.errors import InputError, one_of
from mnemoscope.core.pairs import PromptPairs
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.site import ATTENTION
from mnemoscope.interventions.patching.changes import places
from mnemoscope.interventions.patching.grid import Grid
from mnemoscope.interventions.patching.memory import CACHE_BYTES, Sizes, prompts_at_once
from mnemoscope.interventions.patching.packed import Packed, packed, unsupported
from mnemoscope.interventions.patching.runs import Patched, Place, Run
from mnemoscope.interventions.patching.through_hooks import by_hooks, check_heard
from mnemoscope.interventions.patching.through_stream import by_stream, reproduces, stream

Way = Literal["auto", "stream", "hooks"]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How a sweep runs.

    Attributes:
        weights: For the fast way; None: through hooks.
        way: In words, for results.
        places: What to record of both runs.
        read: Positions whose logits are read.
        n_prompts: Prompts of a chunk.
        sizes: What memory depends on.
        room: Bytes for all the cells of a chunk.
        target: Bytes that they should not exceed, for speed.
    """

    weights: Packed | None
    way: str
    places: Collection[Place]
    read: Int[Tensor, " read"]
    n_prompts: int
    sizes: Sizes
    room: int
    target: int

    def patched(
        self, model: HookedModel, tokens: Int[Tensor, "prompt pos"], base: Run, source: Run, grid: Grid
    ) -> Iterator[Patched]:
        """Logits of the prompts `tokens` (whose run is `base`) under every patch from `source` that may matter."""
        n = len(tokens)
        if self.weights is None:
            n_cells = max(1, self.room // (n * self.sizes.hooked()))
            return by_hooks(model, tokens, source, grid, self.read, n_cells=n_cells)
        run = stream(self.weights, base, self.read)
        room = min(self.room, self.target)
        return by_stream(run, source, grid, n_cells=lambda start: max(1, room // (n * self.sizes.continued(start))))


@torch.no_grad()
def plan(model: HookedModel, pairs: PromptPairs, grid: Grid, *, max_bytes: int, way: Way) -> Plan:
    """Choose the fast way where the model allows it, and the size of chunks.

    Raises:
        InputError: The model cannot be patched the way that is insisted on, or the budget is too small.
    """
    one_of("way", way, get_args(Way))
    reason = "asked for" if way == "hooks" else unsupported(model)
    read = pairs.scored.any(0).nonzero()[:, 0]
    n_pos = pairs.clean.inputs.shape[1]
    weights = None if reason else packed(model)
    if weights is not None and not reproduces(weights, model, pairs.clean.inputs[:1], read):
        weights, reason = None, "its forward pass is a different one"
    if weights is None and way == "stream":
        raise InputError(f"way must be 'auto' or 'hooks' for this model, because {reason}; got 'stream'")
    if weights is None and grid.kind in ATTENTION and "blocks.0.attn.W_Q" not in dict(model.named_parameters()):
        check_heard(model, pairs.clean.inputs, grid)
    wanted: set[Place] = places(weights, grid) if weights else {(grid.kind, layer) for layer in grid.layers}
    sizes = Sizes(cfg=model.cfg, n_pos=n_pos, n_read=len(read))
    room = max_bytes - sizes.weights() - (weights.copied_bytes if weights else 0)
    kept = sizes.recorded(wanted)
    at_work = max(sizes.hooked(), sizes.continued(0) if weights else 0)
    on_cpu = next(parameter for _, parameter in model.named_parameters()).device.type == "cpu"
    target = CACHE_BYTES if on_cpu else max_bytes
    n_prompts = prompts_at_once(len(pairs), at_work=at_work, kept=kept, room=room, target=target)
    return Plan(
        weights=weights,
        way="stream" if weights else f"hooks ({reason})",
        places=wanted,
        read=read,
        n_prompts=n_prompts,
        sizes=sizes,
        room=room - n_prompts * kept,
        target=target,
    )
