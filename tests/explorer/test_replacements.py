"""What a part is replaced with by clicks, and the same in Python: class means, a random sequence, and q, k, v."""

import json
from typing import Any
from urllib.parse import quote

import pytest
import torch

import mnemoscope as ms
from mnemoscope.explorer.content import latent_classes, reference_set
from tests.explorer.chromium import needs_chromium
from tests.explorer.test_page import seen

CLICKS = """
const choose = (label, value) => {
  const labels = [...document.querySelectorAll("label.choose")];
  const list = labels.find((one) => one.textContent.startsWith(label)).firstElementChild;
  list.value = value;
  list.dispatchEvent(new Event("change"));
};
const click = (selector) => document.querySelector(selector).click();
choose("a part that is switched off gives", "class");
const first = explorer.state.within;
choose("of those whose", "source_slot");
choose("is ", "2");
click('.stream li:nth-child(3) .switch');
choose("a part that is switched off gives", "resample");
const before = document.querySelector(".drawn").textContent;
[...document.querySelectorAll("button")].find((one) => one.textContent === "draw another").click();
click('.stream li:nth-child(5) .switch');
choose("of ", "reads");
const rows = [...document.querySelectorAll("table.patches th[scope=row]")].map((one) => one.textContent);
click('table.patches tr:nth-child(5) td:nth-child(2) button');
const { state } = explorer;
return {
  first, rows, kinds: state.edits.map(({ kind, site, within }) => [kind, site.kind, within ?? null]), pos: state.pos,
  before, after: document.querySelector(".drawn").textContent, tokens: state.tokens,
  python: document.getElementById("python").textContent,
  words: [...document.querySelectorAll(".edits li")].map((one) => one.textContent),
  switches: [...document.querySelectorAll(".stream .switch")].map((one) => one.textContent),
  said: [...document.querySelectorAll("table.says tr")].slice(1).map((row) => row.cells[2].textContent),
  answers: [...document.querySelectorAll("table.says th[scope=row]")].map((cell) => Number(cell.textContent)),
  fragment: explorer.fragment(),
};
"""


def test_classes_hold_one_whole_number_a_sequence(tiny):
    batch = reference_set(tiny.spec.task, tiny.spec.seed)
    classes = latent_classes(batch)
    assert set(classes) == {"is_repeat", "source_slot", "source_pos", "recalled", "unused"}
    assert classes["source_slot"] == batch.latents["source_slot"].tolist()
    tokens = torch.zeros(4, 2, dtype=torch.long)
    known = {"own": torch.arange(4), "same": torch.ones(4), "two": torch.tensor([0, 0, 1, 1])}
    few = ms.Batch(inputs=tokens, targets=tokens, scored=tokens == 0, known=known)
    assert latent_classes(few) == {"two": [0, 0, 1, 1]}


@needs_chromium
@pytest.mark.thorough
def test_replacements_by_clicks_are_those_of_the_code_on_the_page(tiny, tmp_path, capsys):
    page = ms.explore(tiny).html()
    found, complaints = seen(page, tmp_path, CLICKS)
    assert not complaints
    assert found["first"].startswith("is_repeat:")
    assert found["kinds"][:2] == [["mean", "z", ["source_slot", 2]], ["resample", "mlp_out", None]]
    assert found["kinds"][2] == ["patch", "q", None]
    assert [row.split(": ")[1] for row in found["rows"]] == ["query", "key", "value"] * 2
    assert found["before"] != found["after"]
    assert any("where source slot = 2" in words for words in found["words"])
    assert any("random sequence" in words for words in found["words"])
    assert {"class", "drawn"} <= set(found["switches"])
    names: dict[str, Any] = {}
    exec(found["python"], names)
    capsys.readouterr()
    drawn = names["one"].value.inputs[0].tolist()
    assert found["after"].endswith(" ".join(map(str, drawn)))
    assert drawn != found["tokens"]
    expected = names["logits"][found["pos"]].softmax(-1)
    assert [float(p) for p in found["said"]] == pytest.approx(expected[found["answers"]].tolist(), abs=0.0051)

    script = "return { said: document.querySelector('.drawn').textContent, n: explorer.state.edits.length };"
    again, complaints = seen(page, tmp_path, script, fragment=found["fragment"])
    assert not complaints
    assert again == {"said": found["after"], "n": 3}


@needs_chromium
@pytest.mark.thorough
def test_classes_and_neurons_that_do_not_exist_are_left_out_of_an_address(tiny, tmp_path):
    place = {"site": {"kind": "z", "layer": 0, "head": 0}}
    odd = [("zero", ["is_repeat", 1]), ("mean", ["is_repeat", 7]), ("mean", ["constructor", 1]), ("mean", 5)]
    edits = quote(json.dumps([{"kind": kind, "within": within, **place} for kind, within in odd]))
    fragment = f"within=constructor:1&removal=class&neuron=9.9&edits={edits}"
    script = (
        "const { state } = explorer; return [state.within.split(':')[0], state.removal, state.neuron, state.edits];"
    )
    settled, complaints = seen(ms.explore(tiny).html(), tmp_path, script, fragment=fragment)
    assert not complaints
    assert settled == ["is_repeat", "class", "", []]
