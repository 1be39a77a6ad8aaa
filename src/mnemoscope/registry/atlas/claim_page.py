"""The page of one claim: what was fixed, what came out and when, replications, how to repeat it and to cite it."""

from typing import Any

from mnemoscope.claims.entry import Entry, Verdict
from mnemoscope.registry.atlas import words
from mnemoscope.registry.atlas.cite import cite_verdict
from mnemoscope.registry.atlas.pieces import badge, claim_file, data_file, numbers, paper_file, paper_links, place_link
from mnemoscope.registry.atlas.rates import share_of


def claim_values(entry: Entry, library: str) -> dict[str, Any]:
    """The values of the template of a claim; `library` is the version of the library, for the citation."""
    verdict, paper = entry.verdict, entry.source.paper
    registration = entry.registration
    root = "../" * claim_file(entry).count("/")
    criteria = {part.name: part for part in entry.criteria}
    parts = [] if verdict is None or len(verdict.parts) < 2 else verdict.parts
    digests = {
        "registration": registration.digest,
        "question": registration.question,
        "registered": words.dated_text(registration.registered),
        "first of its runs": words.dated_text(registration.runs),
        "judged": words.dated_text(verdict.judged if verdict else None),
        **{f"code of {name}": digest for name, digest in registration.code.items()},
        **{f"configuration {each.name}": each.digest for each in entry.configurations},
    }
    return {
        "entry": entry,
        "paper": {"text": paper.title, "href": root + paper_file(paper.key)} if paper else None,
        "links": paper_links(paper) if paper else [],
        "data": data_file(entry).rpartition("/")[2],
        "kind": words.kind_of(entry),
        "earlier": registration.superseded,
        "verdict": verdict,
        "badge": badge(words.outcome_of(entry)),
        **numbers(entry),
        "counted": "" if verdict is None else words.counted(verdict, entry.replicate),
        "confirmation": "" if verdict is None else _confirmation(entry, verdict),
        "about": _about_verdict(entry),
        "parts": [
            [
                part.name,
                words.criterion_text(entry, criteria[part.name]) if part.name in criteria else "",
                words.share_text(part.share, part.share_interval),
                words.effect_text(part.effect, part.effect_interval, getattr(criteria.get(part.name), "unit", "")),
            ]
            for part in parts
        ],
        "report": place_link(verdict.report if verdict else ""),
        "terms": words.fixed_terms(entry),
        "controls": [
            [each.name, each.kind, each.expected, str(each.n), f"{each.tolerated:g}"] for each in entry.controls
        ],
        "rivals": [
            [
                each.id,
                words.rival_text(entry, each),
                badge(verdict.rivals[each.id]) if verdict and each.id in verdict.rivals else "–",
            ]
            for each in entry.rivals
        ],
        "history": _history(entry),
        "replications": _replications(entry),
        "command": words.command_of(entry),
        "command_note": words.command_note(entry),
        "standing": words.standing_text(entry),
        "digests": list(digests.items()),
        "bibtex": cite_verdict(entry, library),
    }


def _confirmation(entry: Entry, verdict: Verdict) -> str:
    """A sentence that says whether the verdict is confirmed or exploratory, and why."""
    if verdict.confirmed:
        return "Confirmed: the claim was registered before its runs."
    if entry.registration.standing == "before its runs":
        return "The claim was registered before its runs; there is no confirmed decision."
    if entry.registration.standing == "after its runs":
        return "Exploratory: the claim was registered after its runs."
    return "Exploratory: nothing shows that the claim was registered before its runs."


def _about_verdict(entry: Entry) -> list[str]:
    """Sentences on models, error rates and the question of the verdict that counts."""
    verdict = entry.verdict
    if verdict is None:
        return []
    found = [f"Models of the {verdict.recipe} recipe."] if verdict.recipe else []
    found += [f"Language model: {verdict.asked_of}."] if verdict.asked_of else []
    found += [f"p = {verdict.p:.2g}."] if verdict.p is not None else []
    if verdict.error_rate is not None:
        found.append(f"The procedure errs with probability {verdict.error_rate:g} at most.")
    if verdict.false_discovery_rate is not None:
        found.append(f"The decision stands at a false discovery rate of {verdict.false_discovery_rate:g}.")
    return found


def _history(entry: Entry) -> list[list[Any]]:
    """All verdicts, the newest first."""
    return [
        [
            words.dated_text(each.judged),
            badge(each.outcome),
            f"{each.n_clear} of {each.n}: {words.share_text(*share_of(each))}",
            words.effect_text(each.effect, each.effect_interval, each.unit),
            str(each.version),
            "it counts" if each.superseded is None else each.superseded,
        ]
        for each in reversed(entry.verdicts)
    ]


def _replications(entry: Entry) -> list[list[Any]]:
    return [
        [
            each.by,
            badge(each.outcome),
            f"{each.n_clear} of {each.n}",
            "yes" if each.agrees else "no",
            each.tolerance,
            place_link(each.code),
            each.date[:10],
            each.note,
        ]
        for each in entry.replications
    ]
