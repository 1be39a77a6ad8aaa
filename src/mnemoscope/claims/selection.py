"""Selection of the replicates behind a verdict: gaps in their numbers, earlier looks, and gates that know the outcome.

Good runs can be chosen in three ways that no verdict shows: some are not handed in, one stops when the result is good,
or the gate lets pass what meets the criterion. Each is reported for every claim, and none changes a verdict.

The gate is tested over all replicates, those that fail it too, where their effects are known: Mann and Whitney's test
of the effects of those that pass against those that fail, with Bonferroni's correction over the parts. Models that did
not learn often lack a mechanism too, so a small p calls for a look at the gate, not for another verdict.

Looks are kept in `looks.jsonl` of the store. *Does not show* looks with another store, nor seeds beyond the last.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from mnemoscope.claims.claim import Claim
from mnemoscope.claims.evidence import Evidence, prompt_mean, select_effect
from mnemoscope.claims.registration import registration
from mnemoscope.claims.replicates import AdmittedRuns, expected_seeds
from mnemoscope.claims.standing import question_of
from mnemoscope.core.errors import format_ranges, pluralise

LOOKS = "looks.jsonl"
"""The file of a store with a line per look: claim, digest of the question, replicates and date."""
FEW = 3
"""Fewer replicates on one side of a gate give no test."""
NOTABLE = 0.05
"""The p of a test of the gate from which it is said to go with the effect."""
_SAME_ORDER = 0.999


def describe_selection(claim: Claim, evidence: Evidence, admitted: AdmittedRuns, store: Path | None) -> tuple[str, ...]:
    """All that is known of how the replicates of a claim were chosen, in sentences; notes this look in the store."""
    sentences = [*missing_seeds(claim, admitted), *gate_findings(claim, evidence)]
    if store is not None and claim.replicate in ("seed", "model"):
        sentences += note_look(claim, [_plain(label) for label in evidence.labels], store)
    return tuple(sentences)


def missing_seeds(claim: Claim, admitted: AdmittedRuns) -> list[str]:
    """Seeds that were not handed in: planned ones, or gaps in the numbers of those that were."""
    seeds = set(admitted.seeds(claim)) if claim.units else set()
    if not seeds:
        return []
    there = {seed for unit in claim.units.values() for seed in (*admitted.finished[unit], *admitted.unfinished[unit])}
    there |= {run.spec.seed for unit in claim.units.values() for run in admitted.other_split[unit]}
    planned = seeds & set(expected_seeds(claim))
    expected = set(expected_seeds(claim)) if planned else set(range(min(seeds), max(seeds) + 1))
    sentences = []
    if absent := expected - there:
        which = "which are planned" if planned else f"between {min(seeds)} and {max(seeds)}"
        sentences.append(f"seeds {format_ranges(absent)}, {which}, were not handed in")
    if not planned and min(seeds) > claim.first_seed:
        sentences.append(f"the numbers of seeds begin at {min(seeds)}")
    in_part = {seed for unit in claim.units.values() for seed in admitted.finished[unit] if claim.counts(seed)} - seeds
    if in_part and len(claim.units) > 1:
        sentences.append(f"of seeds {format_ranges(in_part)} there are runs of some of its configurations only")
    return sentences


def gate_findings(claim: Claim, evidence: Evidence) -> list[str]:
    """The test of the gate against the effects, in a sentence; none for a claim without a gate."""
    if claim.gate is None or evidence.gate is None or not len(evidence.labels):
        return []
    what, gate = claim.replicate, np.asarray(evidence.gate, dtype=float)
    passes = claim.gate.passes(gate)
    n_failed = int((~passes).sum())
    effects = {part.name: _means(evidence, part.name) for part in claim.criteria}
    if same := [name for name, values in effects.items() if _same_order(gate, values)]:
        order = f"its values and those of {same[0]} have one order"
        return [f"the gate is the outcome: {order}, so it chooses what meets the criterion"]
    if not n_failed:
        return [f"every {what} passes the gate, so it selects none"]
    known = {name: (values[passes], values[~passes]) for name, values in effects.items()}
    known = {name: tuple(side[np.isfinite(side)] for side in sides) for name, sides in known.items()}
    testable = {name: sides for name, sides in known.items() if min(map(len, sides)) >= FEW}
    if not testable:
        few = min(n_failed, int(passes.sum())) < FEW
        why = f"fewer than {FEW} {what}s pass or fail" if few else f"effects of {what}s that fail are not known"
        return [f"the gate could not be tested against the effect: {why}"]
    ps = {name: min(1.0, len(testable) * _p(*sides)) for name, sides in testable.items()}
    name = min(ps, key=lambda each: ps[each])
    inside, outside = testable[name]
    counts = f"{len(inside)} that pass and {len(outside)} that fail, p = {ps[name]:.2g} by Mann and Whitney's test"
    if ps[name] > NOTABLE:
        return [f"the gate does not go with the effect ({counts})"]
    apart = inside.min() > outside.max() or inside.max() < outside.min()
    how = "divides the effects without overlap, as the outcome would" if apart else "goes with the effect"
    return [f"the gate {how} ({name}: {counts}): it may choose what meets the criterion"]


def note_look(claim: Claim, labels: Sequence[int | str], store: Path) -> list[str]:
    """Write this look at a claim into the store, and say which earlier looks there were, in sentences."""
    file, question = store / LOOKS, question_of(registration(claim))
    earlier = [look for look in read_looks(file) if look["claim"] == claim.id]
    now = {"claim": claim.id, "question": question, "replicates": list(labels)}
    if now not in [{name: look[name] for name in now} for look in earlier] and labels:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps({**now, "date": datetime.now(UTC).isoformat(timespec="seconds")}) + "\n")
    sets = list(dict.fromkeys(frozenset(look["replicates"]) for look in earlier))
    smaller = sorted(len(each) for each in sets if each < set(labels))
    dropped = sorted(set().union(*sets) - set(labels), key=str)
    sentences = []
    if smaller:
        sizes = ", ".join(map(str, smaller))
        sentences.append(
            f"{pluralise(len(smaller), 'earlier look')} at fewer {claim.replicate}s ({sizes}): a decision after "
            "several looks is wrong more often than its p says"
        )
    if dropped:
        shown = format_ranges(dropped) if all(isinstance(each, int) for each in dropped) else ", ".join(dropped)
        sentences.append(f"measured in an earlier look and left out now: {claim.replicate}s {shown}")
    if others := {look["question"] for look in earlier} - {question}:
        sentences.append(f"looked at before under {pluralise(len(others), 'other question')} of the same id")
    return sentences


def read_looks(file: Path) -> list[Mapping[str, Any]]:
    """The looks that a store has noted; a line that is cut short is left out."""
    looks = []
    for line in file.read_text(encoding="utf-8").splitlines() if file.is_file() else ():
        try:
            looks.append(json.loads(line))
        except ValueError:
            continue
    return looks


def _means(evidence: Evidence, name: str) -> np.ndarray:
    return prompt_mean(select_effect(evidence.effects, name).astype(float)).to_numpy()


def _p(inside: np.ndarray, outside: np.ndarray) -> float:
    """P that effects of those that pass and fail are alike."""
    if np.ptp(np.concatenate([inside, outside])) == 0:
        return 1.0
    return float(stats.mannwhitneyu(inside, outside).pvalue)


def _same_order(gate: np.ndarray, effect: np.ndarray) -> bool:
    """True if the values of a gate and of an effect have one order, with more than a few different values."""
    finite = np.isfinite(gate) & np.isfinite(effect)
    if min(len(np.unique(values[finite])) for values in (gate, effect)) <= FEW:
        return False
    ranks = np.corrcoef(stats.rankdata(gate[finite]), stats.rankdata(effect[finite]))
    return abs(float(ranks[0, 1])) > _SAME_ORDER


def _plain(label: Any) -> int | str:
    return label.item() if hasattr(label, "item") else label
