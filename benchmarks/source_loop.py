"""The rival: the training loop that the source describes, written plainly.

A `Dataset` builds one sequence at a time in Python, a `DataLoader` shuffles and collates, the model is PyTorch's
own transformer layer and the optimiser Adam with its defaults.
"""

import random
from itertools import permutations

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset


class OneByOne(Dataset):
    """Sequences of the permutation lookup task, each drawn when it is asked for."""

    def __init__(self, mappings: list[tuple[int, ...]], n: int, repeat_ratio: float):
        self.mappings, self.n, self.repeat_ratio = mappings, n, repeat_ratio
        self.values = list(range(1, len(mappings[0]) + 1))

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor, Tensor]:
        image = dict(zip(self.values, random.choice(self.mappings), strict=True))
        order = random.sample(self.values, len(self.values))
        if random.random() < self.repeat_ratio:
            order[-1] = random.choice(order[:-1])
        tokens = torch.tensor([token for x in order for token in (x, image[x])])
        mask = torch.zeros(len(tokens) - 1)
        mask[::2] = 1
        return tokens[:-1], tokens[1:], mask


class PlainTransformer(nn.Module):
    """Embeddings, one `TransformerEncoderLayer` with a causal mask, a linear read-out."""

    def __init__(self, n_values: int, d_model: int, n_heads: int):
        super().__init__()
        length = 2 * n_values - 1
        self.token = nn.Embedding(n_values + 1, d_model)
        self.position = nn.Embedding(length, d_model)
        self.layer = nn.TransformerEncoderLayer(d_model, n_heads, 2 * d_model, dropout=0.0, batch_first=True)
        self.out = nn.Linear(d_model, n_values + 1)
        self.register_buffer("mask", torch.triu(torch.full((length, length), -torch.inf), 1))
        self.register_buffer("places", torch.arange(length))

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.token(tokens) + self.position(self.places)
        return self.out(self.layer(hidden, src_mask=self.mask, is_causal=True))


def loader(n: int, repeat_ratio: float = 0.3, n_values: int = 5, batch_size: int = 256) -> DataLoader:
    """Batches over 80 % of the mappings."""
    mappings = list(permutations(range(1, n_values + 1)))
    random.shuffle(mappings)
    return DataLoader(OneByOne(mappings[: round(0.8 * len(mappings))], n, repeat_ratio), batch_size, shuffle=True)


def train(n_steps: int, *, d_model: int, n_heads: int, repeat_ratio: float, batch_size: int = 256) -> None:
    """Train for `n_steps` steps of `batch_size` fresh sequences."""
    model = PlainTransformer(5, d_model, n_heads)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss(reduction="none")
    for inputs, targets, mask in loader(n_steps * batch_size, repeat_ratio, batch_size=batch_size):
        logits = model(inputs)
        losses = criterion(logits.view(-1, logits.shape[-1]), targets.view(-1))
        loss = (losses * mask.view(-1)).sum() / mask.sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
