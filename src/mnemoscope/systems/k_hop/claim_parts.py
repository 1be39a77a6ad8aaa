"""Parts that several claims share: configurations, the task, and the errors that decide them."""

from functools import partial
from pathlib import Path

import torch

from mnemoscope import Claim, Configuration, InputError, Subject, generator
from mnemoscope.claims import ClaimTexts
from mnemoscope.core import metrics
from mnemoscope.systems.k_hop.tasks import KHop

SOURCE = "Wang et al. 2025, Learning compositional functions with transformers from easy-to-hard data"
FIRST_SEED = 16
"""Seeds from 1000 on were looked at while recipes were chosen."""
MIXTURE, SHALLOW, ALONE = "k-hop-4", "k-hop-4-2-layers", "k-hop-4-alone"
CURRICULUM, STAGES = "k-hop-4-curriculum", "k-hop-4-stages"
TASK = KHop(n_functions=4, hops=(1, 2, 4), hidden_seed=0)
"""Of these configurations, with hidden permutations for what is built by hand."""
N_SEQUENCES = 2048
LEARNED, CHANCE = 0.05, 3 / 16
"""Squared error of a symbol below which a number of hops counts as learned, about a quarter of what is left to one who
knows nothing: (N - 1)/N² with N = 4."""
ERROR = "squared error"

TEXTS = ClaimTexts(Path(__file__).with_name("claims") / "texts.yaml", {"n_sequences": N_SEQUENCES, "learned": LEARNED})
"""The texts of the claims, from `texts.yaml`."""
k_hop_claim = partial(Claim, system="k-hop", source=SOURCE, first_seed=FIRST_SEED)


def units(*names: str) -> dict[str, Configuration]:
    """Configurations by their preset."""
    return {name: Configuration(preset=name) for name in names}


def task_of(subject: Subject) -> KHop:
    """The task of a subject; an `InputError` unless it is the k-hop task."""
    if not isinstance(subject.task, KHop):
        raise InputError(f"the claim is about k-fold composition; got a model of {subject.task.name}")
    return subject.task


@torch.no_grad()
def errors(subject: Subject) -> dict[str, float]:
    """Squared error after every number of hops (`hops_1` and so on), on fresh sequences."""
    batch = task_of(subject).sample(N_SEQUENCES, split="test", generator=generator(subject.seed, "errors"))
    outputs, scored = subject.model(batch.inputs), batch.scored
    return {
        name: float(metrics.squared_error(outputs[..., part], batch.targets[..., part])[scored].double().mean())
        for name, part in batch.parts.items()
    }
