import pytest
import torch

from mnemoscope.core.seeding import generator, stream_seed
from tests.support import global_generators_untouched

STREAMS = [(0,), (1,), (0, "data"), (0, "data", 0), (0, "data", 1), (0, "data", "0"), (1, "data"), (0, "da", "ta")]


def test_every_stream_has_a_seed_of_its_own_that_fits_a_generator():
    seeds = {stream_seed(*stream) for stream in STREAMS}
    assert len(seeds) == len(STREAMS)
    assert all(0 <= seed < 2**63 for seed in seeds)


@pytest.mark.parametrize("stream", STREAMS)
def test_a_stream_is_a_function_of_its_name(stream):
    assert torch.equal(torch.rand(5, generator=generator(*stream)), torch.rand(5, generator=generator(*stream)))


def test_streams_are_uncorrelated():
    draws = torch.stack([torch.randn(20_000, generator=generator(*stream)) for stream in STREAMS])
    off_diagonal = draws.corrcoef() - torch.eye(len(STREAMS))
    assert off_diagonal.abs().max() < 5 / 20_000**0.5


def test_the_global_generator_is_left_alone():
    with global_generators_untouched():
        torch.rand(3, generator=generator(0, "x"))
