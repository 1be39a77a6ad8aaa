"""The page over a directory: groups, values, curves, links and escapes; and filter and columns in a browser."""

import json
import math
import os
import re
import subprocess
from dataclasses import replace
from html import unescape
from pathlib import Path
from urllib.parse import unquote_to_bytes

import pytest

from mnemoscope.core.errors import InputError
from mnemoscope.core.presets import preset
from mnemoscope.models.glance import RunSummary
from mnemoscope.report.overview import (
    HEIGHT,
    WIDTH,
    SparklineAxes,
    SparklineCurve,
    check_place,
    files_below,
    files_beside,
    format_number,
    group_runs,
    mean_and_range,
    overview_measures,
    overview_page,
    sparkline,
)
from mnemoscope.report.page import Page, title_of
from tests.report.test_browser import CHROMIUM


def listed(seed=0, *, path="runs/run", finished=True, loss=1.0, changes=None, name="v3"):
    spec = preset(name, "quick", seed, changes=changes)
    progress = {"step": [0, 4000], "train_loss": [2.0, loss], "test_loss": [2.0, loss], "test_recall": [0.2, 0.9]}
    return RunSummary(
        path=Path(path) / f"seed-{seed:02d}",
        content=spec.to_dict(),
        preset=spec.preset,
        recipe=spec.recipe.name,
        seed=seed,
        n_steps=4000,
        finished=finished,
        progress=progress,
    )


def write_run(place: Path, seed=0, *, losses=(2.0, 1.0), changes=None, done=True):
    """A run directory without a model."""
    spec = preset("v3", "quick", seed, changes={"recipe.n_steps": 100, **(changes or {})})
    place.mkdir(parents=True)
    (place / "run.json").write_text(json.dumps(spec.to_dict()))
    lines = [
        {"step": 100 * i // (len(losses) - 1), "train_loss": loss, "test_loss": loss, "test_recall": 0.5}
        for i, loss in enumerate(losses)
    ]
    (place / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if done:
        (place / "done").touch()


# ---- groups


def test_seeds_of_a_configuration_are_one_group():
    runs = [listed(seed) for seed in (0, 1, 2, 5)] + [listed(1, changes={"model.d_model": 64})]
    one, other = group_runs(runs)
    assert (one.seeds, one.changed) == ("0–2, 5", "")
    assert (other.seeds, other.changed) == ("1", "model.d_model=64")


def test_a_seed_counts_once():
    """A seed in two directories makes two groups, and a mean is over one directory."""
    runs = [listed(seed, path=place) for place in ("a", "b") for seed in (0, 1)]
    assert [group.seeds for group in group_runs(runs)] == ["0, 1", "0, 1"]
    assert [group.seeds for group in group_runs([listed(0), listed(0), listed(1)])] == ["0", "0", "1"]


def test_equal_labels_of_unlike_configurations_stay_apart():
    one = listed(0)
    spec = replace(one.spec, seed=1, model=replace(one.spec.model, d_model=64))
    other = replace(one, path=Path("x"), content=spec.to_dict(), seed=1)
    assert len(group_runs([one, other])) == 2


def test_means_are_over_runs_that_have_ended():
    group = group_runs([listed(0, loss=1.0), listed(1, loss=2.0), listed(2, loss=9.0, finished=False)])[0]
    assert mean_and_range(group.last("train_loss")) == (1.5, "[1.000, 2.000]")
    assert group.states.split() == ["2", "finished,", "1", "interrupted"]
    (alone,) = group_runs([listed(2, loss=9.0, finished=False)])
    assert alone.last("train_loss") == [9.0]


def test_numbers_that_are_none():
    assert [format_number(value) for value in (None, math.nan, math.inf, -0.0, 0.0012)] == [
        "–",
        "nan",
        "inf",
        "0.000",
        "0.0012",
    ]
    assert mean_and_range([]) == (None, "")


def test_losses_of_parts_stand_in_for_accuracies():
    assert overview_measures([listed()]) == {"recall": "test_recall"}
    parts = replace(listed(), progress={"step": [0], "train_loss": [1.0], "test_loss": [1.0], "test_loss_x_1": [1.0]})
    assert overview_measures([parts]) == {"x 1": "test_loss_x_1"}


# ---- curves


AXES = SparklineAxes(n_steps=100, low=0.0, high=2.0)


def points(svg: str) -> list[tuple[float, float]]:
    (line,) = re.findall(r'polyline points="([^"]*)"', svg)
    return [tuple(map(float, point.split(","))) for point in line.split()]


def test_a_line_goes_through_its_values():
    curve = SparklineCurve(colour="red", steps=[[0, 50, 100]], values=[[2.0, math.nan, 0.0]], stays=[True])
    assert points(sparkline([curve], AXES, "a < b")) == [(0.0, 1.0), (float(WIDTH), HEIGHT - 1.0)]
    assert "a &lt; b" in sparkline([curve], AXES, "a < b")


def test_the_mean_is_over_those_that_have_come_so_far_and_ended_runs_stay():
    def end(stays):
        curve = SparklineCurve(
            colour="red", steps=[[0, 50], [0, 50, 100]], values=[[0, 0], [2, 2, 2]], stays=[stays, True]
        )
        return points(sparkline([curve], AXES, ""))[-1][1]

    assert end(True) == HEIGHT / 2
    assert end(False) == 1.0


def test_nothing_is_drawn_of_nothing():
    nothing = SparklineCurve(colour="red", steps=[[0]], values=[[math.inf]], stays=[True])
    assert sparkline([nothing], AXES, "") == ""


# ---- files


def test_a_page_of_ours_is_known_by_its_start(tmp_path):
    (tmp_path / "ours.html").write_text(Page("a < b").html())
    (tmp_path / "other.html").write_text("<html><title>other</title></html>")
    assert title_of(tmp_path / "ours.html") == "a < b"
    assert title_of(tmp_path / "other.html") is None
    assert title_of(tmp_path / "absent.html") is None


def test_files_under_and_beside(tmp_path):
    write_run(tmp_path / "runs" / "v3-quick" / "seed-00")
    for name in ("runs/tables/a.csv", "runs/v3-quick/seed-00/x.csv", "runs/.hidden/b.csv", "runs/notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    for name in ("results/v3-quick/ablate/ablate.nc", "results/v9-quick/c.nc", "elsewhere/d.csv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "report.html").write_text(Page("verdicts").html())
    (tmp_path / "foreign.html").write_text("<html></html>")
    labels = ["v3-quick"]
    assert [file.path for file in files_below(tmp_path / "runs", labels)] == [tmp_path / "runs/tables/a.csv"]
    found = {str(file.path.relative_to(tmp_path)): file for file in files_beside(tmp_path / "runs", labels)}
    assert set(found) == {"report.html", "results/v3-quick/ablate/ablate.nc"}
    assert found["results/v3-quick/ablate/ablate.nc"].label == "v3-quick"
    assert found["report.html"].title == "verdicts"


# ---- the page


def test_links_lead_to_what_is_there(tmp_path):
    odd = tmp_path / '<b>&"c' / "100% #1?.csv"
    odd.parent.mkdir()
    odd.write_text("")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.csv")).write_text("", encoding="utf-8")
    write_run(tmp_path / "runs" / "v3-quick" / "seed-00")
    out = tmp_path / "pages" / "all.html"
    out.parent.mkdir()
    html = overview_page(tmp_path, out).html()
    assert "<b>" not in html
    html.encode()
    links = [link for link in re.findall(r'href="([^"#]*)"', html) if not link.startswith("data:")]
    assert len(links) == 3
    for link in links:
        assert os.path.exists(os.path.join(os.fsencode(out.parent), unquote_to_bytes(unescape(link))))


def test_an_empty_directory_says_what_to_do(tmp_path):
    html = overview_page(tmp_path, tmp_path / "index.html").html()
    assert "mnemoscope train" in html
    assert "0 runs" in html


def test_runs_that_cannot_be_read_are_listed_with_the_reason(tmp_path):
    write_run(tmp_path / "runs" / "good")
    (tmp_path / "runs" / "bad").mkdir()
    (tmp_path / "runs" / "bad" / "run.json").write_text("{<script>")
    html = overview_page(tmp_path, tmp_path / "index.html").html()
    assert "runs/bad/run.json cannot be read" in html
    assert "seed=0 finished" in html


def test_only_an_overview_is_written_over(tmp_path):
    page = overview_page(tmp_path, tmp_path / "index.html")
    check_place(tmp_path / "index.html")
    (tmp_path / "index.html").write_text(page.html())
    check_place(tmp_path / "index.html")
    assert "index.html" not in page.html().partition("<body>")[2]
    for other in ("<html></html>", Page("report").html()):
        (tmp_path / "index.html").write_text(other)
        with pytest.raises(InputError, match="no such overview"):
            check_place(tmp_path / "index.html")


PROBE = """
<script>
const shown = () => [...document.querySelectorAll("table.runs tr[data-text]")]
  .filter((row) => row.offsetParent !== null).map((row) => row.cells[3].innerText.replace(/[▸▾] /, "").trim());
const type = (text) => {
  document.getElementById("filter").value = text;
  document.getElementById("filter").dispatchEvent(new Event("input"));
};
const column = (name) => [...document.querySelectorAll("table.runs th button")].find((b) => b.innerText === name);
const states = { start: shown() };
document.querySelector("button.open").click();
states.opened = shown();
column("loss, training").click();
states.ascending = shown();
column("loss, training").click();
states.descending = shown();
document.querySelector("button.open[aria-expanded=true]").click();
type("d_model=64");
states.change = shown();
type("quick seed=1");
states.seed = [shown(), document.getElementById("count").value];
type("nothing of this");
states.none = shown();
document.body.insertAdjacentHTML("beforeend", `<pre id="probe">${JSON.stringify(states)}</pre>`);
</script>
"""


@pytest.mark.thorough
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: the page was not opened in a browser")
def test_the_page_in_a_browser(tmp_path):
    for seed, loss in ((0, 0.5), (1, 0.3), (2, 0.4)):
        write_run(tmp_path / "runs" / "plain" / f"seed-{seed}", seed, losses=(2.0, loss))
    write_run(tmp_path / "runs" / "wide", 7, losses=(2.0, 0.2), changes={"model.d_model": 64})
    html = overview_page(tmp_path, tmp_path / "index.html").html()
    page = tmp_path / "index.html"
    page.write_text(html.replace("</body>", f"{PROBE}</body>"))
    assert CHROMIUM is not None
    flags = ("--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--virtual-time-budget=3000")
    command = [CHROMIUM, *flags, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", page.as_uri()]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert "CONSOLE" not in result.stderr
    seen = json.loads(re.findall(r'<pre id="probe">(.*?)</pre>', result.stdout)[-1])
    both = {"7", "3 seeds: 0–2"}
    assert set(seen["start"]) == both
    assert set(seen["opened"]) == both | {"0", "1", "2"}
    assert seen["ascending"] == ["7", "3 seeds: 0–2", "1", "2", "0"]
    assert seen["descending"] == ["3 seeds: 0–2", "0", "2", "1", "7"]
    assert seen["change"] == ["7"]
    assert seen["seed"] == [["3 seeds: 0–2", "1"], "1 of 4 runs"]
    assert seen["none"] == []
