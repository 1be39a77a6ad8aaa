"""Games as tables: the value of every coalition, in the order of `coalitions`; further axes are outcomes."""

import torch

from mnemoscope.analyses.games import exact_values


def played(values, log: list[int] | None = None):
    """A table as a game, which logs how many coalitions it was asked for."""
    n = len(values).bit_length() - 1

    def play(there):
        if log is not None:
            log.append(len(there))
        return values[(there.long() * 2 ** torch.arange(n)).sum(1)].view(len(there), -1)

    return play


def shapley_values(values) -> torch.Tensor:
    n = len(values).bit_length() - 1
    return exact_values(played(values), n, interactions=False).view(n, *values.shape[1:])


def shapley_interactions(values) -> torch.Tensor:
    n = len(values).bit_length() - 1
    return exact_values(played(values), n)[n:].view(-1, *values.shape[1:])
