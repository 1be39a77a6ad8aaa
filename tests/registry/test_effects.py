"""Common scales of effects by hand, and the meta-analysis against statsmodels and planted cases."""

import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.meta_analysis import combine_effects

from mnemoscope.claims.entry import Criterion, json_schema
from mnemoscope.registry import effect_sizes, read_registry, what_replicates
from mnemoscope.registry.effects import slack, standardised
from tests.registry.cases import make_entry


def sizes(**changes):
    entry = make_entry(**changes)
    return effect_sizes({entry.id: entry}).isel(claim=0)


def test_scales_by_hand():
    """Effect .8, margin .5, standard deviation .2, 15 of 16: 1.6 margins, 1.5 standard deviations times J(15)."""
    found = sizes()
    assert float(found.share) == 15 / 16
    assert found.share_interval.to_numpy() == pytest.approx([0.69768, 0.99842], abs=1e-5)
    assert float(found.over_margin) == pytest.approx(1.6)
    assert float(found.distance) == pytest.approx(1.5 * 0.949, abs=1e-3)  # Hedges' table: J(15) = .949


@pytest.mark.parametrize(
    ("direction", "margin", "effect", "over"),
    [("above", 0.5, 0.5, 1), ("above", -0.5, 0.0, 2), ("below", 0.5, 0.25, 1.5), ("below", 0.5, 1.0, 0),
     ("within", 0.5, -0.25, 1.5), ("within", 0.5, 0.75, 0.5)],
)  # fmt: skip
@pytest.mark.every_case
def test_one_is_the_margin_in_every_direction(direction, margin, effect, over):
    found = sizes(
        criterion={"direction": direction, "margin": margin}, verdict={"effect": effect, "effect_interval": None}
    )
    assert float(found.over_margin) == pytest.approx(over)
    criterion = Criterion(name="e", quantifier="most", margin=margin, direction=direction)
    assert (float(found.over_margin) > 1) == (slack(criterion, effect) > 0)


def test_numbers_that_are_not_there_are_nan():
    assert math.isnan(sizes(criterion={"margin": 0.0}).over_margin)
    assert math.isnan(sizes(verdict={"sd": 0.0}).distance)
    none = sizes(verdict={"effect": None, "effect_interval": None})
    assert all(math.isnan(none[name]) for name in ("effect", "over_margin", "distance"))
    assert effect_sizes({"": make_entry(verdicts=[])}).sizes["claim"] == 0


def test_a_deviation_that_was_not_kept_comes_from_the_narrower_side_of_the_interval():
    half = 0.2 / math.sqrt(16) * stats.t.isf(0.025, 15)
    kept = sizes()
    for interval in ((0.8 - half, 0.8 + 3 * half), (0.8 - 2 * half, 0.8 + half)):
        found = sizes(verdict={"sd": None, "effect_interval": interval})
        assert float(found.distance) == pytest.approx(float(kept.distance))
    assert math.isnan(sizes(verdict={"sd": None, "effect_interval": None}).distance)
    assert math.isnan(sizes(verdict={"sd": None, "effect_interval": (0.8, 0.8)}).distance)


def test_of_several_parts_the_deciding_one_counts():
    parts = [{"name": name, "quantifier": "most", "margin": margin, "direction": "above"}
             for name, margin in (("first", 0.1), ("effect", 0.4))]  # fmt: skip
    assert float(sizes(criteria=parts).over_margin) == pytest.approx(2)
    assert math.isnan(sizes(criteria=parts, verdict={"deciding": ""}).margin)


def test_the_interval_of_the_distance_inverts_the_noncentral_t():
    g, (low, high), variance = standardised(0.8, 16)
    assert g == pytest.approx(0.8 * (1 - 3 / (4 * 15 - 1)), rel=1e-3)
    for bound, tail in ((low, 0.975), (high, 0.025)):
        assert stats.nct.cdf(0.8 * 4, 15, bound * 4) == pytest.approx(tail, abs=1e-6)
    assert variance == pytest.approx((g / 0.8) ** 2 * (1 / 16 + 0.8**2 / 32))


@pytest.mark.parametrize("distance", [0.01, 0.43, 1.96, 3.8, 10.6, 37.0, 600.0])
@pytest.mark.every_case
def test_intervals_are_sound_at_every_distance(distance):
    """The width is some four times the standard error, and a turned sign turns the interval."""
    g, (low, high), variance = standardised(distance, 16)
    assert low < g < high
    assert 3 < (high - low) / math.sqrt(variance) < 5
    assert standardised(-distance, 16)[1] == pytest.approx((-high, -low), rel=1e-6)


@pytest.mark.full
def test_the_interval_of_the_distance_covers():
    """Of 400 samples of 16 whose distance is .7, 95 % of the intervals hold it; the mean of g is unbiased."""
    draws = np.random.default_rng(0).normal(0.7, 1, (400, 16))
    found = [standardised(each.mean() / each.std(ddof=1), 16) for each in draws]
    covered = sum(low <= 0.7 <= high for _, (low, high), _ in found)
    assert stats.binomtest(covered, 400, 0.95).pvalue > 0.01
    assert np.mean([g for g, *_ in found]) == pytest.approx(0.7, abs=0.05)


def planted(effects, outcomes, kind):
    entries = [
        make_entry(
            id=f"mnemo:toy/{kind[:1].upper()}{i}@1",
            kind=kind,
            verdict={"effect": effect, "effect_interval": None, "outcome": outcome},
        )
        for i, (effect, outcome) in enumerate(zip(effects, outcomes, strict=True))
    ]
    return {entry.id: entry for entry in entries}


def test_the_meta_analysis_is_that_of_statsmodels():
    effects = [0.55, 0.6, 0.7, 0.85]
    entries = planted(effects, ["SUPPORTED", "SUPPORTED", "REFUTED", "MIXED"], "ablation")
    entries |= planted([0.6, 0.6], ["SUPPORTED", "INCONCLUSIVE"], "capacity")
    found = what_replicates(entries).sel(group="ablation")
    assert [int(found[name]) for name in ("n_judged", "n_decided", "n_supported", "n_pooled")] == [4, 3, 2, 4]
    assert (float(found.share_decided), float(found.share_judged)) == (2 / 3, 0.5)
    interval = stats.binomtest(2, 3).proportion_ci(method="exact")
    assert found.of_decided.to_numpy() == pytest.approx([interval.low, interval.high])
    each = [standardised((effect - 0.5) / 0.2, 16) for effect in effects]
    expected = combine_effects(
        np.array([g for g, *_ in each]), np.array([v for *_, v in each]), method_re="iterated", use_t=True
    )
    assert float(found.distance) == pytest.approx(expected.mean_effect_re)
    assert found.distance_interval.to_numpy() == pytest.approx(expected.conf_int()[3])
    few = what_replicates(entries).sel(group="capacity")
    assert (int(few.n_pooled), float(few.share_decided), math.isnan(few.distance)) == (2, 1.0, True)


def test_the_page_has_the_table_and_every_field():
    page = (Path(__file__).parents[2] / "docs" / "registry.md").read_text(encoding="utf-8")
    found = what_replicates(read_registry())
    for kind in found.group.to_numpy():
        row = found.sel(group=kind)
        counts = " | ".join(str(int(row[name])) for name in ("n_judged", "n_decided", "n_supported"))
        shares = [
            f"{_short(row[share])} ({_short(row[interval][0])} to {_short(row[interval][1])})"
            for share, interval in (("share_decided", "of_decided"), ("share_judged", "of_judged"))
        ]
        assert f"| {kind} | {counts} | {' | '.join(shares)} |" in page
    assert [name for name in json_schema()["properties"] if f"`{name}`" not in page] == []


def _short(value) -> str:
    return f"{float(value):.2f}".replace("0.", ".", 1)


def test_groups_are_kinds_systems_or_papers():
    entries = read_registry()
    judged = sum(entry.verdict is not None for entry in entries.values())
    assert int(what_replicates(entries).n_judged.sum()) == judged
    assert int(what_replicates(entries, "system").n_judged.sum()) == judged
    ours = sum(entry.source.paper is None for entry in entries.values() if entry.verdict)
    assert int(what_replicates(entries, "paper").n_judged.sum()) == judged - ours
