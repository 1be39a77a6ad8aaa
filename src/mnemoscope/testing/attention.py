"""Where a head attends.

    share = attention on the keys that a mechanism names,

averaged over unseen prompts and over the queries about which the mechanism says something. It shows where a head
attends and not what for: attention to a key need not use it. Attention spread evenly over all keys has a share too
(`even_share` of `attention_by_mechanism`); set the margin well above it.
"""

from collections.abc import Sequence

from mnemoscope.analyses.mechanisms.scores import attention_by_mechanism
from mnemoscope.core.errors import InputError, in_range
from mnemoscope.core.mechanism import Mechanism
from mnemoscope.core.subject import Subject
from mnemoscope.testing.effect import Effect, subject_or_current, submit
from mnemoscope.testing.parts import Component, described, find_head
from mnemoscope.testing.prompts import N_PROMPTS, prompts

SHARE = 0.5
"""Share of attention, unless said otherwise."""


def assert_pattern(
    part: Component,
    mechanism: Mechanism,
    *,
    at_least: float = SHARE,
    queries: Sequence[int] | None = None,
    subject: Subject | None = None,
    n: int = N_PROMPTS,
) -> None:
    """Claim that a head spends more than `at_least` of its attention on the keys that a mechanism names.

    Args:
        part: A head.
        mechanism: From `core.patterns`, or one's own.
        at_least: The margin; exactly this is not enough.
        queries: Positions that attend; none: those at which an answer is due.
        subject: The model; none: the one on trial.
        n: Sequences of each subgroup; half of them are measured on.

    Raises:
        InputError: There is no such head or no model, or the mechanism says nothing about these queries.
        AssertionError: No model is on trial, and it is not so.
    """
    __tracebackhide__ = True
    on = subject_or_current(subject)
    at = prompts(on.task, on.seed, n)
    found = find_head(part, on.model, at.selection, skills=at.selection_skills, reference=at.reference)
    [site] = found.values()
    n_pos = at.test.inputs.shape[1]
    if queries is None:
        queries = at.test.scored.any(0).nonzero()[:, 0].tolist()
    for query in queries:
        in_range("a query", query, -n_pos, n_pos - 1)
    table = attention_by_mechanism(on.model, at.test, [mechanism]).isel(subgroup=0, mechanism=0)
    table = table.isel(query=[query % n_pos for query in queries])
    said = table.said
    if not float(said.sum()) > 0:
        raise InputError(f"mechanism {mechanism.name} says nothing about queries {list(queries)}; name others")
    share = table.share.sel(layer=site.layer, head=site.head).fillna(0)
    value = float((share * said).sum() / said.sum())
    what = f"the share of attention of {described(part, found)} on {mechanism.name}"
    submit(Effect(what=what, value=value, margin=at_least, direction="above", unit="share of attention"))
