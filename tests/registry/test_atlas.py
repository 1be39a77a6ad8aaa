"""The atlas: every link leads somewhere, nothing is taken for HTML, citations parse, and no page outlives its entry."""

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from mnemoscope.claims.entry import Entry, entry_text
from mnemoscope.cli import main
from mnemoscope.core.errors import InputError
from mnemoscope.registry.atlas.cite import cite_registry, cite_verdict
from mnemoscope.registry.atlas.forest import DISTANCE, FARTHEST, SHARE, forest
from mnemoscope.registry.atlas.rates import group_rates, rates
from mnemoscope.registry.atlas.site import LIST, write_atlas
from mnemoscope.registry.atlas.words import command_of
from mnemoscope.registry.effects import effect_sizes
from tests.registry.made_up import PAPER, entry, registry, verdict

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FILTERS = ("paper", "system", "kind", "outcome", "method")
T1 = "claims/mnemo/tiny-recall/T1.html"


class Read(HTMLParser):
    """A page: links, text, tags, the options of its filters, and the data of its claims."""

    def __init__(self, text: str):
        super().__init__()
        self.links, self.tags, self.texts, self.ids = [], [], [], set()
        self.options, self.claims, self.select = {}, [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.tags.append(tag)
        self.ids |= {given["id"]} if "id" in given else set()
        self.links += [given[name] for name in ("href", "src") if given.get(name)]
        if tag == "select":
            self.select = given["name"]
        if tag == "option" and given["value"]:
            self.options.setdefault(self.select, []).append(given["value"])
        if tag == "tbody" and "data-kind" in given:
            self.claims.append({name: (given.get(f"data-{name}") or "").split("\n") for name in FILTERS})

    def handle_data(self, data):
        self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.texts).split())


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The atlas of the small registry; nobody may write into it."""
    place = tmp_path_factory.mktemp("atlas") / "site"
    write_atlas(registry(), place, "0.1")
    return place


def content(place: Path) -> dict[str, bytes]:
    return {file.relative_to(place).as_posix(): file.read_bytes() for file in place.rglob("*") if file.is_file()}


def read(place: Path, name: str) -> Read:
    return Read((place / name).read_text(encoding="utf-8"))


def write_entries(entries: list[Entry], place: Path) -> Path:
    place.mkdir()
    for each in entries:
        (place / f"{each.short_id}.json").write_text(entry_text(each), encoding="utf-8")
    return place


def test_every_claim_and_paper_has_a_page_and_every_link_of_the_site_leads_somewhere(site):
    pages = {name: read(site, name) for name in content(site) if name.endswith(".html")}
    assert sum(name.startswith("claims/") for name in pages) == len(registry())
    assert {name for name in pages if name.startswith("papers/")} == {"papers/doe-2023.html", "papers/roe-2021.html"}
    options = pages["index.html"].options
    addresses = set()
    for name, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme in ("https", "data"):
                addresses.add(link)
                continue
            assert not parts.scheme, link
            target = (site / name).parent / unquote(parts.path) if parts.path else site / name
            assert target.is_file(), (name, link)
            if "=" in parts.fragment:
                for field, values in parse_qs(parts.fragment).items():
                    assert values[0] in options[field], (name, link)
            elif parts.fragment:
                assert parts.fragment in read(target.parent, target.name).ids
    assert {"https://doi.org/10.1000/xyz_1", "https://arxiv.org/abs/2306.00802"} <= addresses


def test_filters_offer_what_claims_have_and_nothing_else(site):
    page = read(site, "index.html")
    assert len(page.claims) == len(registry())
    for name in FILTERS:
        had = {value for claim in page.claims for value in claim[name]}
        assert set(page.options[name]) == had
    assert {value for claim in page.claims for value in claim["outcome"]} == {
        "SUPPORTED", "REFUTED", "MIXED", "INCONCLUSIVE", "NOT_APPLICABLE", "NOT_TRIED"
    }  # fmt: skip
    assert {value for claim in page.claims for value in claim["method"]} == {"attention reading", "ablation"}


def test_text_of_an_entry_is_text(site):
    for name in (name for name in content(site) if name.endswith(".html")):
        page = read(site, name)
        assert page.tags.count("script") == 1
        assert not any(link.startswith("javascript:") for link in page.links)
    page = read(site, "claims/mnemo/tiny-recall/T3.html")
    assert page.text.count('<script>alert("x")</script> & {braces}') == 1
    assert PAPER.title in read(site, "papers/doe-2023.html").text


def test_a_page_says_what_was_fixed_what_came_out_and_how_to_repeat_it(site):
    text = read(site, T1).text
    for words in (
        "The claim holds if in more than half of the seeds, the effect is above 0.5 share.",
        "It is refuted if in more than half of the seeds, the effect is below 0.5 share.",
        "Half of the attention.", "has learned recall (at least 0.99)", "16 of 16 seeds meet the criteria; 2 seeds",
        "share 1.00 [0.79, 1.00]", "effect 0.9 [0.8, 1] share", "the gate asked for too little", "planted",
        "It attends to itself.", "every effect within 1e-6", "mnemoscope claims run T1 --zoo", "d1d1d1d1d1d1d1d1",
        "Registered 2026-11-20 (commit 0123456789ab), before its runs", "Confirmed",
    ):  # fmt: skip
        assert words in text, words


def test_the_command_fits_the_models_of_the_verdict():
    commands = {each.short_id: command_of(each) for each in registry()}
    assert commands["M1"] == "mnemoscope claims run M1"
    assert commands["G1"] == "mnemoscope claims run G1 --model smollm2"
    assert commands["X1"] == "mnemoscope claims run X1 --runs runs"
    other = entry(verdicts=(verdict(recipe="quick"),))
    assert command_of(other) == "mnemoscope claims run T1 --zoo --recipe quick"


def fields(text: str) -> dict[str, str]:
    """The fields of one BibTeX entry; braces have to balance in each."""
    kind, _, rest = text.partition("{")
    assert re.fullmatch(r"@[a-z]+", kind)
    key, found = rest.partition(",")[0], {"": kind}
    assert re.fullmatch(r"[A-Za-z0-9:_-]+", key)
    for name, value in re.findall(r"^  (\w+) = \{(.*)\},?$", text, re.M):
        depth = 0
        for sign in re.findall(r"\\.|[{}]", value):
            depth += {"{": 1, "}": -1}.get(sign, 0)
            assert depth >= 0
        assert depth == 0
        assert not re.search(r"(?<!\\)[%&#$_]", value)
        found[name] = value
    assert text.endswith("\n}\n")
    assert len(found) == text.count("\n") - 1
    return found


def test_citations_parse_and_name_verdict_version_and_digest():
    for each in registry():
        found = fields(cite_verdict(each, "0.1.dev3"))
        assert each.registration.digest in found["note"]
        assert each.id.replace("_", r"\_") in found["howpublished"]
    found = fields(cite_verdict(registry()[0], "0.1.dev3"))
    assert found["title"].endswith("[SUPPORTED, 16 of 16 seeds]")
    assert "mnemoscope 0.1.dev3" in found["howpublished"]
    assert "verdict of 2026-11-22, commit 0123456789ab" in found["note"]
    assert r"\{braces\}" in fields(cite_verdict(registry()[3], "0.1"))["title"]
    whole = fields(cite_registry("mnemo", registry(), "0.1.dev3"))
    assert (whole["version"], whole["year"]) == ("0.1.dev3", "2026")
    assert "author" not in fields(cite_registry("acme", registry()[-1:], "0.1.dev3"))


def test_rates_have_exact_intervals_over_claims_with_a_verdict():
    found = rates("all", registry())
    assert (found.n, found.without) == (6, 2)
    assert found.counts == {"SUPPORTED": 2, "REFUTED": 2, "MIXED": 1, "INCONCLUSIVE": 1}
    assert sum(share for share, _, _ in found.shares.values()) == pytest.approx(1)
    four = rates("four", [entry(f"T{i}", verdicts=(verdict(),)) for i in range(4)])
    assert four.shares["SUPPORTED"] == pytest.approx((1, 0.025 ** (1 / 4), 1))  # closed form at either end
    assert four.shares["REFUTED"] == pytest.approx((0, 0, 1 - 0.025 ** (1 / 4)))
    kinds = group_rates(registry(), lambda each: str(each.kind))
    assert [each.name for each in kinds][:2] == ["attention pattern", "ablation"]
    assert sum(each.n + each.without for each in kinds) == len(registry())


def test_the_picture_has_the_common_scales_and_arrows_beyond_them():
    sizes = effect_sizes({each.id: each for each in registry()})
    drawn = forest(registry(), sizes, lambda each: each.id)
    assert [line.id for line in drawn.lines] == ["T1", "M1", "T10", "T3", "G1", "T2"]
    assert drawn.n_without == 4
    first, last = drawn.lines[0], drawn.lines[-1]
    assert first.distance is not None
    (left, right), (one, other) = SHARE, DISTANCE
    assert (first.share.at, first.share.high) == (right, right)
    assert first.share.low == pytest.approx(left + (right - left) * 0.025 ** (1 / 16), abs=0.5)
    expected = float(sizes.distance.sel(claim=first.href))  # near (.9 - .5) / .1
    assert first.distance.at == pytest.approx((one + other) / 2 + (other - one) / 2 * expected / FARTHEST, abs=0.06)
    assert first.distance.beyond == 0
    assert last.distance is not None
    assert (last.distance.beyond, last.distance.at) == (-1, one)


def test_two_builds_are_equal_and_a_page_goes_with_its_entry(tmp_path):
    out, other = tmp_path / "atlas", tmp_path / "other"
    write_atlas(registry(), out, "0.1")
    write_atlas(registry()[::-1], other, "0.1")
    assert content(out) == content(other)
    assert json.loads((out / LIST).read_text())["files"] == sorted(set(content(out)) - {LIST})
    (out / "notes.txt").write_text("mine")
    left = [each for each in registry() if each.system == "tiny-recall"]
    write_atlas(left, out, "0.1")
    write_atlas(left, tmp_path / "fresh", "0.1")
    assert content(out) == {**content(tmp_path / "fresh"), "notes.txt": b"mine"}
    assert not (out / "claims" / "acme").exists()


def test_a_directory_that_is_no_atlas_is_left_alone(tmp_path):
    (tmp_path / "mine").write_text("x")
    with pytest.raises(InputError, match="no atlas"):
        write_atlas(registry(), tmp_path, "0.1")
    made_by = {"made_by": "mnemoscope atlas", "claims": {}}
    for names in (["../mine"], "mine", [3], ["."]):
        (tmp_path / LIST).write_text(json.dumps({**made_by, "files": names}))
        with pytest.raises(InputError, match="no atlas"):
            write_atlas(registry(), tmp_path, "0.1")
    assert (tmp_path / "mine").read_text() == "x"


def test_one_claim_has_one_page():
    with pytest.raises(InputError, match=r"two entries are about one claim, mnemo:tiny-recall/T1@1 and .*T1@2"):
        write_atlas([entry(), entry(version=2)], Path("never"), "0.1")
    with pytest.raises(InputError, match="at least one entry"):
        write_atlas([], Path("never"), "0.1")


def test_the_command_writes_the_site(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_entries(registry(), tmp_path / "entries")
    main(["atlas", "entries"])
    assert capsys.readouterr().out == "8 claims of 2 papers: open atlas/index.html\n"
    assert (tmp_path / "atlas" / T1).is_file()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["empty"], "empty holds no entries"),
        (["nowhere"], "nowhere does not exist"),
        (["damaged"], "damaged/T1.json"),
        (["entries", "--out", "empty/file.txt/below"], "file.txt is a file"),
        (["entries", "--out", "entries"], "--out entries holds files and is no atlas"),
    ],
)
def test_wrong_input_is_one_line(words, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_entries(registry(), tmp_path / "entries")
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "file.txt").write_text("")
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "T1.json").write_text(entry_text(entry()).replace('"margin": 0.5', '"margin": "half"'))
    before = content(tmp_path)
    with pytest.raises(SystemExit) as end:
        main(["atlas", *words])
    assert end.value.code == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert content(tmp_path) == before


PROBE = """
addEventListener("load", () => setTimeout(() => {
  const shown = () => [...document.querySelectorAll("table.claims > tbody")]
    .filter((each) => each.getClientRects().length).map((each) => each.querySelector("a").textContent);
  const [all, change] = [shown(), (name, value) => {
    const field = document.querySelector(`.filters [name=${name}]`);
    field.focus();
    field.value = value;
    field.dispatchEvent(new Event("input", { bubbles: true }));
    return document.activeElement === field;
  }];
  const focused = [change("kind", "ablation"), change("outcome", "REFUTED")];
  const [refuted, hash] = [shown(), location.hash];
  document.querySelector(".filters [type=reset]").click();
  setTimeout(() => {
    const seen = { all, focused, refuted, hash, reset: shown(), count: document.querySelector("output").value,
      colour: getComputedStyle(document.body).backgroundColor,
      shown: document.documentElement.clientWidth, needed: document.documentElement.scrollWidth,
      stops: [...document.querySelectorAll(".filters :is(select, input, button), nav a")]
        .filter((each) => each.tabIndex === 0).length };
    document.body.insertAdjacentHTML("beforeend", `<pre id="probe">${JSON.stringify(seen)}</pre>`);
  }, 200);
}, 300));
"""
WIDTH_PROBE = """
addEventListener("load", () => setTimeout(() => {
  const cut = [...document.querySelectorAll("td, th, p, li, dd, pre, figure")]
    .filter((each) => each.scrollWidth > each.clientWidth + 1).map((each) => each.textContent.slice(0, 60));
  const [shown, needed] = [document.documentElement.clientWidth, document.documentElement.scrollWidth];
  const copy = [...document.querySelectorAll("button.copy")].map((each) => each.hidden);
  const seen = JSON.stringify({ cut, shown, needed, copy });
  document.body.insertAdjacentHTML("beforeend", `<pre id="probe">${seen}</pre>`);
}, 300));
"""


def opened(site: Path, place: Path, name: str, probe: str, width: int, *flags: str) -> dict:
    """The finding of a script of ours on a page of a copy of the site; the browser may complain of nothing."""
    shutil.copytree(site, place)
    with (place / "atlas.js").open("a") as script:
        script.write(probe)
    assert CHROMIUM is not None
    fixed = ("--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--virtual-time-budget=8000")
    profile = place.with_name(f"{place.name}-profile")
    command = [CHROMIUM, *fixed, *flags, f"--window-size={width},2000", f"--user-data-dir={profile}"]
    address = (place / name).as_uri()
    result = subprocess.run([*command, "--dump-dom", address], capture_output=True, text=True, timeout=120)
    assert "CONSOLE" not in result.stderr, result.stderr
    return json.loads(re.findall(r'<pre id="probe">(.*?)</pre>', result.stdout)[-1].replace("&amp;", "&"))


needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: no page was opened")


@pytest.mark.thorough
@needs_chromium
@pytest.mark.parametrize(("width", "dark"), [(500, False), (1400, True)])
def test_filters_in_a_browser(site, tmp_path, width, dark):
    flags = ["--blink-settings=preferredColorScheme=0"] if dark else []
    seen = opened(site, tmp_path / "copy", "index.html", PROBE, width, *flags)
    assert len(seen["all"]) == 8
    assert seen["refuted"] == ["T2"]
    assert seen["hash"] == "#kind=ablation&outcome=REFUTED"
    assert seen["focused"] == [True, True]
    assert seen["reset"] == seen["all"]
    assert seen["count"] == "8 of 8 claims"
    assert seen["stops"] == 11  # five choices, the words, the button, four pages
    assert seen["needed"] == seen["shown"] <= width
    assert seen["colour"] == ("rgb(19, 23, 29)" if dark else "rgb(255, 255, 255)")


@pytest.mark.thorough
@needs_chromium
@pytest.mark.parametrize("width", [500, 1400])
@pytest.mark.parametrize("name", [T1, "replicates.html", "papers.html", "papers/doe-2023.html", "cite.html"])
def test_no_page_is_wider_than_the_window(site, tmp_path, name, width):
    seen = opened(site, tmp_path / "copy", name, WIDTH_PROBE, width)
    assert seen["needed"] == seen["shown"] <= width
    assert seen["cut"] == []
    assert not any(seen["copy"])
