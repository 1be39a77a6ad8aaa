"""Activations of a one-layer model at the position where it answers, around its MLP.

After the last layer positions no longer mix, so that the answer follows from the stream there: the stream before the
MLP, and what the MLP writes. Every removal below changes what it writes, and nothing before it.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mnemoscope import HookedModel, InputError, Subject, generator
from mnemoscope.analyses import every_sequence
from mnemoscope.core import evaluation_mode, memoize

SKILL = "recall"
"""The skill whose answers are looked at: the last x repeats an earlier one, whose y is asked for."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Answers:
    """Activations at the answers of a skill, a row each, and the mean over all sequences of what the MLP writes.

    `pair` numbers the pairs of last token and answer. `order` is a random order of the rows: units are chosen on the
    first half of it and measured on the second.
    """

    stream: Float[Tensor, "row d_model"]
    read: Float[Tensor, "row d_model"]
    post: Float[Tensor, "row d_mlp"]
    written: Float[Tensor, "row d_model"]
    target: Int[Tensor, " row"]
    pair: Int[Tensor, " row"]
    of_skill: Bool[Tensor, " row"]
    weights: Float[Tensor, " row"]
    order: Int[Tensor, " chosen"]

    @property
    def chosen_on(self) -> Int[Tensor, " half"]:
        """Rows of the skill on which units are chosen."""
        return self.order[: len(self.order) // 2]

    @property
    def measured_on(self) -> Int[Tensor, " half"]:
        """The other rows of the skill."""
        return self.order[len(self.order) // 2 :]

    def mean(self, values: Float[Tensor, "row unit"]) -> Float[Tensor, " unit"]:
        """The mean over all sequences, by their probability under the task."""
        return self.weights @ values


@memoize
@torch.no_grad()
def read_answers(subject: Subject, *, skill: str = SKILL) -> Answers:
    """Read a model at the last position of every sequence over unseen mappings.

    Raises InputError where the model has more layers than one, or no MLP, or the task has no such skill.
    """
    model, batch = subject.model, every_sequence(subject.task)
    if model.cfg.n_layers != 1 or model.cfg.attn_only:
        raise InputError("features are compared at the last layer here: take a model of one layer with an MLP")
    skills = subject.task.skills(batch)
    if skill not in skills:
        raise InputError(f"skill must be one of {', '.join(skills)}; got {skill!r}")
    before = "ln2.hook_normalized" if model.cfg.normalization_type else "hook_resid_mid"
    names = [f"blocks.0.{name}" for name in ("hook_resid_mid", before, "mlp.hook_post", "hook_mlp_out")]
    parts = []
    for inputs in batch.inputs.split(4096):
        with evaluation_mode(model):
            _, cache = model.run_with_cache(inputs, names_filter=names)
        parts.append([cache[name][:, -1].clone() for name in names])
    stream, read, post, written = (torch.cat(part) for part in zip(*parts, strict=True))
    target, token, of_skill = batch.targets[:, -1], batch.inputs[:, -1], skills[skill].any(1)
    rows = of_skill.nonzero()[:, 0]
    weights = torch.ones(len(batch)) if batch.weights is None else batch.weights
    return Answers(
        **{"stream": stream, "read": read, "post": post, "written": written, "target": target},
        **{"pair": token * (int(target.max()) + 1) + target, "of_skill": of_skill},
        weights=(weights / weights.sum()).to(stream),
        order=rows[torch.randperm(len(rows), generator=generator(subject.seed, "halves"))],
    )


def log_probs(model: HookedModel, stream: Float[Tensor, "*rows d_model"]) -> Float[Tensor, "*rows d_vocab"]:
    """Log-probabilities of the answer from the stream after the last layer."""
    return model(stream, start_at_layer=model.cfg.n_layers).log_softmax(-1)


def right(
    model: HookedModel, stream: Float[Tensor, "row d_model"], target: Int[Tensor, " row"]
) -> tuple[float, Float[Tensor, " row"]]:
    """The share of right answers, and the log-probability of each right one."""
    found = log_probs(model, stream)
    return float((found.argmax(-1) == target).double().mean()), found.gather(1, target[:, None])[:, 0]
