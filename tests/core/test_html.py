"""What notebooks show of values: runs, specifications, claims and verdicts as tables."""

import re
from html import unescape

import numpy as np

from mnemoscope.claims.claim import CLAIMS
from mnemoscope.claims.judge import judge
from mnemoscope.core.html import html_table
from tests.claims.trials import clearing, make_claim, make_evidence
from tests.support import small_spec


def cells(html: str) -> dict[str, str]:
    """Names to values of all tables."""
    return {name: unescape(value) for name, value in re.findall("<th[^>]*>(.*?)</th><td[^>]*>(.*?)</td>", html)}


def test_tables_are_escaped_and_leave_out_what_is_empty():
    html = html_table("a & b", [("x", "<1>"), ("nothing", ""), ("zero", 0)])
    assert "<b>a &amp; b</b>" in html
    assert cells(html) == {"x": "<1>", "zero": "0"}


def test_a_run_and_its_specification(tiny):
    shown = cells(tiny._repr_html_())
    assert (shown["state"], shown["checkpoints"]) == ("finished", "4, the last of step 60")
    assert float(shown["test loss"]) > 0
    specified = cells(small_spec("v3", seed=3)._repr_html_())
    assert (specified["n_heads"], specified["n_steps"], specified["repeat_ratio"]) == ("2", "60", "0.3")
    assert "seed 3" in small_spec("v3", seed=3)._repr_html_()


def test_a_claim_and_a_verdict():
    shown = cells(CLAIMS.get("T14")._repr_html_())
    assert shown["replicates"] == "32 seeds or more"
    assert shown["criterion"] == "effect: most, above 0 accuracy"
    assert "T14-both" in shown["rivals"]
    verdict = cells(judge(make_claim(), make_evidence(clearing(16, 16)))._repr_html_())
    assert verdict["outcome"] == "SUPPORTED"
    assert verdict["share"].startswith("1.00 (95 %: 0.79")
    nothing = judge(make_claim(), make_evidence(np.zeros(3)))
    assert cells(nothing._repr_html_())["outcome"] == "NOT APPLICABLE"
