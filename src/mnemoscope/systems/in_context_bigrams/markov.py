"""Many Markov chains at once, with successors that single sequences prescribe.

The next token is drawn by the alias method (Walker 1977): a distribution over n tokens becomes n equally likely columns
of at most two tokens each, so that a draw takes one column and one comparison, whatever n is. All random numbers are
drawn beforehand; a step then is a look-up for all sequences together.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mnemoscope import InputError


@dataclass(frozen=True, eq=False)
class AliasTable:
    """Distributions, one per state: `threshold` is a column's share of its own token, token `alias` has the rest."""

    threshold: Float[Tensor, "state token"]
    alias: Int[Tensor, "state token"]

    def to(self, device: torch.device | str) -> "AliasTable":
        """The same on another device."""
        return AliasTable(self.threshold.to(device), self.alias.to(device))


def alias_table(probabilities: Float[Tensor, "state token"]) -> AliasTable:
    """The table of given distributions; an `InputError` where a row does not add up to one."""
    rows = probabilities.double()
    if (rows < 0).any() or not torch.allclose(rows.sum(1), torch.ones(len(rows), dtype=torch.double)):
        raise InputError("probabilities must be rows of numbers from 0 that add up to 1")
    threshold, alias = torch.ones_like(rows), torch.arange(rows.shape[1]).repeat(len(rows), 1)
    for state, row in enumerate((rows * rows.shape[1]).tolist()):
        small = [token for token, share in enumerate(row) if share < 1]
        large = [token for token, share in enumerate(row) if share >= 1]
        while small and large:
            token, giver = small.pop(), large[-1]
            threshold[state, token], alias[state, token] = row[token], giver
            row[giver] -= 1 - row[token]
            if row[giver] < 1:
                small.append(large.pop())
    return AliasTable(threshold.float(), alias)


def walk(
    first: Int[Tensor, " batch"],
    table: AliasTable,
    length: int,
    *,
    prescribed: Int[Tensor, "batch token"],
    generator: torch.Generator,
    noise: float = 0.0,
    noise_token: int = 0,
) -> Int[Tensor, "batch pos"]:
    """Sequences of a Markov chain in which some tokens have a successor that the sequence prescribes.

    `length` counts the first token too. `prescribed` has the successor of every token; -1: the chain decides. With
    probability `noise` the `noise_token` stands in the place of a prescribed successor.
    """
    n, n_tokens = prescribed.shape
    shape, device = (length - 1, n), generator.device
    column = torch.randint(n_tokens, shape, generator=generator, device=device)
    level = torch.rand(shape, generator=generator, device=device)
    replaced = torch.rand(shape, generator=generator, device=device) < noise if noise else None
    threshold, alias, successor = table.threshold.flatten(), table.alias.flatten(), prescribed.flatten()
    row = torch.arange(n, device=device) * n_tokens
    tokens = first.new_empty(length, n)
    tokens[0] = first
    for step in range(length - 1):
        cell = torch.add(column[step], tokens[step], alpha=n_tokens)
        own = level[step] < threshold.index_select(0, cell)
        drawn = torch.where(own, column[step], alias.index_select(0, cell))
        fixed = successor.index_select(0, row + tokens[step])
        given = fixed if replaced is None else torch.where(replaced[step], noise_token, fixed)
        torch.where(fixed >= 0, given, drawn, out=tokens[step + 1])
    return tokens.T.contiguous()


def stationary(transitions: Float[Tensor, "token next_token"]) -> Float[Tensor, " token"]:
    """The share of every token in the long run, in a chain that forgets where it began."""
    n = len(transitions)
    system = torch.cat((transitions.T - torch.eye(n).to(transitions), transitions.new_ones(1, n)))
    right = torch.nn.functional.one_hot(torch.tensor(n), n + 1).to(transitions)
    return torch.linalg.lstsq(system, right[:, None]).solution[:, 0].clamp(min=0)
