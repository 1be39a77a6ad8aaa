"""Pieces that pages share: places within the site, addresses of papers, badges, and the numbers of a verdict."""

from collections.abc import Mapping
from urllib.parse import quote

from mnemoscope.claims.entry import Entry, Paper
from mnemoscope.registry.atlas import words
from mnemoscope.registry.atlas.rates import share_of
from mnemoscope.report.rulings.phrases import SIGNS


def claim_file(entry: Entry) -> str:
    """Place of the page of a claim."""
    package, _, claim = entry.id.partition("@")[0].partition(":")
    return f"claims/{package}/{claim}.html"


def paper_file(key: str) -> str:
    """Place of the page of a paper."""
    return f"papers/{key}.html"


def data_file(entry: Entry) -> str:
    """Place of the entry itself."""
    return claim_file(entry).removesuffix("html") + "json"


def paper_links(paper: Paper) -> list[dict[str, str]]:
    """The addresses of a paper as links; anything but a web address is left out."""
    found = []
    if paper.doi:
        found.append({"text": f"doi:{paper.doi}", "href": f"https://doi.org/{quote(paper.doi)}"})
    if paper.arxiv:
        found.append({"text": f"arXiv:{paper.arxiv}", "href": f"https://arxiv.org/abs/{quote(paper.arxiv)}"})
    if paper.url and _is_address(paper.url):
        found.append({"text": paper.url, "href": paper.url})
    return found


def _is_address(text: str) -> bool:
    return text.startswith(("https://", "http://"))


def place_link(text: str) -> dict[str, str]:
    """A folder as text, an address as a link."""
    return {"text": text, "href": text if _is_address(text) else ""}


def badge(outcome: str) -> dict[str, str]:
    """An outcome with its words and its sign."""
    signs: Mapping[str, str] = dict(SIGNS.items())
    return {"outcome": outcome, "words": words.outcome_words(outcome), "sign": signs.get(outcome, "–")}


def numbers(entry: Entry) -> dict[str, str]:
    """Share and effect of the verdict that counts, with intervals; empty texts without one."""
    verdict = entry.verdict
    if verdict is None:
        return {"share": "", "effect": ""}
    effect = words.effect_text(verdict.effect, verdict.effect_interval, verdict.unit)
    return {"share": words.share_text(*share_of(verdict)), "effect": effect}
