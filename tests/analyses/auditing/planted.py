"""Effects by cell and prompt of which some are planted."""

import numpy as np
import torch
import xarray as xr

import mnemoscope as ms


def null_effects(rng, *, n_cells=48, n=48, shared=0.5):
    """Effects without a mean: heavy tails, and a part that all cells share."""
    own, common = rng.standard_t(4, (n_cells, n)), rng.standard_t(4, (1, n))
    return (1 - shared) * own + shared * common


def by_cell(values):
    return xr.DataArray(values, dims=("component", "prompt"), coords={"component": np.arange(len(values))})


def coin_pairs(n, *, d_vocab=6, n_pos=9, seed=0):
    """Unrelated prompts whose answer and foil are told apart by a coin: no part can carry which is which."""
    stream = ms.generator(seed, "coin")
    sides = [torch.randint(d_vocab, (n, n_pos), generator=stream) for _ in range(2)]
    answer = torch.randint(d_vocab, (n,), generator=stream)
    foil = (answer + 1 + torch.randint(d_vocab - 1, (n,), generator=stream)) % d_vocab
    scored = torch.zeros(n, n_pos, dtype=torch.bool)
    scored[:, -1] = True
    clean, corrupted = (
        ms.Batch(inputs=inputs, targets=due[:, None].expand(-1, n_pos).clone(), scored=scored)
        for inputs, due in zip(sides, (answer, foil), strict=True)
    )
    return ms.PromptPairs(clean=clean, corrupted=corrupted, name="coin")
