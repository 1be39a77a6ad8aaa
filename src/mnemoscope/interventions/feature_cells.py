"""Patches of one feature a cell, on those prompts alone in which the patch changes it.

Few features are active anywhere. So a cell runs on the prompts in which its feature differs between the two runs at a
position that is patched, and from the first of these on. Prompts of several cells that begin to differ at one position
go on together; all others keep the value of the run without patches.
"""

from collections.abc import Callable, Iterator, Sequence

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from mnemoscope.interventions.measurement import PatchedLogits
from mnemoscope.interventions.recordings import RecordedRun
from mnemoscope.interventions.streams import Stream, entry_point


def patched_features(
    run: Stream,
    source: RecordedRun,
    layer: int,
    cells: Sequence[tuple[int, int, int | None]],
    n_rows: Callable[[int], int],
) -> Iterator[PatchedLogits]:
    """Logits of the cells of one layer, each a number, a feature and a position (None: all of them).

    `n_rows` says how many prompts of one first position run at once.
    """
    place = ("feature", layer)
    moved = source[place] - run.base[place]
    n_pos, device = moved.shape[1], moved.device
    numbers, features = (torch.tensor([cell[n] for cell in cells], device=device) for n in (0, 1))
    chosen = torch.tensor([-1 if pos is None else pos for _, _, pos in cells], device=device)
    differs = (moved != 0).permute(2, 0, 1)[features]
    differs &= ((chosen[:, None] < 0) | (chosen[:, None] == torch.arange(n_pos, device=device)))[:, None]
    point, stream = entry_point(run.weights, "feature", layer)
    if point >= 2 * len(run.weights.blocks) - 1:  # nothing mixes positions any more
        differs &= torch.isin(torch.arange(n_pos, device=device), run.read)
    cell, prompt, start = _first_changes(differs, int(run.read.max()))
    entered = [int(each >= point) for each in range(2 * len(run.weights.blocks) + 1)]
    written = run.weights.dictionary(layer).w_dec
    for first in start.unique().tolist():
        rows, read = (start == first).nonzero()[:, 0], run.read[run.read >= first]
        for some in rows.split(max(1, n_rows(first))):
            who, where = cell[some], prompt[some]
            added = moved[where, first:, features[who]] * differs[who, where, first:]
            changed = run.base[stream][where, first:] + added[..., None] * written[features[who], None]
            logits = run.weights.resume_from_stream(changed[None], entered, run.past, read, prompts=where)
            which = {"cells": numbers[who].tolist(), "prompts": where.tolist()}
            yield PatchedLogits(**which, first=len(run.read) - len(read), logits=logits)


def _first_changes(
    differs: Bool[Tensor, "cell prompt pos"], last: int
) -> tuple[Int[Tensor, " row"], Int[Tensor, " row"], Int[Tensor, " row"]]:
    """Cell, prompt and first position of every prompt that a cell changes up to the last position that is read."""
    cell, prompt = differs[..., : last + 1].any(-1).nonzero(as_tuple=True)
    return cell, prompt, differs[cell, prompt].to(torch.uint8).argmax(-1)
