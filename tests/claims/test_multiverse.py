"""A wrong combination would show agreement with a verdict that nobody judged."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from mnemoscope.claims.claim import CLAIMS, Claim, Control, Gate
from mnemoscope.claims.multiverse import AS_CLAIMED, choices_of, combinations, n_combinations
from mnemoscope.claims.ruling import ruling_record
from mnemoscope.claims.trials import run_trials
from mnemoscope.core.presets import Configuration
from mnemoscope.models.subjects import Subject
from mnemoscope.report.rulings import rulings_page, verdict_tables
from tests.claims.trials import make_claim

D4 = Configuration(preset="d4")
HEADLINES = [id for id in CLAIMS.names() if CLAIMS.get(id).headline]


def by_draw(draw: int, *, side: int = 1) -> dict[str, float]:
    """Effects of 1 in fifteen of sixteen draws, and the opposite on the other side."""
    return {"effect": side * (1.0 if draw else 0.0)}


def halves(draw: int) -> dict[str, list[float]]:
    """Effects near 1 on the first half of the prompts, near -1 on the second."""
    noise = 0.01 * (np.arange(512) % 8) + 0.001 * draw
    return {"effect": (np.repeat([1.0, -1.0], 256) + noise).tolist()}


def planted(case: int) -> dict[str, dict[str, float]]:
    return {"draw": {"effect": 0.4}}


def of_case(case: int, *, side: int = 1) -> dict[str, float]:
    """Draws are high on either side, and the planted case -1 is high on the other side only."""
    return {"effect": 1.0 if case >= 0 else float(-side)}


def handed(case: int) -> dict[str, int]:
    return {"draw": -1}


def of_draws(**changes) -> Claim:
    common = {"id": "X", "statement": "draws are high", "source": "made up", "quantifier": "most", "margin": 0.3}
    return Claim(**{**common, "replicate": "draw", "measure": by_draw, **changes})


def tried(claim: Claim):
    (ruling,) = run_trials([claim], [], multiverse=True)
    assert ruling.multiverse is not None
    return ruling


@pytest.mark.parametrize(
    ("margin", "unit", "direction", "expected"),
    [
        (0.25, "accuracy", "above", {0.125, 0.1875, 0.25, 0.375, 0.5}),
        (0.99, "accuracy", "above", {0.995, 0.9925, 0.99, 0.985, 0.98}),
        (0.5, "accuracy", "above", {0.25, 0.375, 0.5, 0.75}),
        (0.25, "accuracy", "within", {0.125, 0.1875, 0.25, 0.375, 0.5}),
        (0.9, "logits", "below", {0.45, 0.675, 0.9, 1.35, 1.8}),
        (0.0, "accuracy", "above", {0.0}),
    ],
)
def test_margins_are_halved_and_doubled_from_the_nearer_end(margin, unit, direction, expected):
    claim = make_claim(margin=margin, unit=unit, direction=direction)
    applied = [each.applied_to(claim).criteria[0] for each in combinations(claim)]
    assert sorted({round(part.margin, 9) for part in applied}) == pytest.approx(sorted(expected))
    assert ("margin" in choices_of(claim)) == (margin != 0)
    assert {part.direction for part in applied} == {direction}


def test_the_gate_moves_and_never_becomes_one_that_nothing_passes():
    claim = make_claim(gate=Gate(statement="has learned", at_least=0.99))
    bounds = {each.applied_to(claim).gate.at_least for each in combinations(claim)}
    assert sorted(bounds) == pytest.approx([0.98, 0.99, 0.995])
    beyond = make_claim(gate=Gate(statement="is high", at_least=3.0))
    assert {each.applied_to(beyond).gate for each in combinations(beyond)} == {beyond.gate}


def test_all_combinations_are_tried_where_they_are_few():
    varied = {"factors": {"kind": ("zero", "resample"), "recipe": ("quick",)}, "choices": {"draw": (1,)}}
    claim = make_claim(bounds=(-1, 1), **varied)
    found = combinations(claim)
    assert len(found) == len(set(found)) == n_combinations(claim) == 3 * 2 * 2 * 5 * 2
    first = found[0]
    assert first.changed == ()
    assert first.applied_to(claim).criteria == claim.criteria
    words = first.in_words(claim)
    assert words == {
        "kind": AS_CLAIMED, "recipe": AS_CLAIMED, "draw": AS_CLAIMED, "margin": "× 1", "quantifier": "most",
    }  # fmt: skip
    assert "quantifier" not in choices_of(make_claim(**varied))  # a mean of what has no bounds decides nothing


@pytest.mark.parametrize("id", HEADLINES)
def test_of_many_combinations_a_balanced_sample_is_drawn(id):
    claim = CLAIMS.get(id)
    found = combinations(claim)
    assert 50 <= len(found) == len(set(found)) == 200 < n_combinations(claim)
    assert found == combinations(claim) != combinations(claim, seed=1)
    for name, values in choices_of(claim).items():
        counts = Counter(each.in_words(claim)[name] for each in found)
        assert len(counts) == len(values)
        assert max(counts.values()) - min(counts.values()) <= 0.25 * len(found) / len(values) + 2


def test_agreement_is_counted_by_choice():
    """The other side is refuted; on this one every margin is supported."""
    ruling = tried(of_draws(factors={"side": (-1,)}))
    assert ruling.verdict.outcome == "SUPPORTED"
    found = ruling.multiverse
    assert (len(found.universes), found.n_combinations, found.n_drawn) == (10, 10, 10)
    assert (found.n_agreeing, found.n_opposed) == (5, 5)
    assert found.agreement[:2] == [("side", AS_CLAIMED, 5, 5), ("side", "-1", 0, 5)]
    assert found.sentence.startswith(
        "Of 10 combinations of analysis choices 5 (50 %) agree with the verdict SUPPORTED, 5 decide otherwise and 0"
    )
    assert tried(of_draws()).multiverse.n_opposed == 0


@pytest.mark.full
def test_each_half_of_the_prompts_is_judged_by_itself():
    found = tried(of_draws(measure=halves, margin=0.5, prompts="own")).multiverse
    outcomes = {}
    for each in found.universes:
        outcomes.setdefault(each.choices["prompts"], set()).add(each.verdict.outcome)
    assert outcomes == {"all": {"REFUTED"}, "first half": {"SUPPORTED"}, "second half": {"REFUTED"}}


def test_controls_are_measured_under_the_same_factors_and_held_to_the_margins_of_the_claim():
    """A planted effect of .4 clears the halved margin, not the claim's; with the other side the plant turns bad."""
    control = Control(name="planted", kind="negative", plant=planted, n=1)
    ruling = tried(of_draws(margin=0.45, controls=(control,), measure=of_case, factors={"side": (-1,)}))
    assert {each.outcome for each in ruling.multiverse.universes if each.choices["side"] == AS_CLAIMED} == {"SUPPORTED"}
    bad = Control(name="measured", kind="negative", plant=handed, n=1)
    found = tried(of_draws(margin=0.45, controls=(bad,), measure=of_case, factors={"side": (-1,)})).multiverse
    assert {each.outcome for each in found.universes if each.choices["side"] == AS_CLAIMED} == {"SUPPORTED"}
    assert {each.outcome for each in found.universes if each.choices["side"] == "-1"} == {"INCONCLUSIVE"}
    assert "In 5 a control misbehaves" in found.sentence


def test_combinations_without_models_are_counted_and_not_judged():
    claim = of_draws(replicate="seed", units={"d4": D4}, measure=of_subject, factors={"recipe": ("published",)})
    (ruling,) = run_trials([claim], [], multiverse=True)
    assert ruling.multiverse is None
    half = replace(tried(of_draws()).multiverse, n_drawn=20)
    assert "15 more cannot be judged" in half.sentence


def of_subject(subject: Subject) -> dict[str, float]:
    return {"effect": 1.0}


def test_page_tables_and_record_show_every_combination():
    ruling = tried(of_draws(factors={"side": (-1,)}))
    html = rulings_page([ruling], title="trial")
    assert "Under all combinations of choices" in html
    assert "5 of 10 combinations agree" in html
    assert ruling.multiverse.sentence in html
    (table,) = (table for table in verdict_tables([ruling]) if table.name == "multiverse")
    assert len(table.rows) == 10
    record = ruling_record(ruling)["multiverse"]
    assert record["n_agreeing"] == 5
    assert len(record["universes"]) == 10
    assert ruling_record(replace(ruling, multiverse=None))["multiverse"] is None
