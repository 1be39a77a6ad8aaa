"""`discover --stability`: what its tables, figures and finding say of circuits that stay, and of those that do not."""

from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

from mnemoscope.analyses.discovery.stability import ALL, PROMPTS
from mnemoscope.core.errors import InputError
from mnemoscope.core.seeding import generator
from mnemoscope.models.run import open_run
from mnemoscope.records import stability
from mnemoscope.records.discover import Discover, check, notes
from mnemoscope.records.record import MeasuredRuns

CHANGES = [PROMPTS, "metric kl", "replacement zero", "contrast other", ALL]
FACTORS = [PROMPTS, "metric", "replacement", "contrast", ALL]
EDGES = ["input → the head q", "the head → logits", "input → logits"]


def found(seeds=(3, 4), p=0.005) -> xr.Dataset:
    """Circuits of two edges; the last edge is in half of them when all is changed, and a contrast finds none."""
    share = np.zeros((len(seeds), 5, 3))
    share[:, :, :2] = 1
    share[:, 4, 2] = 0.5
    share[:, 3] = np.nan
    overlap = np.tile([1.0, 0.9, 0.4, np.nan, 0.8], (len(seeds), 1))
    there = np.where(np.isnan(overlap), np.nan, 1)
    draws = np.ones(4)
    axes = ("seed", "change", "edge")
    return xr.Dataset(
        {
            "circuit": (("seed", "change", "draw", "edge"), np.nan_to_num(share)[:, :, None] * draws[:, None] >= 1),
            "n_edges": (("seed", "change", "draw"), np.nan_to_num(share.sum(-1))[..., None] * draws),
            "n_found": (("seed", "change"), 4 * np.nan_to_num(there)),
            "share": (axes, share),
            "expected": (axes, np.where(np.isnan(share), np.nan, 0.3)),
            "q": (axes, np.where(share == 1, 0.01, 0.9)),
            "core": (axes, (share >= 0.9).astype(float)),
            "jaccard": (("seed", "change"), overlap),
            "by_chance": (("seed", "change"), 0.25 * there),
            "p_jaccard": (("seed", "change"), p * there),
            "random": (("seed", "change", "null"), there[..., None] * np.linspace(0.1, 0.4, 20)),
        },
        coords={"seed": list(seeds), "change": CHANGES, "factor": ("change", FACTORS), "edge": EDGES},
        attrs={"metric": "logit_diff", "pairs": "swapped", "core": 0.9},
    )


def measured(**results):
    return MeasuredRuns(results=results, options=Discover(stability=True, n_draws=4), runs=[])


REAL_OVERLAP = stability.seed_overlap


@pytest.fixture(autouse=True)
def between(monkeypatch):
    """The overlap between seeds is planted: it needs the graph of a model."""
    numbers = {"jaccard": 0.6, "by_chance": 0.25, "p_jaccard": 0.2, "n_found": 2}
    planted = xr.Dataset(numbers, coords={"seed": [3, 4]})
    monkeypatch.setattr(stability, "seed_overlap", lambda *of: planted if of[2].sizes["seed"] > 1 else None)


def test_every_change_has_a_row_beside_chance_and_seeds_one_of_their_own():
    overlap, core = stability.tables(measured(stability_recall=found()))
    assert [row[1] for row in overlap.rows] == [*CHANGES, "another seed"]
    assert all(len(row) == len(overlap.header) for row in overlap.rows)
    assert overlap.rows[2][4:] == ["0.40 [0.40, 0.40]", "0.25 [0.25, 0.25]", "0.005 [0.005, 0.005]", "2/2"]
    assert overlap.rows[3][2:] == ["0.00 [0.00, 0.00]", "–", "–", "–", "–", "0/0"]
    assert overlap.rows[5][4:7] == ["0.60", "0.25", "0.200"]
    assert "4 draws of prompts; logit_diff, swapped" in overlap.title
    assert [row[1] for row in core.rows] == EDGES
    assert core.rows[0][-2:] == ["2/2", "2/2"]
    assert core.rows[2][2:] == [
        "0.00 [0.00, 0.00]", "0.30 [0.30, 0.30]", "0.50 [0.50, 0.50]", "0.30 [0.30, 0.30]", "0/2", "0/2",
    ]  # fmt: skip


def test_the_finding_says_what_stays_and_what_moves_it():
    said = stability.finding(measured(stability_recall=found()))
    assert said == (
        "Circuits for recall overlap 1.00 [1.00, 1.00] (random ones 0.25: above chance in 2 of 2 seeds) with other "
        "prompts; 0.80 [0.80, 0.80] (random ones 0.25: above chance in 2 of 2 seeds) with all choices changed at once; "
        "0.60 (random ones 0.25: not above chance, p 0.200) between seeds. In 90 % of circuits stay "
        "input → the head q, the head → logits. The choice that moves them most is replacement zero (0.40)."
    )


def test_an_overlap_of_chance_is_called_so():
    said = stability.finding(measured(stability_recall=found(p=0.4)))
    assert said.count("not above chance in any of 2 seeds") == 2
    alone = stability.finding(measured(stability_recall=found((3,), p=0.4)))
    assert "1.00 (random ones 0.25: not above chance, p 0.400) with other prompts" in alone
    assert "between seeds" not in alone


def test_without_circuits_nothing_is_compared():
    nothing = found().assign(jaccard=found().jaccard * np.nan)
    assert stability.finding(measured(stability_recall=nothing)) == (
        "For recall too few circuits were found to compare them."
    )
    assert stability.figures(measured(stability_recall=nothing)) == []


def test_figures_have_a_row_for_what_can_be_compared_with_chance_behind():
    (first, overlap), (second, share) = stability.figures(measured(stability_recall=found()))
    assert first.startswith("recall: overlap")
    assert second.startswith("recall: share")
    assert list(overlap.layout.yaxis.ticktext) == [name for name in CHANGES if name != "contrast other"]
    chance, bars, dots = overlap.data
    assert chance.base[0] == pytest.approx(0.1 + 0.3 * 0.025, abs=0.01)
    assert list(bars.x[:3]) == [1.0, 0.9, 0.4]
    assert len(dots.x) == 8
    assert list(share.layout.yaxis.ticktext) == EDGES
    assert [trace.name for trace in share.data] == ["by chance", PROMPTS, PROMPTS, ALL, ALL]


def test_the_overlap_of_seeds_is_computed_once():
    circuits = found()
    kept = xr.Dataset({"jaccard": 0.6, "n_found": 2})
    again = measured(stability_recall=circuits, seeds_recall=kept)
    assert REAL_OVERLAP(again, "recall", circuits) is kept
    fewer = measured(stability_recall=circuits, seeds_recall=kept.assign(n_found=3))
    with pytest.raises(IndexError):  # the overlap of other seeds is measured on the first run, and there is none
        REAL_OVERLAP(fewer, "recall", circuits)


def test_limits_of_stability_stand_below_it_only():
    result = {"discovery_recall": xr.Dataset(coords={"search": ["greedy"], "edge": ["L0H0 → logits"]})}
    with_it = notes(measured(**result))
    without = notes(replace(measured(**result), options=Discover()))
    assert set(with_it) - set(without) == set(stability.LIMITS)


@pytest.mark.parametrize(
    ("label", "wordings", "said"),
    [
        ("v3-quick/seed-16", True, "question and answer stay"),
        ("v3-quick/seed-16", False, "which --wordings tries"),
        ("k-hop-4-quick/seed-16", False, "no other wording"),
    ],
)
def test_a_line_says_whether_there_are_other_wordings(label, wordings, said):
    options = Discover(stability=True, wordings=wordings)
    assert said in stability.notes(MeasuredRuns(results={}, options=options, runs=[open_run(f"zoo:{label}")]))[-1]


def test_wordings_that_a_task_does_not_have_are_refused():
    run = open_run("zoo:k-hop-4-quick/seed-16")
    with pytest.raises(
        InputError, match="--wordings: the task k-hop has no other wording of its prompts; leave it out"
    ):
        stability._wordings(run, Discover(stability=True, wordings=True), [])
    with pytest.raises(InputError, match="--wordings is about --stability"):
        check(Discover(wordings=True))


@pytest.mark.full
def test_other_wordings_are_a_change_of_their_own():
    run = open_run("zoo:v3-quick/seed-16")
    options = Discover(n=16, n_draws=2, n_random=5, skills=("recall",), stability=True, wordings=True)
    found = stability.measure_stability(run, options)["stability_recall"]
    assert "wording permute_pairs" in found.change.values
    at = found.sel(change="wording permute_pairs")
    assert (at.n_edges > 0).all()


def test_draws_are_other_prompts_and_contrasts_other_corruptions():
    run, options = open_run("zoo:v3-quick/seed-16"), Discover(n=8, n_draws=2, skills=("recall",))
    batches = list(stability._batches(run, options))
    draws = stability._draws_by_skill(run, options, batches)
    assert list(draws) == ["recall"]
    assert [each.name for each in draws["recall"]] == ["exchange_answer"] * 2
    one, other = (each.clean.inputs.numpy() for each in draws["recall"])
    assert not np.array_equal(one, other)
    contrasts = stability._contrasts(run, options, "recall", batches)
    assert set(contrasts) == {"exchange_distractor", "move_repeat", "toggle_repeat", "permute_pairs"}
    fresh = run.spec.task.monitor(4, split="test", generator=generator(16, "other"))
    assert "move_repeat" not in stability._contrasts(run, options, "elimination", [fresh])
