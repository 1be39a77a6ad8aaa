"""Whether a layer carries enough of a skill for its neurons' shares of it to mean anything.

A share is a quotient, and its denominator must not be noise. It is given only where the skill is there (accuracy at
least `MIN_SKILL` above that of the best constant answer) and the layer adds to it (intact - layer removed at least
`MIN_CARRIED`, and at least `N_ERRORS` standard errors). Of 60 untrained models of the permutation lookup task none had
an accuracy more than .1 above chance, though removing the layer changed it by up to .1 (means) and .3 (zeros): random
functions of the input are not neutral.
"""

import torch
from jaxtyping import Bool
from torch import Tensor

from mnemoscope.analyses.neurons.places import Places
from mnemoscope.analyses.neurons.removal import Cells

MIN_SKILL = 0.2
"""By how much accuracy must exceed that of the best constant answer."""
MIN_CARRIED = 0.05
"""What the layer must add to a score: accuracy, or nats."""
N_ERRORS = 3
METRICS = ("accuracy", "log_prob")
CRITERION = {"min_skill": MIN_SKILL, "min_carried": MIN_CARRIED, "n_errors": N_ERRORS}
"""For a result's attrs."""


def measurable(ends: Cells, places: Places) -> Bool[Tensor, "skill metric"]:
    """Where shares are given.

    Args:
        ends: Cells of two sets: no neuron removed, and the whole layer.
        places: Where they were measured.
    """
    learned = ends["accuracy"][0] - places.constant_accuracy() >= MIN_SKILL
    drops = torch.stack([ends[name][0] - ends[name][1] for name in METRICS], -1)
    errors = torch.stack([ends[f"{name}_error"][1] for name in METRICS], -1)
    return learned[:, None] & (drops >= MIN_CARRIED) & (drops >= N_ERRORS * errors)
