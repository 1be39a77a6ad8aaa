"""What is lost when a latent can no longer be read at a site: the part of the activation inside a subspace is erased.

With x the activation and P the projection on the subspace, P (mean - x) is added, so that every sequence has the same
part inside and the rest stays. Elazar et al. 2021, "Amnesic probing". Two controls:

- `random`: vectors of the same length, row by row, in random subspaces of the same rank: what any disturbance of this
  size costs;
- `shuffled`: the same with the subspaces of permuted labels. These lie where the activations vary, and where the latent
  cannot be read the subspace is as good as one of them: what the procedure costs without the latent.

It shows, where both controls spare the skill, that the skill depends on what lies in these directions at this site,
given the rest of the model as it is. It does not show that nothing but the latent lies there. Where nothing is lost,
other sites may carry it too. Where a control costs as much, erasing says nothing: `editing` asks the sharper question
of where the answer goes.
"""

import math

import torch
import xarray as xr
from torch import Tensor

from mnemoscope.analyses.forward import normalised
from mnemoscope.analyses.probes.displacement import activations, described, displaced, turned
from mnemoscope.analyses.probes.subspaces import Subspace
from mnemoscope.core import metrics
from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import in_range
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.skills import Skills, check_skills


def erase(
    model: HookedModel, batch: Batch, subspace: Subspace, *, skills: Skills, n_random: int = 20, seed: int = 0
) -> xr.Dataset:
    """Skills with a latent erased at a site.

    Args:
        model: The one that the subspace was found in.
        batch: Sequences that test the skills, other than those that the subspace was found on.
        subspace: From `subspaces.subspace`.
        skills: Name to the positions whose answer it alone gives (`task.skills(batch)`).
        n_random: Draws of the control.
        seed: The control is drawn from this seed's stream `random directions`.

    Returns:
        `accuracy` and `log_prob` (nats) over skill, the same with `clean_` before the name, and with `random_` and
        `shuffled_` over (draw, skill), (shuffle, skill).

    Raises:
        InputError: The subspace does not fit the model, skills do not fit the batch, or logits hold NaN.
    """
    in_range("n_random", n_random, 1, math.inf)
    check_skills(batch, skills)
    x = activations(model, batch, subspace)
    moves = {
        "": [subspace.inside(subspace.centre - x)],
        "clean_": [torch.zeros_like(x)],
        "random_": turned(subspace, subspace.inside(subspace.centre - x), n_random, seed),
        "shuffled_": [other.inside(other.centre - x) for other in subspace.shuffled],
    }
    extra = {"random_": ("draw",), "shuffled_": ("shuffle",)}
    arrays = {}
    for kind, of_kind in moves.items():
        runs = [_by_skill(displaced(model, batch, subspace.site, move), batch, skills) for move in of_kind]
        for name in runs[0]:
            values = [run[name] for run in runs]
            arrays[kind + name] = ((*extra[kind], "skill"), values) if kind in extra else ("skill", values[0])
    attrs = {**described(model, subspace), "n": len(batch), "log_prob_unit": "nats"}
    return xr.Dataset(arrays, coords={"skill": list(skills)}, attrs=attrs)


def _by_skill(logits: Tensor, batch: Batch, skills: Skills) -> dict[str, list[float]]:
    log_probs = normalised(logits)
    found = {
        "accuracy": metrics.correct(log_probs, batch.targets).double(),
        "log_prob": metrics.at_target(log_probs, batch.targets),
    }
    return {name: [float(v[mask].mean()) for mask in skills.values()] for name, v in found.items()}
