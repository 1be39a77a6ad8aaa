r"""A model's answers after every token of one sequence: its likeliest guesses, beside those of an exact predictor.

For every position: the probability of the token that follows, the most probable tokens, and, if an exact predictor
:math:`q` of the task is named, the same of it and :math:`KL(q \| p)` in nats.

*Shows* what the model answers on this sequence. *Does not show* what it answers on others, nor how.
"""

from dataclasses import replace

import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from mnemoscope.analyses.forward import log_probs
from mnemoscope.core import metrics
from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError, in_range
from mnemoscope.core.protocols import HookedModel, Task

UNKNOWN = -1
"""In the place of a following token that is not given."""


def predict(
    model: HookedModel,
    task: Task,
    batch: Batch,
    *,
    reference: str | None = None,
    everywhere: bool = False,
    n: int = 3,
) -> xr.Dataset:
    """The likeliest tokens after every position of one sequence.

    A last position of the sequence that is not scored is taken as one whose following token is not given. `reference`
    is an exact predictor of the task; none: the model stands alone. With `everywhere` it is read at positions that are
    not scored too: where it does not look at what follows.

    Returns:
        Over pos: `token`, `following` (-1 where it is not given) and `p_following` (NaN there). Over (pos, rank):
        `guess` (token) and `p_guess`. With a reference also `ideal_p_following`, `ideal_guess`, `ideal_p_guess` and
        `kl`, NaN (guesses: -1) where it is undefined.

    Raises:
        InputError: The batch holds several sequences, `n` is out of range, the task has no such reference, or the
            model is too small.
    """
    if len(batch) != 1:
        raise InputError(f"predictions are of one sequence at a time; got {len(batch)}")
    in_range("the number of guesses", n, 1, task.d_vocab)
    predicted = log_probs(model, task, batch)[0]
    following = batch.targets[0].clone()
    if not batch.scored[0, -1]:
        following[-1] = UNKNOWN
    found = {"token": ("pos", batch.inputs[0].tolist()), "following": ("pos", following.tolist())}
    found |= _guesses(predicted.exp(), following, n, "")
    if reference is not None:
        asked = replace(batch, scored=torch.ones_like(batch.scored)) if everywhere else batch
        exact = task.reference(asked, reference)[0]
        found |= _guesses(exact, following, n, "ideal_")
        found["kl"] = ("pos", metrics.kl_divergence(exact, predicted).tolist())
    where = list(range(len(following)))
    coords = {"pos": where, "rank": list(range(1, n + 1)), **batch.labels(pos=where)}
    attrs = {"reference": reference or "", "kl_unit": "nats", "task": repr(task)}
    return xr.Dataset(found, coords=coords, attrs=attrs)


def _guesses(probabilities: Float[Tensor, "pos d_vocab"], following: Tensor, n: int, prefix: str) -> dict:
    """The most probable tokens, and the probability of the one that follows."""
    undefined = probabilities.isnan().any(-1)
    top = probabilities.topk(n, -1)
    guesses = top.indices.masked_fill(undefined[:, None], UNKNOWN)
    right = metrics.at_target(probabilities, following.clamp(min=0)).masked_fill(following == UNKNOWN, torch.nan)
    return {
        f"{prefix}guess": (("pos", "rank"), guesses.tolist()),
        f"{prefix}p_guess": (("pos", "rank"), top.values.masked_fill(undefined[:, None], torch.nan).tolist()),
        f"{prefix}p_following": ("pos", right.tolist()),
    }
