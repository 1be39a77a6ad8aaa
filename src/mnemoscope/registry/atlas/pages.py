"""Every page of the atlas as text, by its place in the site."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from mnemoscope.claims.entry import Entry, Paper, entry_text
from mnemoscope.core.errors import InputError
from mnemoscope.core.html import render
from mnemoscope.registry.atlas import words
from mnemoscope.registry.atlas.cite import cite_registry
from mnemoscope.registry.atlas.claim_page import claim_values
from mnemoscope.registry.atlas.forest import DISTANCE, FARTHEST, SHARE, WIDTH, forest
from mnemoscope.registry.atlas.pieces import badge, claim_file, data_file, numbers, paper_file, paper_links
from mnemoscope.registry.atlas.rates import DECIDED, Rates, group_rates, rates
from mnemoscope.registry.effects import effect_sizes
from mnemoscope.report.rulings.phrases import MEANINGS

TEMPLATES = "registry/atlas/templates/"
PLACES = (
    ("index.html", "All claims"),
    ("replicates.html", "What replicates"),
    ("papers.html", "Papers"),
    ("cite.html", "Cite this registry"),
)
"""Pages that every page links to."""
WITHOUT_PAPER = "no paper"
"""Group of the claims that were taken from no paper: questions of our own."""
_NOT_TRIED = (words.NOT_TRIED, "–", "no trial, or none of the question as it stands")


def pages(entries: Sequence[Entry], library: str) -> dict[str, str]:
    """The pages, and each entry as JSON, by their paths within the site.

    Args:
        entries: Claims; each id is there once, in one version.
        library: Version of the library, for the foot of pages and for citations.

    Raises:
        InputError: Two entries are about one claim, or papers of one key differ.
    """
    entries = sorted(entries, key=_order)
    _check_once(entries)
    papers = _papers(entries)
    site = _Site(entries, library)
    found = {
        "index.html": site.page("index.html", "All claims", "index", **_index(entries, papers)),
        "replicates.html": site.page(
            "replicates.html", "What replicates", "replicates", **_replicates(entries, papers)
        ),
        "papers.html": site.page("papers.html", "Papers", "papers", rows=_paper_rows(entries, papers)),
        "cite.html": site.page("cite.html", "Cite this registry", "cite", packages=_packages(entries, library)),
    }
    for key, paper in papers.items():
        own = [entry for entry in entries if _paper_key(entry) == key]
        values = {"paper": paper, "links": paper_links(paper), "counts": _counts(own), "lines": [*map(_line, own)]}
        found[paper_file(key)] = site.page(paper_file(key), paper.title, "paper", **values)
    for entry in entries:
        found[claim_file(entry)] = site.page(
            claim_file(entry), f"{entry.short_id} of {entry.system}", "claim", **claim_values(entry, library)
        )
        found[data_file(entry)] = entry_text(entry)
    return found


class _Site:
    """The values that all pages share."""

    def __init__(self, entries: Sequence[Entry], library: str):
        self._common = {"places": PLACES, "library": library, "n_entries": len(entries)}

    def page(self, file: str, title: str, template: str, **values: Any) -> str:
        root = "../" * file.count("/")
        return render(
            f"{TEMPLATES}{template}.html.jinja", here=file, root=root, title=title, **self._common, **values
        ) + "\n"  # fmt: skip


# ---- claims in tables


def _counts(entries: Sequence[Entry]) -> list[tuple[dict[str, str], int, str]]:
    n = Counter(map(words.outcome_of, entries))
    shown = [(outcome, meaning) for outcome, meaning in MEANINGS.items()]
    shown += [(_NOT_TRIED[0], _NOT_TRIED[2])] if n[words.NOT_TRIED] else []
    return [(badge(outcome), n[outcome], meaning) for outcome, meaning in shown]


def _line(entry: Entry) -> dict[str, Any]:
    """A claim in a table, with what filters look at."""
    return {
        "id": entry.short_id,
        "file": claim_file(entry),
        "system": entry.system,
        "paper": _paper_key(entry),
        "kind": words.kind_of(entry),
        "methods": entry.methods,
        "statement": entry.statement,
        "headline": entry.headline,
        "source": entry.source.text,
        "badge": badge(words.outcome_of(entry)),
        **numbers(entry),
    }


def _index(entries: Sequence[Entry], papers: Mapping[str, Paper]) -> dict[str, Any]:
    titles = {key: _paper_name(paper) for key, paper in papers.items()}
    fields: dict[str, Callable[[Entry], Iterable[str]]] = {
        "paper": lambda entry: [_paper_key(entry)],
        "system": lambda entry: [entry.system],
        "kind": lambda entry: [words.kind_of(entry)],
        "outcome": lambda entry: [words.outcome_of(entry)],
        "method": lambda entry: entry.methods,
    }
    filters = []
    for name, values_of in fields.items():
        n = Counter(value for entry in entries for value in dict.fromkeys(values_of(entry)))
        text = {value: words.outcome_words(value) if name == "outcome" else titles.get(value, value) for value in n}
        options = sorted(n, key=lambda value: text[value].lower())
        filters.append((name, [(value, text[value], n[value]) for value in options]))
    return {"counts": _counts(entries), "filters": filters, "lines": [*map(_line, entries)]}


# ---- what replicates


def _replicates(entries: Sequence[Entry], papers: Mapping[str, Paper]) -> dict[str, Any]:
    paper_names = {key: _paper_name(paper) for key, paper in papers.items()}
    by: dict[str, Callable[[Entry], str]] = {
        "kind": words.kind_of,
        "system": lambda entry: entry.system,
        "paper": _paper_key,
    }
    names = {"paper": paper_names}
    tables = [
        (name, [_group(each, name, names.get(name, {}).get(each.name, each.name)) for each in group_rates(entries, of)])
        for name, of in by.items()
    ]
    kinds = [each.name for each in group_rates(entries, by["kind"])]
    sizes = effect_sizes({entry.id: entry for entry in entries})
    forests = [(kind, forest([e for e in entries if words.kind_of(e) == kind], sizes, claim_file)) for kind in kinds]
    return {
        "badges": [*map(badge, DECIDED)],
        "all": [_group(rates("all claims", entries), "", "all")],
        "tables": tables,
        "forests": [(kind, drawn) for kind, drawn in forests if drawn.lines],
        "n_without": sum(drawn.n_without for _, drawn in forests),
        "scales": _scales(),
    }


def _group(found: Rates, name: str, text: str) -> dict[str, Any]:
    start, bars = 0.0, []
    for outcome in DECIDED:
        width = round(100 * found.shares[outcome][0], 2) if found.n else 0.0
        bars.append((outcome, round(start, 2), width))
        start += width
    return {
        "link": {"text": text, "href": _group_href(found.name, name)},
        "n": found.n,
        "without": str(found.without),
        "counts": found.counts,
        "texts": {
            outcome: words.share_text(share, (low, high)) for outcome, (share, low, high) in found.shares.items()
        },
        "bar": bars,
    }


def _group_href(group: str, by: str) -> str:
    """The page of a paper, else the claims of a group."""
    if by == "paper" and group != WITHOUT_PAPER:
        return paper_file(group)
    return f"index.html#{by}={quote(group)}" if by else "index.html"


def _scales() -> dict[str, Any]:
    (left, right), (first, last) = SHARE, DISTANCE
    return {
        "width": WIDTH,
        "share_ticks": [(left, "0"), ((left + right) / 2, ".5"), (right, "1")],
        "distance_ticks": [(first, f"−{FARTHEST:g}"), ((first + last) / 2, "0"), (last, f"{FARTHEST:g}")],
        "share_middle": (left + right) / 2,
        "distance_middle": (first + last) / 2,
    }


# ---- papers and packages


def _papers(entries: Sequence[Entry]) -> dict[str, Paper]:
    """Papers by key, by year and title."""
    found: dict[str, Paper] = {}
    for entry in entries:
        paper = entry.source.paper
        if paper is not None and found.setdefault(paper.key, paper) != paper:
            raise InputError(f"paper {paper.key} of {entry.id} differs from that of another entry; make them alike")
    return dict(sorted(found.items(), key=lambda item: (item[1].year or 0, item[1].title)))


def _paper_key(entry: Entry) -> str:
    return entry.source.paper.key if entry.source.paper else WITHOUT_PAPER


def _paper_name(paper: Paper) -> str:
    if not paper.authors:
        return paper.title
    last = [author.split(",")[0] if "," in author else author.split()[-1] for author in paper.authors if author.strip()]
    by = " & ".join(last) if len(last) <= 2 else f"{last[0]} et al."
    return f"{by} {paper.year or ''}: {paper.title}".replace(" :", ":")


def _paper_rows(entries: Sequence[Entry], papers: Mapping[str, Paper]) -> list[list[Any]]:
    found = {each.name: each for each in group_rates(entries, _paper_key)}
    rows = []
    for key in [*papers, *([WITHOUT_PAPER] if WITHOUT_PAPER in found else [])]:
        each = found[key]
        if key in papers:
            link = {"text": _paper_name(papers[key]), "href": paper_file(key)}
        else:
            link = {"text": "questions of our own, from no paper", "href": f"index.html#paper={quote(WITHOUT_PAPER)}"}
        rows.append([link, str(each.n + each.without), *(str(each.counts[o]) for o in DECIDED), str(each.without)])
    return rows


def _packages(entries: Sequence[Entry], library: str) -> list[tuple[str, int, str]]:
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        groups.setdefault(words.package_of(entry), []).append(entry)
    return [(package, len(own), cite_registry(package, own, library)) for package, own in groups.items()]


def _order(entry: Entry) -> tuple[str, str, int, str]:
    return words.package_of(entry), entry.system, len(entry.short_id), entry.short_id


def _check_once(entries: Sequence[Entry]) -> None:
    places: dict[str, str] = {}
    for entry in entries:
        other = places.setdefault(claim_file(entry), entry.id)
        if other != entry.id or sum(each.id == entry.id for each in entries) > 1:
            raise InputError(f"two entries are about one claim, {other} and {entry.id}; keep the newest")
