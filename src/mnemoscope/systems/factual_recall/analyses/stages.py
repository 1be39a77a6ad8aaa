r"""Stages of knowing a fact in training: nothing, the relation alone, or subject and relation.

With A_r the answers to relation r, the loss of a fact a = a(s, r) has two parts,

.. math:: -\ln p(a) = \underbrace{-\ln p(A_r)}_{\text{relation}}\; \underbrace{-\ln p(a \mid A_r)}_{\text{subject}}

the first of which is ln R where nothing is known, and the second ln D as long as the subject plays no part. A model
that answers by the relation alone says p(a | r), how often a is right for r over all subjects; KL(p(. | r) || model)
tells how far it is from that. The paper calls the phase of training in which it does so hallucination: answers of the
right kind that have nothing to do with the subject (Nichani, Lee & Bietti 2025, "Understanding factual recall in
transformers via associative memories"). Beside it KL(p(. | s) || model): a model that answers by the subject alone.

*Shows* what the predictions depend on, over sequences. *Does not show* where subject and relation are read.
"""

import numpy as np
import torch
import xarray as xr

from mnemoscope import Batch, HookedModel, InputError, Task, generator
from mnemoscope.analyses import log_probs, threshold_onset
from mnemoscope.core import in_range, metrics
from mnemoscope.systems.factual_recall.tasks import FactualRecall

N_FOLLOWED = 1024
"""Sequences of a trajectory."""
NEAR = 0.1
"""KL divergence from p(a | r), in nats, up to which a model counts as answering by the relation alone."""


def facts_task(task: Task) -> FactualRecall:
    """The task, if it is factual recall; else an `InputError`."""
    if not isinstance(task, FactualRecall):
        raise InputError(f"this analysis reads models of {FactualRecall.name}; got one of {task.name}")
    return task


@torch.no_grad()
def split_loss(model: HookedModel, task: Task, batch: Batch) -> xr.Dataset:
    """The two parts of the loss, and the divergence of predictions from what relation or subject alone say.

    Scalars are means over the sequences, in nats: `loss`, which is `loss_relation` plus `loss_subject`, `kl_relation`
    and `kl_subject`; and `accuracy`.
    """
    task = facts_task(task)
    predicted = log_probs(model, task, batch)[:, -1, : task.d_vocab_out]
    right = batch.targets[:, -1:]
    of_relation = torch.arange(task.d_vocab_out, device=right.device) // task.n_answers == right // task.n_answers
    loss = -predicted.gather(1, right).mean()
    relation = -predicted.masked_fill(~of_relation, -torch.inf).logsumexp(1).mean()
    found = {"loss": loss, "loss_relation": relation, "loss_subject": loss - relation}
    for name in ("relation", "subject"):
        found[f"kl_{name}"] = metrics.kl_divergence(task.reference(batch, name)[:, -1], predicted).mean()
    found["accuracy"] = (predicted.argmax(1, keepdim=True) == right).double().mean()
    attrs = {"unit": "nats; accuracy: share", "n_sequences": len(batch)}
    return xr.Dataset({name: float(value) for name, value in found.items()}, attrs=attrs)


def trajectory(model: HookedModel, task: Task, *, seed: int) -> xr.Dataset:
    """`split_loss` of one checkpoint, on the same sequences at every step of a run."""
    batch = facts_task(task).sample(N_FOLLOWED, split="test", generator=generator(seed, "stages"))
    return split_loss(model, task, batch)


def stages(followed: xr.Dataset, *, n_relations: int, n_answers: int, near: float = NEAR) -> xr.Dataset:
    """The steps at which relation and fact are known, and the phase in which the relation alone answers.

    `followed` comes from `track`, over step, and seed or not. The relation alone answers where the divergence is at
    most `near` nats: `hallucinates_from` and `hallucinates_until` are the first and last such step (NaN: none).
    `relation_known` and `fact_known` are the first steps from which the part of the loss stays below half of what
    guessing costs, ln(R) / 2 and ln(D) / 2 (NaN: never). `share` is that of the steps between the former two among the
    steps until the fact is known, or among all if it never is (0 where there are none).
    """
    in_range("near", near, 0, np.inf)
    if "kl_relation" not in followed:
        raise InputError("followed must be the trajectory of factual recall, which has kl_relation: see `track`")
    step = followed.step
    close = followed.kl_relation <= near
    found = xr.Dataset(
        {
            "relation_known": threshold_onset(followed.loss_relation, np.log(n_relations) / 2, direction="fall").by,
            "fact_known": threshold_onset(followed.loss_subject, np.log(n_answers) / 2, direction="fall").by,
            "hallucinates_from": step.where(close).min("step"),
            "hallucinates_until": step.where(close).max("step"),
        },
        attrs={"unit": "steps; share: share of the steps until the fact is known", "near": near},
    )
    end = found.fact_known.fillna(step.max())
    lasts = (found.hallucinates_until - found.hallucinates_from).fillna(0)
    return found.assign(share=lasts / end.clip(min=1))
