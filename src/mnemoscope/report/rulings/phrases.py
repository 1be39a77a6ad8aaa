"""Fixed words of verdicts and criteria: plain data for pages and registries, without a model or a claim."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mnemoscope.claims.claim import Outcome

SIGNS: dict[Outcome, str] = {"SUPPORTED": "✓", "REFUTED": "✗", "MIXED": "◐", "INCONCLUSIVE": "?", "NOT_APPLICABLE": "–"}
"""No outcome is shown by colour alone: a badge has a sign, the word, and a different frame."""
NO_VERDICT = "no verdict"
"""The word where an outcome stands for several reasons why there is no verdict."""

MEANINGS: dict[Outcome, str] = {
    "SUPPORTED": "the evidence decides for the claim",
    "REFUTED": "the evidence decides against it",
    "MIXED": "replicates differ: about half of them meet the criterion",
    "INCONCLUSIVE": "the evidence does not decide, or is not to be trusted",
    "NOT_APPLICABLE": "too few replicates for a verdict, or none passes the gate",
}
"""Every outcome and its meaning."""

HOLDS = {
    "most": "in more than half of the {what}s, {name} is {wording}",
    "every": "in every {what}, {name} is {wording}",
    "exists": "in at least one {what}, {name} is {wording}",
    "mean": "on average over the {what}s, {name} is {wording}",
    "equivalence": "on average over the {what}s, {name} is {wording}, which counts as no effect",
}
FAILS = {**HOLDS, "every": HOLDS["exists"], "exists": HOLDS["every"], "equivalence": HOLDS["mean"]}
"""The words for evidence against a claim, with the opposite quantifier: against all one, against one all."""
OPPOSITE = {"above": "below {:g}", "below": "above {:g}", "within": "further than {:g} from 0"}
GATES = {
    "seed": "seeds where {whose} model {statement}",
    "question": "questions where the model {statement}",
    "draw": "every draw that {statement}",
    "model": "every model that {statement}",
}
"""The replicates that pass a gate, in words."""
PROMPTS = {
    "own": "every {what} has prompts of its own",
    "shared": "all {what}s share the prompts that were drawn",
    "enumerated": "every possible prompt is measured, so that effects have no sampling error",
}
