"""Independent random streams derived from one integer seed, and defaults of torch on which no result may depend.

Initialisation, data, evaluation and controls each draw from a separate stream, so that changing how much one of
them draws leaves the others as they were. A stream is a pure function of its name: nothing has to be stored to
continue it.
"""

import hashlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

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


@contextmanager
def fixed_defaults() -> Iterator[None]:
    """Within the block torch makes float32 tensors on the CPU that gradients can be taken of.

    A default dtype, a default device or an inference mode of the user would otherwise give other weights from the same
    seed, or weights without gradients. All three are as before after the block.
    """
    before = torch.get_default_dtype()
    with ExitStack() as stack:
        if torch.is_inference_mode_enabled():
            stack.enter_context(torch.inference_mode(False))
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        stack.callback(torch.set_default_dtype, before)
        torch.set_default_dtype(torch.float32)
        yield
