"""The page in headless Chromium: it starts, says what TransformerLens says, follows clicks, and asks for nothing."""

import json
import re
import shlex
from dataclasses import replace
from urllib.parse import quote

import pytest
import torch

import mnemoscope as ms
from mnemoscope.cli import main
from mnemoscope.explorer.content import examples_of, reference_set
from mnemoscope.explorer.page import explore
from tests.explorer.chromium import computed, needs_chromium, opened, text_of
from tests.support import small_spec

WAIT = 1500
"""Milliseconds in which what is computed piece by piece is there."""


def seen(html: str, directory, script: str, **where) -> tuple[dict, str]:
    """What a script run on the page returns, and what the browser complained of; the script may wait."""
    probe = (
        '<script>addEventListener("load", () => setTimeout(async () => {'
        f"const found = await (async () => {{ {script} }})();"
        'const out = document.createElement("pre"); out.id = "seen"; out.textContent = JSON.stringify(found);'
        f"document.body.append(out); }}, {WAIT}));</script>"
    )
    document, complaints = opened(html.replace("</body>", f"{probe}</body>"), directory, **where)
    return json.loads(text_of(document, "seen")), complaints


@pytest.fixture(scope="module")
def html(tiny):
    return explore(tiny).html()


def test_a_page_is_one_file_that_may_ask_for_nothing(html):
    assert "default-src 'none'" in html
    assert not re.search(r'(?:src|href)="(?!data:|#)', html)
    assert not re.search(r"\b(?:fetch|XMLHttpRequest|WebSocket|eval(?=\()|innerHTML|document\.write)\b", html)
    assert len(html.encode()) < 8_000_000


def test_the_command_writes_the_page(tiny, tmp_path, capsys):
    out = tmp_path / "pages" / "explorer.html"
    main(["explore", str(tiny.path), "--state", "pos=4</script>", "--out", str(out)])
    assert "1 model" in capsys.readouterr().out
    assert out.read_text().count("</script>") == 2
    assert "pos=4" in out.read_text()


def test_what_is_refused(tiny, tmp_path):
    with pytest.raises(ms.InputError, match="at least one run"):
        explore([])
    with pytest.raises(ms.InputError, match="vectors"):
        explore(ms.find_runs("zoo:retrieval-2-1-layer-quick")[0])
    with pytest.raises(ms.InputError, match="no checkpoint"):
        explore(ms.models.run.create_run(tmp_path / "run", small_spec("v3")))


@needs_chromium
@pytest.mark.thorough
@pytest.mark.parametrize("width", [1400, 500])
def test_the_page_starts_and_nothing_sticks_out(html, tmp_path, width):
    script = """
    return {
      panels: document.querySelectorAll(".panel").length, status: Boolean(document.getElementById("explorer-status")),
      finding: document.querySelector(".finding").textContent, hash: location.hash,
      said: document.querySelector("#explorer").textContent,
      wide: document.documentElement.scrollWidth > document.documentElement.clientWidth,
      unnamed: [...document.querySelectorAll("#explorer button, #explorer select, #explorer input")]
        .filter((one) => !(one.textContent.trim() || one.ariaLabel || one.title || one.labels?.length)).length,
    };
    """
    found, complaints = seen(html, tmp_path, script, width=width)
    assert not complaints
    assert not found["status"]
    assert not found["wide"]
    assert found["unnamed"] == 0
    assert "[object" not in found["said"]
    assert "undefined" not in found["said"]
    assert found["panels"] >= 7
    assert re.match(r"After \d at x5 the model says \d", found["finding"])
    assert "every x asks for its y" in found["said"].split("After")[0], "the task is stated first"
    assert "tokens=" in found["hash"]


@needs_chromium
@pytest.mark.thorough
def test_a_token_that_is_no_answer_is_not_told_as_one(tiny, tmp_path):
    """The page said "the model says 0" of a task whose answers are 1 to 5."""
    model = tiny.hooked()
    with torch.no_grad():
        model.b_U[0] += 50
    subject = ms.Subject(model=model, task=tiny.spec.task, seed=0)
    script = "return { finding: document.querySelector('.finding').textContent };"
    found, complaints = seen(explore(subject).html(), tmp_path, script)
    assert not complaints
    said = r"says 0 \(probability 1\.00\), which is no answer of the task; the likeliest answer is [1-5] \(\.\d+\)"
    assert re.search(said, found["finding"])


@needs_chromium
@pytest.mark.thorough
def test_a_known_sequence_is_read_where_it_is_scored(tmp_path):
    """Elsewhere its targets are dummies, and the page named what the model says there."""
    one, pair, unlisted = [1, 2, 3], [3, 2, 1], [2, 2]
    run = {
        "scored": [0, 1, 2],
        "examples": [
            {"tokens": one, "scored": [2], "pairs": {"change": {"tokens": pair, "scored": [0, 1]}}},
            {"tokens": unlisted, "scored": [], "pairs": {}},
        ],
    }
    content = {"run": run, "sequences": [one, pair, unlisted, [1, 1, 1]]}
    body = "return content.sequences.map((tokens) => scoredIn(content.run, tokens));"
    assert computed(("state",), body, content, tmp_path) == [[2], [0, 1], [0, 1], [0, 1, 2]]


def test_examples_know_where_they_are_scored(tiny):
    task = tiny.spec.task
    batch = task.sample(4, split="test", generator=torch.Generator().manual_seed(0))
    where = batch.scored.clone()
    where[1, :4] = False
    found = examples_of(task, replace(batch, scored=where), 0, None)
    assert [one.scored for one in found] == [row.nonzero()[:, 0].tolist() for row in where]


@needs_chromium
@pytest.mark.thorough
def test_clicks_do_what_python_does_with_the_code_on_the_page(html, tmp_path, capsys):
    script = """
    const click = (selector) => document.querySelector(selector).click();
    click('.stream li:nth-child(4) .switch');                       // a head, by its mean
    click('table.patches tr:nth-child(2) td:nth-child(2) button');  // a patch
    click('table.edges button');                                    // an edge
    const [set] = [...document.querySelectorAll('.beside select')];
    set.value = "previous token";
    set.dispatchEvent(new Event("change"));
    const { state } = explorer;
    return {
      kinds: state.edits.map((edit) => (edit.edge ? "edge" : edit.kind)), pos: state.pos,
      python: document.getElementById("python").textContent,
      said: [...document.querySelectorAll("table.says tr")].slice(1).map((row) => row.cells[2].textContent),
      tokens: [...document.querySelectorAll("table.says th[scope=row]")].map((cell) => Number(cell.textContent)),
      shares: [...document.querySelectorAll(".stream .share b")].map((b) => Number(b.textContent.replace("−", "-"))),
    };
    """
    found, complaints = seen(html, tmp_path, script)
    assert not complaints
    assert sorted(found["kinds"]) == ["edge", "mean", "patch", "pattern"]
    names: dict[str, torch.Tensor] = {}
    exec(found["python"], names)
    capsys.readouterr()
    expected = names["logits"][found["pos"]].softmax(-1)
    assert [float(p) for p in found["said"]] == pytest.approx(expected[found["tokens"]].tolist(), abs=0.0051)
    *parts, total = found["shares"]
    assert sum(parts) == pytest.approx(total, abs=0.005 * len(parts) + 0.005)


DRAGGED = r"""
const frame = document.querySelector(".frame");
const send = (kind, query, key) => {
  const box = document.querySelector("canvas.matrix").getBoundingClientRect();
  const clientX = box.left + ((key + 0.5) * box.width) / 9;
  const clientY = box.top + ((query + 0.5) * box.height) / 9;
  frame.dispatchEvent(new PointerEvent(kind, { clientX, clientY, bubbles: true }));
  return document.getElementById("attention-said").textContent;
};
const press = (key, shiftKey) => frame.dispatchEvent(new KeyboardEvent("keydown", { key, shiftKey }));
const row = () => explorer.state.edits[0].rows[8];
const weight = (key) => Number(/is (\S+?)[.]$/.exec(send("pointermove", 8, key))[1]);
const before = [0, 1, 2, 3, 4, 5, 6, 7, 8].map(weight);
send("pointerdown", 8, 7);
send("pointermove", 6, 3);
send("pointerup", 6, 3);
const dragged = row();
press("ArrowLeft", true);
const carried = row();
press("ArrowLeft", false);
const said = document.getElementById("attention-said").textContent;
return { before, dragged, carried, after: row(), n: explorer.state.edits.length, said };
"""


@needs_chromium
@pytest.mark.thorough
def test_attention_is_dragged_along_its_row_and_carried_by_keys(html, tmp_path):
    found, complaints = seen(html, tmp_path, DRAGGED)
    assert not complaints
    expected = found["before"]
    expected[3], expected[7] = expected[3] + expected[7], 0
    assert found["dragged"] == pytest.approx(expected, abs=0.002)
    expected[2], expected[3] = expected[2] + expected[3], 0
    assert found["carried"] == pytest.approx(expected, abs=0.002)
    assert found["after"] == found["carried"]
    assert found["n"] == 1
    assert "(y1)" in found["said"]


@needs_chromium
@pytest.mark.thorough
@pytest.mark.parametrize("label", ["birth-2-layers-quick", "facts-softmax-quick"])
def test_commands_on_the_page_take_sequences_of_texts_and_of_names(label, tmp_path, capsys):
    run = ms.find_runs(f"zoo:{label}")[0]
    script = "return { commands: document.getElementById('commands').textContent, symbols: explorer.run.symbols };"
    found, complaints = seen(explore(run).html(), tmp_path, script)
    assert not complaints
    assert found["symbols"] == ms.report.token_symbols(run.spec.task)
    words = shlex.split(found["commands"].splitlines()[0])
    assert words[:3] == ["mnemoscope", "predict", f"zoo:{label}/seed-{run.spec.seed}"]
    main(words[1:])
    assert len(capsys.readouterr().out.splitlines()) > 10


@needs_chromium
@pytest.mark.thorough
def test_an_address_opens_its_state_and_tokens_stay_text(tiny, tmp_path):
    found, complaints = seen(
        explore(tiny).html(),
        tmp_path,
        "return { state: explorer.state, said: document.querySelector('.said').textContent,"
        "finding: document.querySelector('.finding').textContent };",
        fragment="tokens=1.2.1.3.4.5.2.4.3&pos=4&checkpoint=0&head=0.1&removal=zero",
    )
    assert not complaints
    state = found["state"]
    assert (state["tokens"], state["pos"], state["checkpoint"]) == ([1, 2, 1, 3, 4, 5, 2, 4, 3], 4, 0)
    assert (state["head"], state["removal"]) == ("0.1", "zero")
    assert "only the last x may repeat" in found["said"]
    assert "No exact predictor is known" in found["finding"]


@needs_chromium
@pytest.mark.thorough
def test_an_address_of_something_else_opens_the_first_state(html, tmp_path):
    script = "return { notice: document.querySelector('[role=alert]').hidden, edits: explorer.state.edits };"
    found, complaints = seen(html, tmp_path, script, fragment="tokens=1.x")
    assert not complaints
    assert found == {"notice": False, "edits": []}
    odd = "edits=" + quote('[1,{"kind":"zero"},{"kind":"zero","site":{"kind":"z","layer":7}}]')
    found, complaints = seen(html, tmp_path, script, fragment=odd)
    assert not complaints
    assert found == {"notice": True, "edits": []}


@needs_chromium
@pytest.mark.thorough
def test_a_notebook_shows_the_page_in_a_frame(tiny, tmp_path):
    frame = explore(tiny, state="tokens=1.2.1.3.4.5.2.4.3")._repr_html_()
    script = """
    const { explorer, document } = window.document.querySelector("iframe").contentWindow;
    return { tokens: explorer.state.tokens, finding: document.querySelector(".finding").textContent };
    """
    found, complaints = seen(f"<html><body>{frame}</body></html>", tmp_path, script)
    assert not complaints
    assert found["tokens"] == [1, 2, 1, 3, 4, 5, 2, 4, 3]
    assert found["finding"].startswith("After 3 at x5")


@needs_chromium
@pytest.mark.thorough
@pytest.mark.parametrize("damage", ["changed", "cut"])
def test_a_damaged_page_says_so_in_one_line(html, tmp_path, damage):
    start = html.index('"symbols":')
    broken = html[:start] + html[start:].replace('"5"', '"6"', 1) if damage == "changed" else html[:start]
    document, _ = opened(broken, tmp_path)
    status = re.search(r'id="explorer-status"[^>]*>([^<]*)<', document)
    assert status is not None
    assert "damaged" in status[1]
    assert 'class="panel' not in document


@pytest.mark.drawn(1)
@needs_chromium
@pytest.mark.thorough
@pytest.mark.parametrize("label", ["v3-quick", "birth-2-layers-quick", "facts-softmax-quick", "memories-all-quick"])
def test_exact_predictors_stand_beside_models_of_every_task(label, tmp_path):
    run = ms.find_runs(f"zoo:{label}")[0]
    page = explore(run).html()
    assert len(page.encode()) < 8_000_000
    script = """
    const { state, run, predictors } = explorer;
    const rows = Object.fromEntries(predictors.names.map((name) => [name, [...predictors.rows(name, state.tokens)]
      .map(([pos, row]) => [pos, [...row]])]));
    return { tokens: state.tokens, rows };
    """
    found, complaints = seen(page, tmp_path, script)
    assert not complaints
    tokens = torch.tensor([found["tokens"]])
    task = run.spec.task
    batch = next(
        each
        for each in (reference_set(task, run.spec.seed).select(slice(i, i + 1)) for i in range(16))
        if torch.equal(each.inputs, tokens)
    )
    for name, rows in found["rows"].items():
        expected = task.reference(batch, name)[0]
        for pos, row in rows:
            assert row == pytest.approx(expected[pos].tolist(), abs=1e-3, nan_ok=True)


@needs_chromium
@pytest.mark.thorough
def test_a_click_looks_into_a_neuron_and_its_switch_is_an_edit(html, tmp_path):
    script = """
    const squares = document.querySelectorAll(".neurons button");
    const before = document.querySelector(".neuron .switch").getAttribute("aria-checked");
    document.querySelector(".neuron .switch").click();
    const text = document.querySelector(".neuron").textContent;
    const edits = explorer.state.edits;
    document.querySelectorAll(".neurons button")[5].click();
    const other = explorer.state.neuron;
    document.querySelectorAll(".neurons button")[5].click();
    return { n: squares.length, before, text, edits, other, none: document.querySelector(".neuron"),
      python: document.getElementById("python").textContent };
    """
    found, complaints = seen(html, tmp_path, script, fragment="neuron=0.3")
    assert not complaints
    assert found["n"] > 5
    assert found["before"] == "true"
    assert "neuron 3 of L0 MLP" in found["text"]
    assert re.search(r"a token, through .*it raises, and lowers, the logit of", found["text"])
    assert re.search(r"Most active, of the page's 256 sequences|Active on none", found["text"])
    assert found["edits"] == [{"kind": "mean", "site": {"kind": "post", "layer": 0, "neuron": 3}}]
    assert 'ms.Site(kind="post", layer=0, neuron=3)' in found["python"]
    assert (found["other"], found["none"]) == ("0.5", None)
