"""The models that are on record: one of the zoo for every family of presets, and three shapes of language models.

Each with a batch, minimal pairs, and skills, all from fixed generators. DEVICE=cuda moves them to a GPU.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

import mnemoscope as ms
from mnemoscope.core.batch import Batch
from mnemoscope.models.building import from_configuration
from tests.support import perturbed, seeded

ZOO = (
    "facts-linear-quick", "facts-softmax-quick", "birth-2-layers-quick", "memories-all-quick", "noisy-recall-quick",
    "k-hop-4-quick", "retrieval-2-2-layers-quick", "retrieval-3-quick", "v3-quick", "v1-published", "d16h2-quick",
    "v3-no-mlp-quick",
)  # fmt: skip
"""A run of each family: linear and softmax attention on facts, birth, associative memories with a feed-forward layer,
noisy recall, composition in both directions, retrieval of two and three steps, and recall with and without an MLP."""
_SIZES = {
    "n_layers": 3, "d_model": 32, "n_heads": 4, "d_head": 8, "d_mlp": 64, "n_ctx": 24, "d_vocab": 61,
    "dtype": "float32",
}  # fmt: skip
LANGUAGE: dict[str, dict[str, Any]] = {
    "gpt2": {"act_fn": "gelu_new", "normalization_type": "LN"},
    "neox": {
        "act_fn": "gelu", "normalization_type": "LN", "positional_embedding_type": "rotary", "rotary_dim": 4,
        "parallel_attn_mlp": True,
    },
    "llama": {
        "act_fn": "silu", "normalization_type": "RMS", "final_rms": True, "positional_embedding_type": "rotary",
        "rotary_dim": 8, "gated_mlp": True, "n_key_value_heads": 2,
    },
}  # fmt: skip
"""As GPT-2; as GPT-NeoX, with rotary positions on half of a head and MLPs in parallel; as Llama, with rotary positions,
RMSNorm, a gated MLP and heads that share keys and values."""
N = 6
DEVICE = os.environ.get("DEVICE", "cpu")


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """A model, and what it is asked about."""

    model: Any
    pairs: ms.PromptPairs
    reference: Batch
    skills: Mapping[str, Tensor]
    task: Any = None

    @property
    def batch(self) -> Batch:
        """The clean prompts."""
        return self.pairs.clean

    def loss(self, output: Tensor) -> Tensor:
        """The task's, or the cross-entropy, of the targets of the next sequence."""
        batch = replace(self.batch, targets=self.batch.targets.roll(1, 0))
        if self.task is not None:
            return self.task.loss(output, batch)
        return F.cross_entropy(output[batch.scored], batch.targets[batch.scored])


@cache
def case(name: str) -> Case:
    """A model by name; the same object at every call, so nobody may change it."""
    found = _language(name) if name in LANGUAGE else _of_zoo(name)
    if DEVICE == "cpu":
        return found
    return replace(
        found,
        model=found.model.to(DEVICE),
        pairs=replace(found.pairs, clean=found.pairs.clean.to(DEVICE), corrupted=found.pairs.corrupted.to(DEVICE)),
        reference=found.reference.to(DEVICE),
        skills={skill: where.to(DEVICE) for skill, where in found.skills.items()},
    )


def language_model(name: str) -> Any:
    """A model of one of the shapes, all of its parameters away from zero."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        return perturbed(from_configuration({**_SIZES, **LANGUAGE[name]}), scale=0.1).eval()


def _of_zoo(label: str) -> Case:
    run = ms.find_runs(Path(f"zoo:{label}"))[0]
    task = run.spec.task
    batch, reference = (task.sample(n, split="test", generator=seeded(seed)) for n, seed in ((N, 0), (16, 1)))
    pairs = ms.PromptPairs.from_task(task, batch, kind=task.corruptions[0])
    skills = {name: where for name, where in task.skills(batch).items() if where.any()}
    return Case(model=run.model(), pairs=pairs, reference=reference, skills=skills, task=task)


def _language(name: str) -> Case:
    tokens = torch.randint(3, _SIZES["d_vocab"], (4, N, 12), generator=seeded())
    scored = torch.zeros(N, 12, dtype=torch.bool)
    scored[:, -2:] = True
    clean, corrupted, reference, _ = (
        Batch(inputs=tokens[i], targets=tokens[(i + 2) % 4], scored=scored) for i in range(4)
    )
    pairs = ms.PromptPairs(clean=clean, corrupted=corrupted, name="random")
    return Case(model=language_model(name), pairs=pairs, reference=reference, skills={"next": scored})
