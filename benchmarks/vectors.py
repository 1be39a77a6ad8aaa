"""Training on vectors against plain PyTorch modules on the same data, and their generation against a loop."""

from collections.abc import Mapping, Sequence
from statistics import median

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mnemoscope.core.batch import Batch
from mnemoscope.core.seeding import generator
from mnemoscope.core.specification import ModelSpec, Recipe, RunSpec
from mnemoscope.models.building import build_untrained, detached_parameters
from mnemoscope.systems.retrieval.tasks import Retrieval
from mnemoscope.training.learner import Learner
from mnemoscope.training.schedule import stack_batches
from timing import Contender, Figure, duration, interleave, ratio

TASK = Retrieval()
WIDTH, N_LAYERS, BATCH = 128, 12, 128
N_DRAWN = 2**14


def spec() -> RunSpec:
    """The 12-layer one-head model, as published but for what the source leaves open."""
    model = ModelSpec(d_model=WIDTH, n_heads=1, n_layers=N_LAYERS, d_mlp=4 * WIDTH, act_fn="gelu", positions=False)
    return RunSpec(task=TASK, model=model, recipe=Recipe(batch_size=BATCH, weight_decay=0.1), seed=0)


class Block(nn.Module):
    """A block of GPT-2 in `torch.nn` modules."""

    def __init__(self, width: int):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.ln_1(x)).unsqueeze(1).chunk(3, -1)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).squeeze(1))
        return x + self.mlp(self.ln_2(x))


def plain(batch: Batch) -> Contender:
    """Steps of AdamW on plain modules; every position is computed, the queries are scored."""
    width = nn.Linear(TASK.d_vocab, WIDTH, bias=False)
    blocks = (Block(WIDTH) for _ in range(N_LAYERS))
    model = nn.Sequential(width, *blocks, nn.LayerNorm(WIDTH), nn.Linear(WIDTH, TASK.d_output))
    adam = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1, fused=True)

    def work() -> float:
        outputs = model(batch.inputs)
        loss = F.mse_loss(outputs[batch.scored], batch.targets[batch.scored])
        adam.zero_grad()
        loss.backward()
        adam.step()
        return 1.0

    return work


def ours(batch: Batch) -> Contender:
    """Steps of the training loop, without its files."""
    run = spec()
    learner = Learner(run.model, run.recipe, [detached_parameters(build_untrained(run))], [{}])
    examples, positions = stack_batches([batch]), batch.scored.any(0).nonzero()[:, 0]

    def work() -> float:
        learner.update(learner.losses(TASK.loss, examples, positions), learning_rate=1e-3)
        return 1.0

    return work


def one_by_one() -> float:
    """Sequences drawn one at a time."""
    stream, n = generator(0, "loop"), 64
    for _ in range(n):
        _one(TASK, stream)
    return float(n)


def _one(task: Retrieval, stream: torch.Generator) -> tuple[Tensor, Tensor]:
    """Inputs and targets of one sequence, as one would write it down."""
    n, steps, width = task.n_chains, task.n_steps, task.d_symbol
    chains = torch.randn(n, steps + 1, width, generator=stream)
    codes, rows, position = task.codes(), [], 0
    for step in range(steps):
        for chain in torch.randperm(n, generator=stream):
            for symbol in (chains[chain, step], chains[chain, step + 1]):
                rows.append(torch.cat((symbol, codes[position])))
                position += 1
    targets = torch.zeros(task.n_ctx, task.d_output)
    for chain in torch.randperm(n, generator=stream):
        rows.append(torch.cat((chains[chain, 0], codes[position])))
        targets[position] = chains[chain, 1:].flatten()
        position += 1
    return torch.stack(rows), targets


def at_once() -> float:
    """A block of sequences, as training draws it."""
    TASK.sample(N_DRAWN, split="train", generator=generator(0, "block"))
    return float(N_DRAWN)


def vectors(repetitions: int) -> list[Figure]:
    """Training steps and sequences a second on one core."""
    batch = TASK.sample(BATCH, split="train", generator=generator(0, "bench"))
    steps = {"ours": ours(batch), "plain": plain(batch)}
    drawn = {"ours": at_once, "plain": one_by_one}
    return [
        _figure("step: plain PyTorch modules / ours", interleave(steps, repetitions), 1.0),
        _figure("sequence: loop / ours", interleave(drawn, repetitions), 50.0),
    ]


def _figure(name: str, seconds: Mapping[str, Sequence[float]], aim: float) -> Figure:
    middle, spread = ratio(seconds["plain"], seconds["ours"])
    note = " and ".join(duration(median(seconds[who])) for who in ("plain", "ours"))
    return Figure(group="vectors", name=name, value=middle, unit="x", spread=spread, aim=aim, note=note)
