"""All runs of one configuration on one sequence: the numbers are those of Python, and a click goes to a run."""

import re

import pytest
import torch

import mnemoscope as ms
from mnemoscope.explorer.content import reference_set
from tests.explorer.chromium import needs_chromium
from tests.explorer.test_page import seen

SEEN = """
const lines = () => [...document.querySelectorAll("table.seeds tr")].slice(1);
const before = lines().map((line) => ({
  seed: line.cells[0].textContent, says: line.cells[1].textContent,
  parts: [...line.querySelectorAll("td button")].map((button) => button.getAttribute("aria-label")),
}));
lines()[1].querySelector("th button").click();
const second = explorer.state.run;
const parts = [...lines()[2].querySelectorAll("td button")];
parts.find((button) => button.getAttribute("aria-label").includes("H1)")).click();
return { before, second, third: explorer.state.run, head: explorer.state.head,
  current: lines().map((line) => line.cells[0].firstElementChild.ariaCurrent),
  summary: document.querySelector("table.seeds").closest("details").textContent };
"""


@needs_chromium
@pytest.mark.thorough
def test_all_seeds_stand_side_by_side_with_the_numbers_of_python(tiny, tmp_path):
    runs = [*ms.find_runs("zoo:v3-quick")[:3], tiny]
    tokens, answer, foil = [1, 2, 3, 4, 2, 1, 4, 3, 3], 4, 5
    text = ".".join(map(str, tokens))
    fragment = f"tokens={text}&other={text}&pos=8&answer={answer}&foil={foil}"
    found, complaints = seen(ms.explore(runs).html(), tmp_path, SEEN, fragment=fragment)
    assert not complaints
    assert [line["seed"] for line in found["before"]] == [f"seed {run.spec.seed}" for run in runs[:3]]
    assert "All 3 seeds of v3-quick" in found["summary"]
    assert (found["second"], found["third"], found["head"]) == (1, 2, "0.1")
    assert found["current"] == ["false", "false", "true"]
    for run, line in zip(runs, found["before"], strict=False):
        model, inputs = run.model(), torch.tensor([tokens])
        batch = ms.Batch(inputs=inputs, targets=inputs, scored=torch.arange(9)[None] == 8)
        said = model(inputs)[0, -1].softmax(-1).detach()
        assert line["says"].split() == [str(int(said.argmax())), f"{float(said.max()):.2f}".removeprefix("0")]
        chosen, other = torch.full_like(inputs, answer), torch.full_like(inputs, foil)
        direct = ms.logit_attribution(model, batch, answer=chosen, foil=other).attribution
        reference = ms.Named(name="reference", value=reference_set(run.spec.task, run.spec.seed))
        for label in line["parts"]:
            name = re.search(r"L0(?:H\d| MLP)", label)
            adds, costs = (float(text.replace("−", "-")) for text in re.findall(r"(?:adds|costs) ([+−]?[\d.]+)", label))
            assert name is not None
            assert adds == pytest.approx(float(direct.sel(component=name[0]).sum()), abs=0.0051)
            head = name[0].partition("H")[2]
            site = ms.Site(kind="z", layer=0, head=int(head)) if head else ms.Site(kind="mlp_out", layer=0)
            without = ms.run_with(model, batch, [ms.Mean(site=site, source=reference)])[0, -1].softmax(-1)
            assert costs == pytest.approx(float(said[answer] - without[answer]), abs=0.0051)


@needs_chromium
@pytest.mark.thorough
def test_one_run_has_no_such_table(tiny, tmp_path):
    script = "return document.querySelector('table.seeds').closest('details').hidden;"
    found, complaints = seen(ms.explore(tiny).html(), tmp_path, script)
    assert not complaints
    assert found
