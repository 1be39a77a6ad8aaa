"""Whether the edges of a model can be patched the fast way, and in chunks of what size."""

from collections.abc import Iterator, Sequence

import torch

from mnemoscope.core.batch import Batch
from mnemoscope.core.edge import Edge
from mnemoscope.core.pairs import PromptPairs
from mnemoscope.core.protocols import HookedModel
from mnemoscope.interventions.edges.states import layout
from mnemoscope.interventions.edges.through_stream import by_stream, places
from mnemoscope.interventions.patching.memory import Sizes, prompts_at_once
from mnemoscope.interventions.patching.plan import Plan, best_bytes, reproduced
from mnemoscope.interventions.patching.runs import Patched, Run
from mnemoscope.interventions.patching.through_stream import stream
from mnemoscope.interventions.regions import positions


@torch.no_grad()
def plan_edges(
    model: HookedModel, pairs: PromptPairs, edges: Sequence[Edge], *, direct: bool = False, max_bytes: int
) -> Plan | str:
    """How to patch edges one at a time the fast way; or, in words, why that is not open.

    Args:
        model: Any hooked model.
        pairs: The prompts.
        edges: Of the model; their numbers are the cells.
        direct: Whether only the logits read what the reader of an edge then writes.
        max_bytes: Of everything that is allocated on the way, the result itself excepted.

    Raises:
        InputError: The model has no such edge, or the budget is too small.
    """
    layout(model, edges)
    read = pairs.scored.any(0).nonzero()[:, 0]
    weights, reason = reproduced(model, pairs.clean.inputs[:1], read)
    if weights is None:
        return reason
    read = read.to(weights.b_u.device)
    sizes = Sizes(cfg=model.cfg, n_pos=pairs.clean.inputs.shape[1], n_read=len(read))
    room = max_bytes - sizes.weights() - weights.copied_bytes
    wanted, target = places(weights), best_bytes(model, max_bytes)
    kept, at_work = sizes.recorded(wanted), max(sizes.hooked(), sizes.edge(0))
    n_prompts = prompts_at_once(len(pairs), at_work=at_work, kept=kept, room=room, target=target)
    at_once = min(room - n_prompts * kept, target)

    def patched(batch: Batch, base: Run, source: Run) -> Iterator[Patched]:
        named = {edge.pos for edge in edges if edge.pos is not None}
        return by_stream(
            stream(weights, base, read),
            source,
            edges,
            n_cells=lambda start: max(1, at_once // (len(batch) * sizes.edge(start))),
            positions={pos: positions(pos, batch) for pos in named},
            direct=direct,
        )

    return Plan(method="stream", places=wanted, read=read, n_prompts=n_prompts, patched=patched)
