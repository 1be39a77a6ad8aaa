"""The walk of docs/explore.md, "Does head 0 do recall?", followed on the page: what it says is what a class sees."""

from pathlib import Path

import pytest

import mnemoscope as ms
from tests.explorer.chromium import needs_chromium
from tests.explorer.test_page import seen

PAGE = Path(__file__).parents[2] / "docs" / "explore.md"
WALK = r"""
const rest = () => new Promise((done) => setTimeout(done, 500));
const named = (text) => [...document.querySelectorAll("button")].find((one) => one.textContent === text);
const flip = (head) => document.querySelector(`.stream .switch[aria-label*="${head}"]`).click();
const textOf = (selector) => document.querySelector(selector).textContent;
const finding = () => /model says (\S+) \(probability (\S+)\)/.exec(textOf(".finding")).slice(1).join(" ");
const choose = (label, value) => {
  const labels = [...document.querySelectorAll("label.choose")];
  const list = labels.find((one) => one.textContent.startsWith(label)).firstElementChild;
  list.value = value;
  list.dispatchEvent(new Event("change"));
};
const field = document.querySelector("[data-row=tokens] input");
field.value = "2 5 1 4 5 1 3 3 2";
field.dispatchEvent(new Event("change"));
named("toggle repeat").click();
await rest();
const found = { pos: explorer.state.pos, intact: finding(), words: textOf(".words") };
const lines = [...document.querySelectorAll("table.patches tr")].slice(1);
found.carries = lines.map((line) => [line.cells[0].textContent, line.cells[1].textContent]);
flip("L0H0");
found.head0 = finding();
flip("L0H0");
flip("L0H1");
found.head1 = finding();
named("×").click();
choose("a part that is switched off gives", "zero");
flip("L0H0");
found.zero = [...document.querySelectorAll("table.says tr.answer-row td")][1].textContent;
named("×").click();
const notes = () => [...document.querySelectorAll(".note")].map((one) => one.textContent);
const note = () => notes().find((one) => one.startsWith("Over "));
found.costs = ["0.0", "0.1"].map((head) => (choose("head", head), note()));
found.times = explorer.run.steps.map((_, checkpoint) => (explorer.set({ checkpoint }), textOf(".time output")));
return found;
"""


@needs_chromium
@pytest.mark.thorough
def test_every_step_of_the_walk_shows_what_the_page_on_the_explorer_says(tmp_path):
    found, complaints = seen(ms.explore(ms.find_runs("zoo:v3-quick/seed-16")).html(), tmp_path, WALK)
    assert not complaints
    text = " ".join(PAGE.read_text().split("## Does head 0 do recall?")[1].split("\n## ")[0].split())
    assert found["pos"] == 8
    assert found["intact"] == "5 1.00"
    assert "It needs the other head (L0H1) most" in found["words"]
    assert "looks most at 2 at x1 (.97)" in found["words"]
    assert "attends most to x1, where 2 occurred (.97)" in text
    for head in ("head0", "head1"):
        assert "The model says {} ({})".format(*found[head].split()) in text
    assert found["head1"].startswith("2 ")
    assert f"the probability of 5 falls to {found['zero']}" in text
    carries = {name.rpartition("(")[2].rstrip(")"): share for name, share in found["carries"]}
    assert f"L0H1 carries {carries['L0H1']} of it, L0H0 {carries['L0H0']}" in text
    for head, cost in zip(("L0H0", "L0H1"), found["costs"], strict=True):
        elimination, recall = (part.split(" → ")[1].removesuffix(".") for part in cost.split(": ")[1].split(", "))
        assert f"without {head} recall falls to {recall} and elimination to {elimination}" in text
    for step in (252, 761):
        told = next(time for time in found["times"] if time.startswith(f"step {step} "))
        assert f"recall {told.rsplit(' ', 1)[1]} at step {step}" in text
