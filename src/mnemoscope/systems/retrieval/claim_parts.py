"""Parts that several claims share: configurations, the gate, and what is planted for them."""

from functools import partial
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float

from mnemoscope import Claim, Configuration, Gate, InputError, Subject, generator
from mnemoscope.claims import ClaimTexts
from mnemoscope.core import metrics
from mnemoscope.systems.retrieval.tasks import Retrieval

SOURCE = "Musat, Mechanism and emergence of stacked attention heads in multi-layer transformers"
FIRST_SEED, FIRST_OF_THREE, LAST_OF_THREE = 16, 64, 87
"""Of models of two steps, and of three. Smaller ones were looked at while recipes were chosen."""
FIRST_UNSEEN, LAST_UNSEEN = 112, 135
"""Seeds for claims that were put after all smaller seeds had been taken apart."""
N_SEQUENCES = 2048
LEARNED = 0.1
"""Squared error of every symbol below which a chain counts as learned; 1 - 1/N where nothing is known but the step."""

CHAINS, LAST = "retrieval-3", "retrieval-3-last"
WHOLE_CHAIN = {CHAINS: Configuration(preset=CHAINS)}
TASK = Retrieval(n_steps=3)
"""Of the configuration `retrieval-3`."""
TEXTS = ClaimTexts(Path(__file__).with_name("claims") / "texts.yaml", {"n_sequences": N_SEQUENCES})
"""The texts of the claims, from `texts.yaml`."""
retrieval = partial(Claim, system="retrieval", source=SOURCE, first_seed=FIRST_SEED)
FOLLOWS = Gate(
    statement=f"answers every symbol of the chain with a squared error of at most {LEARNED:g}", at_most=LEARNED
)


def task_of(subject: Subject) -> Retrieval:
    """The task of a subject; an `InputError` unless it is the retrieval problem."""
    if not isinstance(subject.task, Retrieval):
        raise InputError(f"the claim is about the retrieval problem; got a model of {subject.task.name}")
    return subject.task


@torch.no_grad()
def partial_errors(subject: Subject) -> dict[str, Float[np.ndarray, " prompt"]]:
    """Squared error of every symbol asked for (`x1` and so on), mean over the queries of each fresh sequence."""
    batch = task_of(subject).sample(N_SEQUENCES, split="test", generator=generator(subject.seed, "partial losses"))
    outputs, scored = subject.model(batch.inputs), batch.scored
    errors = {
        name: metrics.squared_error(outputs[..., part], batch.targets[..., part]) for name, part in batch.parts.items()
    }
    return {name: ((error * scored).sum(1) / scored.sum(1)).double().numpy() for name, error in errors.items()}


def partial_losses(subject: Subject) -> dict[str, float]:
    """The same, mean over the sequences."""
    return {name: float(errors.mean()) for name, errors in partial_errors(subject).items()}
