"""Independent random streams derived from one integer seed.

Initialisation, data, evaluation and controls each draw from a separate stream, so that changing how much one of
them draws leaves the others as they were. A stream is a pure function of its name: nothing has to be stored to
continue it.
"""

import hashlib

import torch


def stream_seed(seed: int, *stream: str | int) -> int:
    """The 63-bit seed of the stream `stream` under `seed`."""
    digest = hashlib.sha256(repr((seed, *stream)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def generator(seed: int, *stream: str | int, device: torch.device | str = "cpu") -> torch.Generator:
    """A fresh generator for the stream `stream` under `seed`; the global generator is left alone.

    >>> first, again = (torch.rand(2, generator=ms.generator(0, "prompts")) for _ in range(2))
    >>> torch.equal(first, again)
    True
    """
    return torch.Generator(device=device).manual_seed(stream_seed(seed, *stream))
