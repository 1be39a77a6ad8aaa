import re
from dataclasses import replace
from html import unescape

import pytest
import xarray as xr

from mnemoscope.claims.claim import Criterion
from mnemoscope.claims.registration import Superseded
from mnemoscope.report.rulings import rulings_page
from mnemoscope.report.rulings.words import describe_favoured
from tests.claims.trials import along_seeds, clearing, make_claim, make_evidence
from tests.report.rulings.made_up import all_kinds, example, lone, misbehaving, nobody_passes, ruling, simple, two_heads


def text_of(html: str) -> str:
    """What stands on the page, without scripts, styles and tags."""
    html = re.sub(r"<(script|style)>.*?</\1>", "", html, flags=re.DOTALL)
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", html)))


def part_of(html: str, heading: str) -> str:
    """The text under a heading, to the next one."""
    return text_of(re.split(r"<h[23][^>]*>", html.split(f">{heading}</h", 1)[1], maxsplit=1)[0])


@pytest.fixture(scope="module")
def html():
    return rulings_page(all_kinds(), title="Claims & trials", lead="Seven of them.", examples={"T14": [example()] * 2})


def test_all_verdicts_come_first(html):
    start = part_of(html, "Verdicts")
    for count, outcome in (
        (1, "✓ SUPPORTED"),
        (1, "✗ REFUTED"),
        (1, "◐ MIXED"),
        (2, "? INCONCLUSIVE"),
        (2, "– no verdict"),
    ):
        assert f"{count} {outcome}" in start
    rows = re.findall(r"<tbody>(.*?)</tbody>", html.split('class="entries verdicts"')[1].split("</table>")[0])
    assert [text_of(row).split()[0] for row in rows] == ["T14", "T1", "T2", "T3", "T4", "T5", "T6"]
    first = text_of(rows[0])
    for words in (
        "Removing one head costs elimination & not recall, removing the other costs recall.",
        "headline",
        "a made-up article, section 3",
        "✓ SUPPORTED",
        "0.97 [0.84, 1.00]",
        "accuracy",
        "✓ SUPPORTED published 0.97",
        "Why: With model.normalization = none it is MIXED (9 of 16 seeds). 32 of 34 seeds pass the gate",
        "Favoured: the claim, T14-both (“Removing both heads costs <b>everything</b>.”)",
        "⚑ kind = resample (REFUTED), ⚑ model.normalization = none (MIXED)",
    ):
        assert words in first
    assert "quick" not in first  # too few replicates flip nothing
    assert "Favoured: none" in text_of(rows[1])
    assert "nothing was varied" in text_of(rows[1])


def test_every_claim_is_linked_to_its_section(html):
    links = re.findall(r'<td data-name="id"><div><a href="#(.*?)">(.*?)</a>', html)
    assert len(links) == 7
    for place, id_ in links:
        assert re.search(rf'id="{place}"></div><h2 id="[^"]*">{id_}</h2>', html)


def test_no_outcome_is_said_by_colour_alone(html):
    badges = re.findall(r'<span class="badge ([a-z-]+)"><b aria-hidden="true">(.)</b> ([^<]+)</span>', html)
    assert len(badges) == html.count('class="badge')
    assert len({(kind, sign) for kind, sign, _ in badges}) == len({sign for _, sign, _ in badges}) == 5
    assert all(re.search(r"\w", said) for _, _, said in badges)
    style = html.split("<style>")[1].split("</style>")[0]
    frames = [re.search(rf"\.badge\.{kind} {{[^}}]*}}", style) for kind, _, _ in set(badges)]
    assert all(frame is not None and "border" in frame[0] for frame in frames)


def test_text_from_outside_cannot_be_html(html):
    assert "<b>everything" not in html
    assert "Claims &amp; trials" in html
    assert "default-src 'none'" in html


def test_what_was_asked_is_said_in_words(html):
    asked = part_of(html, "What was asked")
    assert (
        "The claim holds if all of these statements are true: in more than half of the seeds, elimination is above 0.25"
        in asked
    )
    assert "the verdict is about seeds where the model answers recall on unseen mappings in 99 % of prompts" in asked
    assert "measured on 34 seeds; judged: 32" in asked
    assert "replicates 32 seeds or more; a headline claim" in asked
    assert "v3 (v3, published recipe)" in asked
    assert "gate none: the verdict is about every seed" in part_of(
        rulings_page([simple("T1", 8)], title="x"), "What was asked"
    )


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        ({"first_seed": 32}, "seeds that count from 32 on"),
        ({"last_seed": 31}, "seeds that count 0 to 31"),
        ({"first_seed": 16, "last_seed": 31}, "seeds that count 16 to 31"),
    ],
)
def test_which_seeds_count_is_said(bounds, words):
    assert words in part_of(rulings_page([simple("T1", 8, **bounds)], title="x"), "What was asked")
    assert "seeds that count" not in rulings_page([simple("T1", 8)], title="x")


def test_how_it_was_asked_before_is_said():
    earlier = (
        Superseded(reason="the criterion < could not be met", outcome="REFUTED", share=0.125, n=16, recipe="quick"),
        Superseded(reason="a slip"),
    )
    page = rulings_page([replace(simple("T1", 8), superseded=earlier)], title="x")
    assert part_of(page, "Asked before").endswith(
        "> 2 earlier forms REFUTED (2 of 16, quick recipe); superseded: the criterion < could not be met "
        "no verdict was kept; superseded: a slip "
    )
    assert "Asked before" not in rulings_page([simple("T1", 8)], title="x")


@pytest.mark.parametrize(
    ("quantifier", "words"),
    [
        ("every", "in every seed, the effect is above 0.25 logits"),
        ("exists", "in at least one seed, the effect is above 0.25 logits"),
        ("mean", "on average over the seeds, the effect is above 0.25 logits"),
        ("equivalence", "on average over the seeds, the effect is within ±0.25 logits, which counts as no effect"),
    ],
)
def test_every_quantifier_has_words(quantifier, words):
    assert f"The claim holds if {words}." in rulings_page([simple("T1", 8, quantifier=quantifier)], title="x")


def test_controls_are_judged_one_by_one(html):
    controls = part_of(html, "Controls")
    assert "C1: untrained negative not all of: elimination above 0.25, recall above 0.25 elimination -0.0" in controls
    assert "recall -0.75 [-3, 0] in 4 cases ✓ yes" in controls
    assert "positive elimination above 0.25 and recall above 0.25 elimination 0.7625 [0.7, 0.8] in 4 cases" in controls
    assert "effect 0.8 ✗ no: the negative control untrained misbehaves" in part_of(
        rulings_page([misbehaving()], title="x"), "Controls"
    )
    unmeasured = two_heads()
    unmeasured.evidence.controls.pop("untrained")  # pyright: ignore[reportAttributeAccessIssue]
    rows = part_of(rulings_page([unmeasured], title="x"), "Controls")
    assert "not measured ✗ no: the control untrained was not measured" in rows
    assert "0.75 [0.75, 0.75] in 4 cases ✓ yes" in rows


def test_other_choices_stand_beside_the_claim(html):
    cells = part_of(html, "Under other choices")
    assert "2 of 4 changes flip the verdict" in cells
    assert re.search(
        r"as claimed ✓ SUPPORTED .* kind zero ✓ SUPPORTED [^⚑]* no kind resample ✗ REFUTED .* ⚑ flips", cells
    )
    assert re.search(r"recipe quick – too few seeds \(8 of 32\) [^⚑]* no model", cells)


def test_rivals_and_what_the_evidence_favours(html):
    rivals = part_of(html, "Rival explanations")
    verdict = part_of(html, "T14")
    assert "does not tell the claim apart from T14-both (“Removing both heads costs <b>everything</b>.”)" in verdict
    assert re.search(
        r"T14-nothing Neither head is needed\. It holds if .*?\. \? INCONCLUSIVE 0\.00 \[0\.00, 0\.11\]", rivals
    )
    assert "recall is within ±0.1 accuracy in 0 of 32 seeds" in rivals


def test_what_was_measured_beside(html):
    (heading,) = re.findall(r"<h3>(One seed worked through: seed \d+)</h3>(?=.{0,4000}both_heads)", html)[:1]
    assert re.search(r"both_heads .* 0\.8924 \[", part_of(html, heading))
    assert "both_heads" not in part_of(html, "Seed by seed")


def test_effects_without_a_verdict_say_why():
    page = text_of(rulings_page([lone(), nobody_passes()], title="x"))
    assert "share 1.00 [0.03, 1.00] , effect 0.75 [-∞, ∞] logits" in page
    assert "in 1 of 1 seeds; a verdict needs 16 seeds." in page
    assert "share –, effect –" in page
    assert "there is nothing to judge" in page
    assert not re.search(r"\bnan\b", page)


def test_views_only_of_claims_that_have_them(html):
    assert html.count('later(CircuitsVis, "render"') == 2
    assert html.count("<h3>Single sequences</h3>") == 1
    plain = rulings_page([simple("T1", 8)], title="x")
    assert "CircuitsVis.render" not in plain.split("</head>")[-1]
    assert "Single sequences" not in plain


def test_plots_wait_for_their_turn_and_come_with_one_library(html):
    assert html.count("plotly.js v") == 1
    n_plots = 2 + 3 + 6  # parts, their emergence and the gate's, one for each other claim
    assert html.count('later(Plotly, "newPlot"') == n_plots
    assert not re.search(r'Plotly\.newPlot\(\s*"', html)


def test_an_explanation_is_favoured_over_another():
    assert describe_favoured(_two(True, False)) == "The evidence favours the claim over its rivals."
    assert describe_favoured(_two(False, True)) == "The evidence favours T1-else (“it is otherwise”) over the claim."
    assert describe_favoured(_two(False, False)) == "The evidence supports neither the claim nor a rival."
    assert describe_favoured(simple("T1", 16)) == "The evidence favours the claim; no rival was tried."
    assert describe_favoured(simple("T1", 0)) == "The evidence does not support the claim; no rival was tried."


def _two(claim_holds: bool, rival_holds: bool):
    """A claim and a rival, each about an effect of its own."""
    held = {"a": claim_holds, "b": rival_holds}
    effects = xr.Dataset({name: along_seeds(clearing(16 * holds, 16)) for name, holds in held.items()})
    parts = {name: (Criterion(name=name, quantifier="most", margin=0.25),) for name in held}
    rival = make_claim(None, id="T1-else", statement="it is otherwise", parts=parts["b"])
    return ruling(make_claim(None, id="T1", parts=parts["a"], rivals=(rival,)), make_evidence(effects))


def test_no_claim_at_all():
    page = text_of(rulings_page([], title="Nothing yet"))
    assert "0 claims:" in page
    assert "0 ✓ SUPPORTED" in page
