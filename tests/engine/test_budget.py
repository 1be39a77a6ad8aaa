"""The byte budget: chunks change nothing, what is allocated stays within it, and too little is refused."""

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from mnemoscope.analyses.patching import patch
from mnemoscope.core.errors import InputError
from mnemoscope.core.metrics import METRICS
from mnemoscope.engine.architecture import read_transformer
from mnemoscope.engine.budget import MAX_BYTES, Sizes, default_max_bytes
from mnemoscope.interventions.cells import grid, plan_sweep
from mnemoscope.interventions.measurement import SweepQuestion
from tests.interventions.patching.prompts import prompt_pairs
from tests.support import foreign_model

MEGABYTE = 10**6


def most_at_once(work) -> int:
    """Bytes of tensors that were alive at the same time at most, those made before not counted."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        work()
    held = most = 0
    for event in record.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            most = max(most, held)
    return most


WIDE = {"d_model": 32, "d_head": 8, "n_heads": 4, "d_mlp": 128, "n_ctx": 40}
MANY_TOKENS = {**WIDE, "d_mlp": 32, "d_vocab": 300, "act_fn": "relu"}
LONG = {"d_model": 16, "n_heads": 8, "n_ctx": 80}
CELLS = {
    "resid_pre": (("layer", "pos"), {"pos": [0, 7]}),
    "k": (("layer", "pos", "head"), {"pos": [0, 7]}),
    "scores": (("layer", "head", "query", "key"), {"query": [30], "layer": [0], "head": [0, 1]}),
    "post": (("layer", "neuron"), {"neuron": range(12)}),
}


SIZES = {"wide": (WIDE, [-1]), "many tokens": (MANY_TOKENS, range(40)), "long": (LONG, [-1])}
WAYS = [*(("stream", kind) for kind in CELLS), ("hooks", "resid_pre")]
QUICK = [
    ("wide", "stream", "resid_pre"),
    ("wide", "stream", "k"),
    ("long", "stream", "scores"),
    ("many tokens", "stream", "post"),
    ("wide", "hooks", "resid_pre"),
]
"""Every way once, and every size."""
OTHERS = {(size, *way) for size in SIZES for way in WAYS} - set(QUICK)


@pytest.mark.parametrize(
    ("size", "method", "kind"), [*QUICK, *(pytest.param(*case, marks=pytest.mark.thorough) for case in sorted(OTHERS))]
)
def test_what_is_allocated_stays_within_the_budget(size, method, kind):
    sizes, scored = SIZES[size]
    subject = foreign_model(**sizes)
    pairs = prompt_pairs(n=8, n_pos=sizes["n_ctx"], scored=scored)
    over, only = CELLS[kind]
    budget = 4 * MEGABYTE
    results = []
    most = most_at_once(
        lambda: results.append(
            patch(subject, pairs, kind=kind, over=over, only=only, metrics=METRICS, method=method, max_bytes=budget)
        )
    )
    own = results[0].value.nbytes
    assert most - own < budget
    assert most - own > budget / 8  # an estimate that is far too high would make the chunks small


@pytest.mark.parametrize("method", ["stream", "hooks"])
def test_chunks_change_nothing(method):
    subject, pairs = foreign_model(), prompt_pairs(n=7, scored=(2, 5))
    small = 95_000
    cells = grid(subject, "z", ("layer", "pos", "head"), n_pos=6, only={})
    question = SweepQuestion(model=subject, pairs=pairs, max_bytes=small)
    assert plan_sweep(question, cells, method).n_prompts in (1, 2, 3, 4)
    whole, cut = (
        patch(subject, pairs, kind="z", over=("layer", "pos", "head"), method=method, **more)
        for more in ({}, {"max_bytes": small})
    )
    assert abs(whole.value - cut.value).max() < 1e-5
    assert (whole.value != whole.clean).any()


def test_too_small_a_budget_is_refused():
    with pytest.raises(InputError, match=r"max_bytes leaves .* bytes for activations and one prompt needs .*; allow"):
        patch(foreign_model(), prompt_pairs(), kind="z", over=("layer",), max_bytes=10_000)


def test_no_gradient_is_kept():
    subject = foreign_model()
    assert all(parameter.requires_grad for parameter in subject.parameters())
    result = patch(subject, prompt_pairs(), kind="z", over=("layer",))
    assert torch.tensor(result.value.values).isfinite().all()
    assert all(parameter.grad is None for parameter in subject.parameters())


def test_where_no_bound_is_given_copies_of_weights_have_room_besides():
    """A vocabulary of 50,000 and wide layers take most of 256 MiB by themselves."""
    subject = foreign_model(d_vocab=50_000, d_model=64, n_layers=4, d_head=16, n_heads=4, d_mlp=32)
    sizes = Sizes(cfg=subject.cfg, n_pos=1, n_read=1)
    assert default_max_bytes(subject) == MAX_BYTES + sizes.weight_bytes() + max(
        sizes.copied_bytes(), sizes.traced_weight_bytes()
    )
    assert sizes.copied_bytes() >= read_transformer(subject).copied_bytes - 4 * 4 * 3 * 64
    assert patch(subject, prompt_pairs(d_vocab=50_000), kind="resid_pre", over=("layer",)).sizes["layer"] == 4
