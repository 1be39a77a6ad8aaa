"""Entries of a registry in words: what was fixed, the verdict, its dates, and the command that repeats it."""

import shlex
from collections.abc import Iterable

from mnemoscope.claims.entry import Bounds, Criterion, Dated, Entry, Rival, Verdict
from mnemoscope.core.errors import format_ranges, pluralise
from mnemoscope.report.rulings.differences import format_number, interval_text, outcome_text
from mnemoscope.report.rulings.phrases import FAILS, GATES, HOLDS, NO_VERDICT, OPPOSITE, PROMPTS

NOT_TRIED = "NOT_TRIED"
"""In the place of the outcome of a claim without a verdict that counts."""
NO_KIND = "no kind named"
"""In the place of the kind of a claim that nobody has sorted yet."""
OWN_PACKAGE = "mnemo"
"""Package of the claims that come with this library."""
PACKAGED_MODELS = {"SmolLM2-135M": "smollm2"}
"""Words of `--model` for language models that are named otherwise in verdicts."""
_EFFECT = "effect"


def package_of(entry: Entry) -> str:
    """The package of a claim: the id up to the colon."""
    return entry.id.partition(":")[0]


def kind_of(entry: Entry) -> str:
    """The kind of a claim, in words where nobody has named one."""
    return entry.kind or NO_KIND


def outcome_of(entry: Entry) -> str:
    """The outcome of the verdict that counts, or `NOT_TRIED`."""
    return NOT_TRIED if entry.verdict is None else entry.verdict.outcome


def outcome_words(outcome: str) -> str:
    """An outcome as a badge shows it."""
    return NO_VERDICT if outcome == "NOT_APPLICABLE" else outcome_text(outcome).replace("NOT TRIED", "not tried")


# ---- numbers


def share_text(share: float | None, bounds: Bounds | None) -> str:
    """A share of replicates with its interval."""
    return _with_interval(share, bounds, form=".2f")


def effect_text(effect: float | None, bounds: Bounds | None, unit: str = "") -> str:
    """An effect with its interval and unit."""
    return _with_interval(effect, bounds, unit)


def _with_interval(value: float | None, bounds: Bounds | None, unit: str = "", form: str = ".4g") -> str:
    if bounds is None:
        shown = format_number(value, form)
        return f"{shown} {unit}".strip() if value is not None else shown
    return interval_text(value, *bounds, unit, form)


def counted(verdict: Verdict, replicate: str) -> str:
    """The numbers of replicates behind a verdict, in a sentence."""
    judged = f"{verdict.n_clear} of {pluralise(verdict.n, replicate)} meet the criteria"
    if not verdict.n_failed:
        return f"{judged}."
    return f"{judged}; {pluralise(verdict.n_failed, replicate)} more did not pass the gate."


# ---- what was fixed


def criterion_text(entry: Entry, part: Criterion) -> str:
    """The requirement on an effect: quantifier, effect, margin, unit."""
    return _sentence(HOLDS[part.quantifier], entry, part, _wording(part))


def supported_if(entry: Entry, criteria: Iterable[Criterion], *, subject: str = "The claim") -> str:
    """The condition of the claim, or of a rival, in one sentence."""
    return _joined(f"{subject} holds if", [criterion_text(entry, part) for part in criteria], entry.joined)


def refuted_if(entry: Entry) -> str:
    """The condition under which the claim is refuted; an effect exactly at a margin speaks neither way."""
    parts = [
        _sentence(FAILS[part.quantifier], entry, part, OPPOSITE[part.direction].format(part.margin))
        for part in entry.criteria
    ]
    return _joined("It is refuted if", parts, "any" if entry.joined == "all" else "all")


def rival_text(entry: Entry, rival: Rival) -> str:
    """A rival with its condition."""
    return f"{rival.statement} {supported_if(entry, rival.criteria, subject='It')}"


def _wording(part: Criterion) -> str:
    return f"within ±{part.margin:g}" if part.direction == "within" else f"{part.direction} {part.margin:g}"


def _sentence(frame: str, entry: Entry, part: Criterion, wording: str) -> str:
    unit = f"({part.unit})" if " " in part.unit else part.unit
    name = "the effect" if part.name == _EFFECT else part.name
    return frame.format(what=entry.replicate, name=name, wording=f"{wording} {unit}".strip())


def _joined(opening: str, parts: list[str], needed: str) -> str:
    several = f" {needed} of these statements {'are' if needed == 'all' else 'is'} true:" if len(parts) > 1 else ""
    return f"{opening}{several} {'; '.join(parts)}."


def fixed_terms(entry: Entry) -> list[tuple[str, str]]:
    """Pairs of a term and a text on all that was fixed beforehand; empty texts are left out."""
    what = entry.replicate
    effects = [
        f"{'The effect' if part.name == _EFFECT else part.name}: {': '.join(filter(None, (part.words, part.formula)))}."
        for part in entry.criteria
        if part.words or part.formula
    ]
    headline = "; a headline claim, which shares one error rate with the others of its system" if entry.headline else ""
    terms = [
        ("criterion", supported_if(entry, entry.criteria)),
        ("refutation", refuted_if(entry)),
        ("effects", " ".join(effects)),
        ("measured", entry.procedure),
        ("margins", entry.margins),
        ("shows", entry.limits),
        ("gate", _gate_text(entry)),
        ("replicates", f"{entry.n_replicates} {what}s or more{headline}"),
        ("seeds that count", format_ranges(entry.seeds)),
        ("models", "; ".join(configuration_text(entry))),
        ("prompts", PROMPTS[entry.prompts].format(what=what) if entry.prompts in PROMPTS else entry.prompts),
        ("methods", ", ".join(entry.methods)),
        ("varied", "; ".join(f"{name}: {', '.join(values)}" for name, values in entry.factors.items())),
        ("notes", entry.notes),
    ]
    return [(term, text) for term, text in terms if text]


def configuration_text(entry: Entry) -> list[str]:
    """The configurations of models, each with preset, recipe and changes."""
    found = []
    for each in entry.configurations:
        changes = "".join(f", {name} = {value}" for name, value in each.changes.items())
        recipe = f", {each.recipe} recipe" if each.recipe else ""
        found.append(f"{each.name} ({each.preset}{recipe}{changes})")
    return found


def _gate_text(entry: Entry) -> str:
    gate = entry.gate
    if gate is None:
        return f"none: the verdict is about every {entry.replicate}"
    bounds = [f"at least {gate.at_least:g}"] if gate.at_least is not None else []
    bounds += [f"at most {gate.at_most:g}"] if gate.at_most is not None else []
    whose = "every" if len(entry.configurations) > 1 else "the"
    passing = GATES[entry.replicate].format(whose=whose, statement=gate.statement)
    return f"the verdict is about {passing}" + (f" ({' and '.join(bounds)})" if bounds else "")


def dated_text(dated: Dated | None) -> str:
    """A date with the start of the commit that shows it."""
    if dated is None:
        return "–"
    return f"{dated.date[:10]} (commit {dated.commit[:12]})" if dated.commit else dated.date[:10]


def standing_text(entry: Entry) -> str:
    """The registration and its dates, in a sentence."""
    found = entry.registration
    if found.standing == "not registered":
        return "Not registered: nothing shows when its criteria were fixed."
    registered, runs = dated_text(found.registered), dated_text(found.runs)
    if found.standing == "not dated":
        return f"Registered: {registered}. No commit shows when its runs came."
    return f"Registered {registered}, {found.standing}, the first of which came {runs}."


# ---- the way to repeat it


def command_of(entry: Entry) -> str:
    """The command that puts the claim on trial again: on the shipped models where its verdict rests on these."""
    words, verdict = ["mnemoscope", "claims", "run", entry.short_id], entry.verdict
    asked = "" if verdict is None else verdict.asked_of
    if asked or entry.replicate in ("question", "model"):
        words += ["--model", PACKAGED_MODELS.get(asked, asked or "smollm2")]
    elif entry.configurations:
        words += ["--zoo"] if verdict else ["--runs", "runs"]
        if verdict and verdict.recipe and verdict.recipe not in {each.recipe for each in entry.configurations}:
            words += ["--recipe", verdict.recipe]
    return shlex.join(words)


def command_note(entry: Entry) -> str:
    """The needs of that command, in a sentence; empty where it has none."""
    notes = []
    if package_of(entry) != OWN_PACKAGE:
        notes.append(f"It needs the package {package_of(entry)}, installed or named with --import.")
    command = command_of(entry)
    if "--zoo" in command:
        notes.append("The trained runs come with pip install 'mnemoscope[zoo]', or with a clone.")
    if "--runs" in command:
        notes.append("The directory runs holds models that you have trained.")
    if "--model" in command:
        notes.append("A language model is a word for a packaged one, a directory, a file, or a name on the hub.")
    return " ".join(notes)
