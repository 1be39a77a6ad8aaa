"""Interchange, head roles and ablation on compiled programs find what the compiler put where."""

from dataclasses import replace

import pytest
import torch

import mnemoscope as ms
from mnemoscope.systems.rasp.models import compiled


def every_sequence(program: str) -> ms.Batch:
    return replace(compiled(program).task.enumerate(split="test"), weights=None)


def test_interchange_finds_the_head_of_each_count():
    found = compiled("majority")
    counts = ms.core.CausalModel(
        name="majority",
        variables={
            letter: lambda known, token=token: (known["tokens"] == token).sum(1) for token, letter in enumerate("ab")
        },
        answer=lambda known: (known["a"] > known["b"]).long(),
    )
    pairs = ms.analyses.random_pairs(every_sequence("majority"), 200)
    result = ms.analyses.interchange_accuracy(found.model(), counts, pairs)
    assert result.attrs["agreement"] == result.attrs["follows"] == 1
    for letter in "ab":
        (sop,) = [sop for sop in found.places if sop.startswith(f"count_{letter}")]
        at = result.iia.sel(variable=letter)
        carried = (at.sel(over="changing") == 1) & (at.sel(over="kept") == 1)
        assert carried.place.values[carried].tolist() == [found.places[sop][0]]


def test_interchange_finds_a_flag_everywhere_on_its_way():
    found = compiled("dedup")
    pos, dash = torch.arange(5), found.task.classes.index("-")
    flag = ms.core.CausalModel(
        name="dedup",
        variables={"before": lambda known: ((known["tokens"][:, 1:] == known["tokens"][:, -1:]) & (pos < 4)).any(1)},
        answer=lambda known: torch.where(known["before"], dash, known["tokens"][:, -1]),
    )
    pairs = ms.analyses.random_pairs(every_sequence("dedup"), 200)
    result = ms.analyses.interchange_accuracy(found.model(), flag, pairs)
    assert result.attrs["agreement"] == result.attrs["follows"] == 1
    at = result.iia.squeeze("variable")
    carried = (at.sel(over="changing") == 1) & (at.sel(over="kept") == 1)
    on_its_way = [found.places[sop] for sop in found.places if sop.startswith(("token_and_place", "before"))]
    assert set(carried.place.values[carried].tolist()) == {part for parts in on_its_way for part in parts}


def test_scores_name_the_heads_of_induction():
    found = compiled("induction")
    scores = ms.analyses.head_scores(found.model(), every_sequence("induction")).score.isel(head=0)
    assert scores.sel(score_name="previous token").values == pytest.approx([1, 0.35], abs=0.02)
    assert scores.sel(score_name="induction").values == pytest.approx([0.38, 1], abs=0.02)


@pytest.mark.parametrize(("program", "n_called"), [("hist", 2), ("majority", 6), ("reverse", 6)])
def test_zero_ablation_calls_constants_needed_and_mean_ablation_does_not(program, n_called):
    found = compiled(program)
    model, batch = found.model(), every_sequence(program)
    edges = {str(edge): edge for edge in ms.interventions.model_edges(model)}
    source = ms.Named(name="sequences", value=batch)

    def right(change: ms.Intervention) -> bool:
        return bool((ms.run_with(model, batch, [change]).argmax(-1) == batch.targets)[batch.scored].all())

    called = [name for name in found.constants if not right(ms.Zero(site=edges[name]))]
    assert len(called) == n_called
    assert all(right(ms.Mean(site=edges[name], source=source)) for name in found.constants)
