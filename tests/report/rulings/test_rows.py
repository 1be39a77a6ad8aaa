import copy
import csv
import json
from dataclasses import replace

import pytest

from mnemoscope.claims.ruling import ruling_record
from mnemoscope.claims.standing import Standing
from mnemoscope.report.rulings import (
    DIFF_HEADER,
    VERDICT_HEADER,
    diff_rows,
    rulings_page,
    shorten_rows,
    unjudged_rows,
    verdict_rows,
    verdict_tables,
)
from mnemoscope.report.rulings.words import registered_notes
from mnemoscope.report.tables import table_files
from tests.report.rulings.made_up import all_kinds, lone, nobody_passes, simple, too_small, two_heads


def recorded(*rulings):
    """As read from a file."""
    return json.loads(json.dumps([ruling_record(ruling) for ruling in rulings], allow_nan=False))


def test_rows_for_the_terminal():
    rows = verdict_rows(all_kinds())
    assert all(len(row) == len(VERDICT_HEADER) for row in rows)
    by_id = {row[0]: row for row in rows}
    whole = by_id["T14"][1]
    assert whole == {ruling.claim.id: ruling for ruling in all_kinds()}["T14"].claim.statement
    assert len(whole) > 72
    short = {row[0]: row for row in shorten_rows(all_kinds())}["T14"]
    assert short[1] == "Removing one head costs elimination & not recall, removing the other …"
    assert short[2:6] == by_id["T14"][2:6]
    assert short[6] == "no"
    assert by_id["T14"][3] == "published"
    assert by_id["T2"][2:6] == ["MIXED", "–", "0.50 [0.25, 0.75]", "0.375 [0.1686, 0.5915] logits"]
    assert by_id["T4"][2:] == [
        "too few seeds (1 of 16)",
        "–",
        "1.00 [0.03, 1.00]",
        "0.75 [-∞, ∞] logits",
        "no",
        "No control tests the measure. The effect is above 0.25 logits in 1 of 1 seeds; a verdict needs 16 seeds.",
    ]
    assert by_id["T6"][4:6] == ["–", "–"]


def test_the_terminal_says_in_short_why_there_is_no_verdict_and_how_a_claim_is_registered():
    """A column of twenty lines would hide the verdicts, and "not applicable" the missing seeds."""
    rulings = [*all_kinds(), nobody_passes()]
    short = {row[0]: row for row in shorten_rows(rulings)}
    assert short["T4"][2] == "too few seeds (1 of 16)"
    assert short[nobody_passes().claim.id][2] == "no seed passes the gate"
    (ruling,) = [ruling for ruling in all_kinds() if ruling.claim.id == "T14"]
    differs = replace(ruling, departures=("values", "gate"), code="code moved since registration (gate)")
    assert shorten_rows([differs])[0][6] == "otherwise"
    before = Standing(
        status="before its runs", registered="2026-01-01T00:00:00+00:00", runs="2026-01-02T00:00:00+00:00"
    )
    assert shorten_rows([replace(ruling, departures=())])[0][6] == "no"
    assert shorten_rows([replace(ruling, standing=before)])[0][6] == "before its runs"
    standings = [("A", ("gate",), ""), ("B", (), ""), ("C", None, ""), ("D", ("gate",), ""), ("E", (), "code moved")]
    assert registered_notes(standings) == ["A, D: not as registered: gate", "E: as registered; code moved"]


def test_files_hold_whole_statements_and_the_effect_of_every_replicate():
    verdicts, effects = verdict_tables([two_heads(), nobody_passes()])
    assert verdicts.rows[0][1] == two_heads().claim.statement
    files = dict(table_files(effects))
    (claim, _), *_ = ruling_parts = [(row[0], row[1]) for row in effects.rows]
    assert claim == two_heads().claim.id
    header, *rows = csv.reader(files["effects-seeds.csv"].splitlines())
    assert header == ["id", "part", "must be", "column", "seed", "value"]
    judged = [row for row in rows if row[0] == claim and row[1] == ruling_parts[0][1]]
    assert len(judged) == two_heads().verdict.n
    mean = sum(float(row[-1]) for row in judged) / len(judged)
    assert mean == pytest.approx(two_heads().verdict.parts[0].effect)


def test_what_was_measured_of_those_that_fail_the_gate_is_shown_where_nobody_passes():
    assert unjudged_rows([nobody_passes(), two_heads()]) == [], "no values; and seeds that pass"
    rows = [["T7", "the effect", "0.5 [0.25, 0.75] logits", "2 seeds"]]
    assert unjudged_rows([too_small(), nobody_passes()]) == rows
    page = rulings_page([too_small()], title="")
    for words in ("fail the gate; no verdict rests on it", "2 seeds; judged: none", "no seed is judged."):
        assert words in page
    assert "0 of 0" not in page
    *_, table = verdict_tables([too_small()])
    assert (table.name, table.rows) == ("unjudged", rows)


def test_the_same_list_has_no_differences():
    records = recorded(*all_kinds())
    assert diff_rows(records, copy.deepcopy(records)) == []


def test_differences_are_named():
    old = recorded(simple("T1", 16), simple("T2", 16), simple("T3", 16), lone())
    new = recorded(simple("T1", 16), simple("T2", 8), simple("T3", 15), nobody_passes())
    rows = {row[0]: dict(zip(DIFF_HEADER, row, strict=True)) for row in diff_rows(old, new)}
    assert set(rows) == {"T2", "T3"}  # T4 and T6 were tried once
    assert rows["T2"]["what"] == "another verdict"
    assert rows["T2"]["verdict"] == "SUPPORTED → MIXED"
    assert rows["T2"]["share"] == "1.00 [0.79, 1.00] → 0.50 [0.25, 0.75]"
    assert rows["T2"]["effect"].startswith("0.75 [0.75, 0.75] logits → 0.375 [")
    assert rows["T3"]["what"] == "other numbers"
    assert rows["T3"]["verdict"] == "SUPPORTED"


def test_rivals_and_cells_are_compared_too():
    old = recorded(two_heads())
    new = copy.deepcopy(old)
    new[0]["rivals"][0]["outcome"] = "REFUTED"
    new[0]["sensitivity"][1]["effect"] = 0.5
    rows = {row[0]: row[1:] for row in diff_rows(old, new)}
    assert set(rows) == {"T14-both", "T14, kind = resample"}
    assert rows["T14-both"][:2] == ["another verdict", "SUPPORTED → REFUTED"]
    assert rows["T14, kind = resample"][0] == "other numbers"


def test_a_rival_that_is_in_one_of_them_only_is_a_difference():
    old = recorded(two_heads())
    new = copy.deepcopy(old)
    gone = new[0]["rivals"].pop()["id"]
    rows = {row[0]: row[1:] for row in diff_rows(old, new)}
    assert set(rows) == {gone}
    assert rows[gone][0] == "only in the old"
    assert [row[1] for row in diff_rows(new, old)] == ["only in the new"]
