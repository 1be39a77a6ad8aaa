"""Training steps of the puzzles against the original's loop, and of modular addition against plain PyTorch.

The original's loop: a `HookedTransformer` with Adam on a data set of tensors that a `DataLoader` shuffles; padding is
masked by a permanent hook. Plain PyTorch: the whole model as a few products of matrices on the full batch, with AdamW.
"""

from collections.abc import Iterator
from dataclasses import replace
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from mnemoscope.core.presets import PRESETS, preset
from mnemoscope.core.protocols import n_outputs
from mnemoscope.core.seeding import generator
from mnemoscope.core.specification import RunSpec
from mnemoscope.models.building import build_untrained, detached_parameters
from mnemoscope.training.schedule import TrainingBatches
from steps import OurSteps
from timing import Contender, Figure, duration, interleave, ratio

PUZZLES = ("palindrome", "first-unique", "digit-sum", "sorted-list", "running-sum", "brackets")
ADDITIONS = ("addition-c1", "addition-c0")
N_SEQUENCES = 2**13
"""Sequences of the data set, which is made before the clock runs."""


def original_steps(spec: RunSpec, n_steps: int) -> Contender:
    """The loop of the originals at the size of a run."""
    task, masked = spec.task, spec.model.masked
    model = build_untrained(replace(spec, model=replace(spec.model, masked=None)))
    if masked is not None:
        _mask_padding(model, masked % task.d_vocab)
    batch = task.sample(N_SEQUENCES, split="train", generator=generator(0, "benchmark"))
    data = TensorDataset(batch.inputs, batch.targets, batch.scored)
    batches = _again_and_again(DataLoader(data, batch_size=spec.recipe.batch_size, shuffle=True, drop_last=True))
    adam = torch.optim.Adam(model.parameters(), lr=spec.recipe.learning_rate, weight_decay=spec.recipe.weight_decay)

    def work() -> float:
        for _ in range(n_steps):
            inputs, targets, scored = next(batches)
            log_probs = model(inputs).log_softmax(-1)
            loss = -log_probs.gather(-1, targets[..., None])[..., 0][scored].mean()
            adam.zero_grad()
            loss.backward()
            adam.step()
        return n_steps

    return work


def _again_and_again(batches: DataLoader) -> Iterator[Any]:
    while True:
        yield from batches


def _mask_padding(model: Any, token: int) -> None:
    """Let no position attend to a token, by permanent hooks as in the original."""
    places: list[Tensor] = []

    def see(tokens: Tensor, *_: Any, **__: Any) -> None:
        places[:] = [(tokens == token)[:, None, None]]

    def mask(scores: Tensor, hook: Any) -> Tensor:
        return torch.where(places[0], -1e5, scores)

    model.embed.register_forward_pre_hook(lambda _, given: see(*given))
    for block in model.blocks:
        block.attn.hook_attn_scores.add_perma_hook(mask)


class PlainAddition(nn.Module):
    """The model of modular addition, at its last position."""

    def __init__(self, spec: RunSpec):
        super().__init__()
        weights = detached_parameters(build_untrained(spec))
        self.mix, self.causal = spec.model.attention_mix, spec.model.attention_dir == "causal"
        kinds = {"embed.W_E": "w_e", "pos_embed.W_pos": "w_pos", "unembed.W_U": "w_u"}
        kinds |= {f"blocks.0.attn.W_{kind}": f"w_{kind.lower()}" for kind in "QKVO"}
        kinds |= {f"blocks.0.mlp.{kind}": kind.lower() for kind in ("W_in", "b_in", "W_out", "b_out")}
        for name, own in kinds.items():
            setattr(self, own, nn.Parameter(weights[name]))

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits after the last token."""
        stream = self.w_e[tokens] + self.w_pos
        last = stream[:, -1]
        q = torch.einsum("bd,hdk->bhk", last, self.w_q)
        k, v = (torch.einsum("bpd,hdk->bphk", stream, weight) for weight in (self.w_k, self.w_v))
        scores = torch.einsum("bhk,bphk->bhp", q, k) / q.shape[-1] ** 0.5
        pattern = self.mix * scores.softmax(-1) + 1 - self.mix
        z = torch.einsum("bhp,bphk->bhk", pattern, v)
        last = last + torch.einsum("bhk,hkd->bd", z, self.w_o)
        last = last + F.relu(last @ self.w_in + self.b_in) @ self.w_out + self.b_out
        return last @ self.w_u


def plain_steps(spec: RunSpec, n_steps: int) -> Contender:
    """Full-batch steps of plain PyTorch on the same sequences."""
    model, recipe = PlainAddition(spec), spec.recipe
    batch = spec.task.enumerate(split="train")
    targets, betas = batch.targets[:, -1], (recipe.beta1, recipe.beta2)
    adam = torch.optim.AdamW(model.parameters(), recipe.learning_rate, betas, weight_decay=recipe.weight_decay)

    def work() -> float:
        for _ in range(n_steps):
            loss = F.cross_entropy(model(batch.inputs).double(), targets)
            adam.zero_grad()
            loss.backward()
            adam.step()
        return n_steps

    return work


def training(repetitions: int, n_steps: int) -> list[Figure]:
    """Training steps on one core, of every puzzle and of modular addition that is there; a portion has `n_steps`."""
    known = PRESETS.names()
    rivals = [(name, "the original's loop", original_steps, 2.0) for name in PUZZLES]
    rivals += [(name, "plain PyTorch, full batch", plain_steps, 1.5) for name in ADDITIONS]
    figures = [_figure(*each, repetitions, n_steps) for each in rivals if each[0] in known]
    return figures + [_difference(name) for name in ADDITIONS if name in known]


def _figure(name: str, against: str, rival: Any, aim: float, repetitions: int, n_steps: int) -> Figure:
    spec = preset(name, "published", 0)
    contenders: dict[str, Contender] = {"rival": rival(spec, n_steps), "ours": OurSteps([spec], n_steps=n_steps)}
    seconds = interleave(contenders, repetitions)
    value, spread = ratio(seconds["rival"], seconds["ours"])
    ours, theirs = (duration(median(seconds[key])) for key in ("ours", "rival"))
    note = f"ours {ours} a step, rival {theirs}; {n_outputs(spec.task)} outputs"
    return Figure(
        group="puzzles", name=f"{name} against {against}", value=value, unit="x", spread=spread, aim=aim, note=note
    )


def _difference(name: str) -> Figure:
    """The difference between the loss of plain PyTorch and ours before training, on modular addition."""
    spec = preset(name, "published", 0)
    batch = spec.task.enumerate(split="train")
    own = F.cross_entropy(PlainAddition(spec)(batch.inputs).double(), batch.targets[:, -1])
    learner, data = OurSteps([spec]).learner, TrainingBatches([spec])
    ours = learner.losses(spec.task.loss, data.batch(0), torch.tensor([batch.inputs.shape[1] - 1]))
    apart, what = float((own - ours[0]).detach().abs()), f"{name}, loss of plain PyTorch less ours"
    return Figure(group="puzzles", name=what, value=apart, unit="nats", aim=1e-6, at_most=True)
