"""Training of the middle of the grid of factual recall against plain PyTorch modules that compute every position."""

from statistics import median

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mnemoscope.core.batch import Batch
from mnemoscope.core.presets import preset
from mnemoscope.core.seeding import generator
from mnemoscope.core.specification import RunSpec
from mnemoscope.models.building import build_untrained, detached_parameters, held_patterns, matching_names
from mnemoscope.training.learner import Learner
from mnemoscope.training.schedule import stack_batches
from timing import Contender, Figure, duration, interleave, ratio

AIM = 5.0


class Plain(nn.Module):
    """One layer as one would write it down: attention from every position, then the MLP, on frozen embeddings."""

    def __init__(self, spec: RunSpec):
        super().__init__()
        task, model = spec.task, spec.model
        width, inner = model.d_model, model.n_heads * model.head_width
        self.n_heads = model.n_heads
        self.embed = nn.Embedding(task.d_vocab, width).requires_grad_(False)
        self.qkv, self.out = nn.Linear(width, 3 * inner, bias=False), nn.Linear(inner, width, bias=False)
        hidden = model.mlp_width
        self.mlp = nn.Sequential(nn.Linear(width, hidden, bias=False), nn.ReLU(), nn.Linear(hidden, width, bias=False))
        self.unembed = nn.Linear(width, len(task.answers), bias=False).requires_grad_(False)

    def forward(self, tokens: Tensor) -> Tensor:
        heads = self.qkv(self.embed(tokens)).unflatten(-1, (3, self.n_heads, -1)).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(*heads, is_causal=True)
        x = self.out(attended.transpose(1, 2).flatten(2))
        return self.unembed(x + self.mlp(x))


def plain(spec: RunSpec, batch: Batch) -> Contender:
    """Steps of Adam on plain modules."""
    model = Plain(spec)
    adam = torch.optim.Adam([value for value in model.parameters() if value.requires_grad], lr=1e-2, fused=True)

    def work() -> float:
        loss = F.cross_entropy(model(batch.inputs)[:, -1], batch.targets[:, -1])
        adam.zero_grad()
        loss.backward()
        adam.step()
        return 1.0

    return work


def ours(spec: RunSpec, batch: Batch) -> Contender:
    """Steps of the training loop, without its files."""
    learner = Learner(spec.model, spec.recipe, [detached_parameters(build_untrained(spec))], [{}])
    learner.hold(matching_names(held_patterns(spec.model), learner.names))
    examples, last = stack_batches([batch]), torch.tensor([spec.task.n_ctx - 1])

    def work() -> float:
        learner.update(learner.losses(spec.task.loss, examples, last), learning_rate=1e-2)
        return 1.0

    return work


def steps(repetitions: int) -> list[Figure]:
    """Training steps a second on one core: d 32, 8 heads, MLP of 32, 32 tokens, batches of 1,024."""
    spec = preset("facts", "published", 0)
    batch = spec.task.sample(spec.recipe.batch_size, split="train", generator=generator(0, "bench"))
    seconds = interleave({"ours": ours(spec, batch), "plain": plain(spec, batch)}, repetitions)
    middle, spread = ratio(seconds["plain"], seconds["ours"])
    note = " and ".join(duration(median(seconds[who])) for who in ("plain", "ours"))
    name = "step: plain PyTorch modules / ours"
    return [Figure(group="facts", name=name, value=middle, unit="x", spread=spread, aim=AIM, note=note)]
