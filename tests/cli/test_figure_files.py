"""Figures and tables in other formats: where they go, what they replace, and what is refused before any work."""

import sys

import plotly.graph_objects as go
import pytest

from mnemoscope.cli import main
from mnemoscope.cli.command import commands
from mnemoscope.cli.options import FigureOptions, TableOptions
from mnemoscope.cli.output import write_page
from mnemoscope.core.errors import InputError
from mnemoscope.report import printing
from mnemoscope.report.page import Page

WITHOUT = {"dev check", "claims diff", "claims list", "dev register", "claims show", "completion", "evaluate"}
WITHOUT |= {
    "atlas",
    "explore",
    "export",
    "hookcheck",
    "index",
    "list",
    "new",
    "dev store clean",
    "dev store list",
    "dev store verify",
    "claims verify",
    "dev entries",
    "claims export",
    "claims new",
    "claims import",
    "claims validate",
    "train",
    "dev zoo",
    "dictionary train",
}


@pytest.fixture
def drawn(monkeypatch):
    """Nothing is drawn; the widths in pixels that would have been, by name."""
    widths = {}

    def draw(figures, formats):
        for name, figure in figures.items():
            widths[name] = figure.layout.width
            yield from ((f"{name}.{ending}", b"drawn") for ending in formats)

    monkeypatch.setattr(printing, "draw", draw)
    monkeypatch.setattr(printing, "check_drawing", lambda: None)
    return widths


def test_every_command_with_a_page_of_figures_writes_them_as_files_too():
    found = commands()
    assert {name for name in found if not issubclass(found[name].options, FigureOptions)} == WITHOUT
    tables = {name for name in found if issubclass(found[name].options, TableOptions)}
    assert tables == set(found) - WITHOUT - {"report", "predict"} | {"evaluate"}


@pytest.mark.thorough
def test_files_stand_beside_the_page_and_replace_those_of_an_earlier_call(two_seeds, tmp_path, drawn, capsys):
    words = ["report", str(two_seeds), "--out", str(tmp_path / "page.html"), "--figures", "pdf", "svg", "pdf"]
    own = tmp_path / "figures" / "page-of-mine.pdf"
    own.parent.mkdir()
    for name in (own.name, "page-9-earlier.png", "page-10.svg"):
        (own.parent / name).write_bytes(b"")
    main([*words, "--figure-width", "5.5"])
    names = {file.name for file in own.parent.iterdir()} - {own.name}
    assert names == {f"{name}.{ending}" for name in drawn for ending in ("pdf", "svg")}
    assert own.exists()
    numbers = [int(name.split("-")[1]) for name in drawn]
    assert numbers == list(range(1, len(numbers) + 1))
    assert set(drawn.values()) == {528}
    assert f"wrote {len(drawn)} figures to" in capsys.readouterr().out


@pytest.mark.full
def test_an_analysis_leaves_no_figures_of_an_earlier_call(two_seeds, tmp_path, drawn, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["ablate", str(two_seeds), "--n", "64"]
    main([*words, "--figures", "png", "--latex"])
    (place,) = tmp_path.glob("results/*/ablate")
    assert {file.name for file in place.glob("figures/*")} == {"ablate-1-dots-are-seeds-bars-their-mean.png"}
    assert {file.stem for file in place.glob("*.tex")} == {"accuracy", "costs", "dissociation"}
    main(words)
    assert not list(place.glob("figures/*"))
    assert not list(place.glob("*.tex"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--figures", "svg"], "figures as files need kaleido: pip install 'mnemoscope[figures]'"),
        (["--figures", "gif"], "invalid choice 'gif'"),
        (["--figure-width", "3"], "name formats, such as --figures pdf"),
        (["--figures", "svg", "--figure-width", "-1"], "must be between 0.5 and 50 inches"),
    ],
)
def test_what_is_missing_is_said_before_the_work(two_seeds, tmp_path, monkeypatch, capsys, words, said):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "kaleido", None)
    with pytest.raises(SystemExit) as end:
        main(["ablate", str(two_seeds), *words])
    assert end.value.code == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_tables_for_latex_need_a_place(two_seeds, capsys):
    with pytest.raises(SystemExit) as end:
        main(["evaluate", str(two_seeds), "--latex"])
    assert end.value.code == 2
    assert "--latex writes files; name a directory with --out" in capsys.readouterr().err


def test_figures_that_cannot_be_drawn_in_the_end_leave_the_page_and_the_command(tmp_path, monkeypatch, capsys):
    def broken(figures, formats):
        raise InputError("the browser that draws figures as files failed: gone")

    monkeypatch.setattr(printing, "draw", broken)
    page = Page("A page")
    page.figure(go.Figure(), "A figure.")
    write_page(tmp_path / "page.html", page.html(), page.figures, FigureOptions(figures=("svg",)))
    assert "<title>A page</title>" in (tmp_path / "page.html").read_text()
    assert capsys.readouterr().out == ("no figures as files: the browser that draws figures as files failed: gone\n")
