"""In-context Markov chains: sequences against loops over tokens, and training steps against the source's loop.

The source's loop: a `Dataset` draws one chain and its symbols token by token in NumPy, a `DataLoader` collates, and
attention of plain PyTorch adds a learned vector of the distance to every key. The quickest plain loop over tokens looks
up each symbol in cumulative lists by bisection.
"""

import random
from bisect import bisect
from collections.abc import Iterator
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

from mnemoscope.core.presets import preset
from mnemoscope.core.seeding import generator
from mnemoscope.systems.markov.tasks import MarkovChains
from steps import OurSteps
from timing import Contender, Figure, duration, interleave, ratio

BLOCK = 4096
"""Sequences that `sample` draws at once; training draws four times as many."""
ONE_BY_ONE = 8
"""Sequences of one portion of a loop over tokens."""
CHUNK = 8
"""Steps of one portion."""
N_EPOCH = 2**16
"""Sequences of an epoch of the source's loop."""


def chain(rng: np.random.Generator, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows drawn alike from all distributions, and stationary shares from the eigenvector of eigenvalue 1."""
    rows = rng.dirichlet(np.ones(k), size=k)
    values, vectors = np.linalg.eig(rows.T)
    shares = np.abs(vectors[:, np.argmin(np.abs(values - 1))].real)
    return rows, shares / shares.sum()


class TokenByToken(Dataset):
    """Sequences one by one, each symbol by `Generator.choice`."""

    def __init__(self, task: MarkovChains, n: int = N_EPOCH):
        self.task, self.n, self.rng = task, n, np.random.default_rng(0)

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> Tensor:
        rows, shares = chain(self.rng, self.task.n_symbols)
        symbols = np.empty(self.task.length, dtype=np.int64)
        symbols[0] = self.rng.choice(self.task.n_symbols, p=shares)
        for place in range(1, self.task.length):
            symbols[place] = self.rng.choice(self.task.n_symbols, p=rows[symbols[place - 1]])
        return torch.from_numpy(symbols)


class Bisected(TokenByToken):
    """The same by bisection of cumulative lists."""

    def __getitem__(self, index: int) -> Tensor:
        rows, shares = chain(self.rng, self.task.n_symbols)
        levels, last = rows.cumsum(1)[:, :-1].tolist(), shares.cumsum()[:-1].tolist()
        symbols = []
        for _ in range(self.task.length):
            symbol = bisect(last, random.random())
            symbols.append(symbol)
            last = levels[symbol]
        return torch.tensor(symbols)


def generation(repetitions: int) -> list[Figure]:
    """Time a sequence of 100 symbols in either loop and in a block."""
    figures = []
    for name, loop in (("a choice for every token", TokenByToken), ("bisection for every token", Bisected)):
        for k in (3, 8):
            task = MarkovChains(n_symbols=k)
            stream, one = generator(0, "benchmark"), loop(task)

            def rival(one: Dataset[Any] = one) -> float:
                for _ in range(ONE_BY_ONE):
                    one[0]
                return ONE_BY_ONE

            def ours(task: MarkovChains = task, stream: torch.Generator = stream) -> float:
                task.sample(BLOCK, split="train", generator=stream)
                return BLOCK

            seconds = interleave({"rival": rival, "ours": ours}, repetitions)
            value, spread = ratio(seconds["rival"], seconds["ours"])
            note = f"ours {duration(median(seconds['ours']))} a sequence, rival {duration(median(seconds['rival']))}"
            title = f"{k} symbols, a block / {name}"
            figures.append(Figure(group="markov", name=title, value=value, unit="x", spread=spread, aim=50, note=note))
    return figures


class Attention(nn.Module):
    """One head with a learned vector for each distance."""

    away: Tensor
    later: Tensor

    def __init__(self, width: int, n_pos: int):
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.distances = nn.Parameter(0.02 * torch.randn(n_pos, width, dtype=torch.float32))
        place = torch.arange(n_pos)
        self.register_buffer("away", (place[:, None] - place).clamp(min=0))
        self.register_buffer("later", place > place[:, None])

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        scores = q @ k.transpose(1, 2) + torch.einsum("bqd,qkd->bqk", q, self.distances[self.away])
        pattern = (scores / q.shape[-1] ** 0.5).masked_fill(self.later, -torch.inf).softmax(-1)
        return self.out(pattern @ v)


class PlainTransformer(nn.Module):
    """The model of the recipe in plain PyTorch."""

    def __init__(self, k: int, width: int, n_pos: int, n_layers: int):
        super().__init__()
        self.embed, self.unembed = nn.Embedding(k, width), nn.Linear(width, k, bias=False)
        self.attention = nn.ModuleList(Attention(width, n_pos) for _ in range(n_layers))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(n_layers + 1))

    def forward(self, tokens: Tensor) -> Tensor:
        stream = self.embed(tokens)
        for norm, attention in zip(self.norms[:-1], self.attention, strict=True):
            stream = stream + attention(norm(stream))
        return self.unembed(self.norms[-1](stream))


def source_steps(task: MarkovChains) -> Contender:
    """The source's loop at the size of the recipe."""
    model = PlainTransformer(task.n_symbols, 16, task.n_ctx, 2)
    adam = torch.optim.AdamW(model.parameters(), lr=5e-4, betas=(0.9, 0.95), weight_decay=0.1)
    batches = _again_and_again(DataLoader(TokenByToken(task), batch_size=64))

    def work() -> float:
        for _ in range(CHUNK):
            tokens = next(batches)
            loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
            adam.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            adam.step()
        return CHUNK

    return work


def _again_and_again(batches: DataLoader[Any]) -> Iterator[Any]:
    while True:
        yield from batches


def training(repetitions: int) -> list[Figure]:
    """Training steps on one core, with three and with eight symbols."""
    figures = []
    for name in ("markov-3", "markov-8"):
        spec = preset(name, "published", 0)
        assert isinstance(spec.task, MarkovChains)
        contenders: dict[str, Contender] = {"rival": source_steps(spec.task), "ours": OurSteps([spec], n_steps=CHUNK)}
        seconds = interleave(contenders, repetitions)
        value, spread = ratio(seconds["rival"], seconds["ours"])
        ours, theirs = (duration(median(seconds[key])) for key in ("ours", "rival"))
        note = f"ours {ours} a step, rival {theirs}"
        title = f"{name} against the source's loop"
        figures.append(Figure(group="markov", name=title, value=value, unit="x", spread=spread, aim=5, note=note))
    return figures
