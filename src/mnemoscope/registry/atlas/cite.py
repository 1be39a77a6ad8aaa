"""BibTeX for a verdict and for a registry, in plain text that also stands without a bibliography style."""

import re
from collections.abc import Sequence

from mnemoscope.claims.entry import Dated, Entry
from mnemoscope.registry.atlas.words import OWN_PACKAGE, outcome_words, package_of

AUTHOR = "the mnemoscope developers"
_SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{sign: f"\\{sign}" for sign in "{}%&_#$"},
}
_Fields = Sequence[tuple[str, str]]


def cite_verdict(entry: Entry, library: str) -> str:
    """A `@misc` entry for the verdict of a claim that counts, or for the claim where there is none.

    Args:
        entry: The claim with its verdicts.
        library: Version of the library that the registry came with.
    """
    verdict, paper = entry.verdict, entry.source.paper
    result = f"{verdict.n_clear} of {verdict.n} {entry.replicate}s" if verdict else ""
    title = f"{entry.short_id}: {entry.statement}"
    if verdict:
        title += f" [{outcome_words(verdict.outcome)}, {result}]"
    judged = (verdict.judged if verdict else None) or entry.registration.registered
    notes = [f"Registration {entry.registration.digest}"]
    notes += [f"{'verdict' if verdict else 'registration'} of {_dated(judged)}"] if judged else []
    if paper:
        by = f" by {' and '.join(paper.authors)}" if paper.authors else ""
        notes.append(f"a claim of “{paper.title}”{by}{f' ({paper.year})' if paper.year else ''}")
    return _entry(
        "misc",
        f"{package_of(entry)}-{entry.system}-{entry.short_id}-v{entry.version}",
        [
            *_author(package_of(entry)),
            ("title", title),
            *([("year", judged.date[:4])] if judged else []),
            ("howpublished", f"Claim {entry.id} in {_registry_name(package_of(entry), library)}"),
            ("note", "; ".join(notes)),
        ],
    )


def cite_registry(package: str, entries: Sequence[Entry], library: str) -> str:
    """A `@misc` entry for all claims of a package.

    Args:
        package: The package.
        entries: Its claims.
        library: Version of the library.
    """
    dates = [each.judged.date for entry in entries for each in entry.verdicts if each.judged]
    dates += [entry.registration.registered.date for entry in entries if entry.registration.registered]
    return _entry(
        "misc",
        f"{package}-registry",
        [
            *_author(package),
            ("title", f"A registry of claims about circuits: {_registry_name(package, library)}"),
            *([("year", max(dates)[:4])] if dates else []),
            *([("version", library)] if package == OWN_PACKAGE else []),
            (
                "note",
                f"{len(entries)} claims with their verdicts" + (f", the latest of {max(dates)[:10]}" if dates else ""),
            ),
        ],
    )


def _author(package: str) -> _Fields:
    """The author where the registry is ours; that of another package is not known here."""
    return [("author", f"{{{AUTHOR}}}")] if package == OWN_PACKAGE else []


def _registry_name(package: str, library: str) -> str:
    return f"mnemoscope {library}" if package == OWN_PACKAGE else f"the registry of {package}"


def _dated(dated: Dated) -> str:
    return f"{dated.date[:10]}, commit {dated.commit[:12]}" if dated.commit else dated.date[:10]


def _entry(kind: str, key: str, fields: _Fields) -> str:
    lines = [f"  {name} = {{{text if name == 'author' else _escape(text)}}}" for name, text in fields]
    return f"@{kind}{{{re.sub(r'[^A-Za-z0-9:_-]', '-', key)},\n" + ",\n".join(lines) + "\n}\n"


def _escape(text: str) -> str:
    """Text for a field: signs of TeX are escaped, so that braces balance."""
    return "".join(_SPECIAL.get(sign, sign) for sign in " ".join(text.split()))
