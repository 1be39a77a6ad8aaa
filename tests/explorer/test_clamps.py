"""The page's forward pass with clamps of training beside Python's, its switch, and what it refuses."""

import json
from dataclasses import asdict

import numpy as np
import pytest
import torch

import mnemoscope as ms
from mnemoscope.analyses.clamped import put_clamps
from mnemoscope.core.clamp import Clamp
from mnemoscope.core.errors import InputError
from mnemoscope.explorer.clamps import pack_clamps
from mnemoscope.explorer.packing import Packer, page_configuration
from mnemoscope.interventions.run import intervene
from mnemoscope.models.building import build_untrained
from mnemoscope.report.task_report import find_report
from mnemoscope.systems.in_context_bigrams.presets import HELD
from mnemoscope.systems.induction_formation.presets import CONDITIONS
from mnemoscope.training.loop import train
from tests.explorer.chromium import computed, needs_chromium
from tests.explorer.test_forward import Draws
from tests.explorer.test_page import seen
from tests.support import perturbed, small_spec
from tests.training.lookup_with_parts import WithParts

HARNESS = """
const { tensors, runs, cases } = content;
const scripts = { SCRIPTS };
const open = opener(tensors, (run) => scripts[run.name]({}, run.cfg));
return cases.map(({ run: number, checkpoint, tokens, other, row, edits }) => {
  const run = runs[number];
  const model = open(run, checkpoint, true);
  const sources = sourcesOf(run, model, tokens.length, forward(model, other).cache, row);
  const { logits, cache } = forward(model, tokens, edits, sources);
  const last = cache.get(`blocks.${run.cfg.n_layers - 1}.hook_attn_out`);
  return [logits, last].map(({ data }) => Array.from(data));
});
"""
PLAIN = (
    "L0H1=zero from 6 to 18 ramp 8",
    "L0H0 pattern=pattern previous token from 20",
    "L0H0-1 pattern=pattern same token at same place from 9 to 12",
    "L1H1 pattern=pattern after same token from 3 ramp 40",
    "L1H0 pattern=pattern same slot to 10",
    "L1H0 pattern=pattern after same token at same place from 11",
    "L1 resid_pre pos -1=scale 0.5",
    "L1H0 scores key 0=knockout from 3 ramp 50",
    "L1H1 scores pos (5, -1) key (1, 2)=knockout from 12",
    "L0 W_in=rank 4 from 9 ramp 3",
    "L1H1 W_O=scale 3 from 12",
    "W_pos=hold to 7",
    "L0 attn_out pos (1, 3)=scale -2",
    "L1H1=scale 3 ramp 20",
    "L0 post neuron (1, 2)=zero",
    "L1 mlp_out=scale 0.3",
)
N_CASES = {"plain": 66, "guests": 24}


def specs(kind: str) -> dict[str, ms.RunSpec]:
    """Specifications with clamps, of a small model each."""
    if kind == "plain":
        more = {"recipe.clamps": tuple(map(Clamp.read, PLAIN)), "model.n_layers": 2, "model.d_model": 8}
        return {"plain": small_spec("v3", changes=more)}
    few = {"model.d_model": 32, "task.n_classes": 6, "task.n_labels": 3}
    found = {name: ms.preset(name, "quick", 0, changes=few) for name, (_, clamps) in CONDITIONS.items() if clamps}
    birth = {"model.d_model": 8}
    for name, held in HELD.items():
        found[name] = ms.preset("memories", "quick", 0, changes={**birth, **dict(held)})
    return found


def model_of(spec: ms.RunSpec, step: int | None = None):
    """A model of that specification with parameters away from zero; of a step with its clamps."""
    model = perturbed(build_untrained(spec), spec=spec.model)
    if step is not None:
        put_clamps(model, spec, step)
    return model


def batch_of(tokens: torch.Tensor, spec: ms.RunSpec) -> ms.Batch:
    return ms.Batch(inputs=tokens, targets=tokens, scored=torch.ones_like(tokens, dtype=torch.bool))


@needs_chromium
@pytest.mark.parametrize(("kind", "steps"), [("plain", (0, 9, 12, 30)), ("guests", (0,))])
def test_the_page_computes_what_a_clamped_model_computes(kind, steps, tmp_path):
    packer, runs, cases, wanted, scripts = Packer(), [], [], [], {}
    for name, spec in specs(kind).items():
        free = model_of(spec)
        draws = Draws(free, n_pos=min(spec.task.n_ctx, 9), seed=len(runs))
        reference = ms.Named(name="reference", value=batch_of(draws.tokens(8), spec))
        clamps = pack_clamps(spec, steps, packer, lambda step, spec=spec: model_of(spec, step))
        assert clamps is not None
        assert not clamps.refused
        if (source := find_report(spec.task).ideal_parts) is not None:
            scripts[name] = source()
        runs.append(
            {
                "name": name,
                "cfg": page_configuration(free),
                "checkpoints": [packer.checkpoint(free) for _ in steps],
                "clamps": asdict(clamps),
                "reference": reference.value.inputs.tolist(),
                "lengths": [],
                "classes": {},
            }
        )
        for number in range(N_CASES[kind]):
            checkpoint, row = number % len(steps), draws.below(8)
            model = model_of(spec, steps[checkpoint])
            batch, other = (batch_of(draws.tokens(), spec) for _ in range(2))
            drawn = ms.Named(name="drawn", value=reference.value.select(slice(row, row + 1)))
            given = {"reference": reference, "drawn": drawn, "other": ms.Named(name="other", value=other), "class": 0}
            edit, interventions = draws.case(number, given)
            if number < len(steps) or edit.get("within"):
                edit, interventions = None, []
            cases.append(
                {
                    "run": len(runs) - 1,
                    "checkpoint": checkpoint,
                    "tokens": batch.inputs[0].tolist(),
                    "other": other.inputs[0].tolist(),
                    "row": row,
                    "edits": [] if edit is None else [edit],
                }
            )
            with torch.no_grad(), intervene(model, batch, interventions):
                logits, cache = model.run_with_cache(batch.inputs)
            wanted.append((logits[0], cache[f"blocks.{model.cfg.n_layers - 1}.hook_attn_out"][0]))
            if edit is None:
                assert not torch.allclose(logits, ms.run_with(free, batch, []), atol=1e-2), (name, checkpoint)
    entries = ",\n".join(f"{json.dumps(name)}: {source.strip().rstrip(';')}" for name, source in scripts.items())
    content = {"tensors": packer.tensors, "runs": runs, "cases": cases}
    answers = computed(("weights", "means"), HARNESS.replace("SCRIPTS", entries), content, tmp_path)
    for case, found, expected in zip(cases, answers, wanted, strict=True):
        told = f"{runs[case['run']]['name']}: {case['checkpoint']}, {case['edits']}"
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other.flatten().numpy(), rtol=1e-5, atol=1e-4, err_msg=told)


def refusal(text: str, spec: ms.RunSpec | None = None) -> str:
    spec = small_spec("v3", changes={"recipe.clamps": (Clamp.read(text),)}) if spec is None else spec
    found = pack_clamps(spec, [0], Packer(), lambda step: model_of(spec, step))
    assert found is not None
    return found.refused


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("L0 MLP=mean", "its mean is over a batch, and a page runs one sequence"),
        ("L0H0 result=zero", "it is at the result of a head, and the page clamps z"),
        ("L0H0=patch L0H1", "it copies one activation to the place of another"),
        ("L0 resid_pre pos source_pos=zero", "its place differs between sequences"),
    ],
)
def test_what_the_page_does_not_compute_is_said(text, why):
    assert refusal(text) == f"This page does not compute {text}: {why}."
    assert not refusal("L0H0=zero")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    more = {"recipe.n_steps": 12, "recipe.checkpoint_steps": (6,), "recipe.warmup_steps": 2, "model.d_model": 32}
    few = {"task.n_classes": 6, "task.n_labels": 3, "recipe.batch_size": 8, "recipe.metrics_every": 6}
    place = tmp_path_factory.mktemp("clamped")
    held = ms.preset("formation-key-copy", "quick", 0, changes={**more, **few})
    clamps = (*held.recipe.clamps, Clamp.read("L0 W_V=scale 3 from 8"))
    held = ms.preset("formation-key-copy", "quick", 0, changes={**more, **few, "recipe.clamps": clamps})
    averaged = small_spec("v3", changes={**more, "recipe.clamps": (Clamp.read("L0H0=mean"),)})
    return train(held, place / "held"), train(averaged, place / "averaged")


CLICKS = """
const all = (selector, inside = document) => [...inside.querySelectorAll(selector)];
const panel = all(".panel").find((one) => one.textContent.startsWith("Clamps of"));
const choose = (value) => {
  const list = panel.querySelector("select");
  list.value = value;
  list.dispatchEvent(new Event("change"));
};
const ends = ({ cells }) => [cells[0].textContent, [...cells].at(-1).textContent];
const logits = () => all("table.says tr").slice(1).map(ends);
const told = () => all("li", panel).map((one) => one.textContent);
const text = (selector) => document.querySelector(selector).textContent;
const free = logits();
choose("with");
const found = {
  free,
  held: logits(),
  words: told(),
  note: panel.querySelector(".note").textContent,
  python: text("#python"),
  commands: text("#commands"),
  fragment: explorer.fragment(),
  shares: all(".stream > li .share b").map((one) => Number(one.textContent.replace("−", "-"))),
  finding: text(".finding"),
  named: all(".stream > li .part").at(-2).textContent,
};
explorer.set({ checkpoint: 1 });
return { ...found, earlier: told() };
"""


@needs_chromium
@pytest.mark.thorough
@pytest.mark.parametrize("width", [1400, 500])
def test_the_switch_shows_the_model_with_its_clamps(runs, width, tmp_path, capsys):
    held, _ = runs
    found, complaints = seen(ms.explore(held).html(), tmp_path, CLICKS, width=width)
    assert not complaints
    names: dict = {}
    exec(found["python"], names)
    capsys.readouterr()
    symbols = held.spec.task.symbols
    assert "with_clamps" in found["python"]
    assert "clamps=with" in found["fragment"]
    assert "predict" in found["commands"]
    assert "without clamps" in found["commands"]
    for which, model in (("free", held.hooked()), ("held", ms.analyses.with_clamps(held).hooked())):
        logits = model(names["batch"](_asked(found["python"])).inputs)[0, -1].detach()
        if which == "held":
            torch.testing.assert_close(logits, names["logits"][-1].detach())
        for symbol, logit in found[which]:
            assert float(logit.replace("−", "-")) == pytest.approx(float(logits[symbols.index(symbol)]), abs=0.0051)
    assert found["free"] != found["held"]
    assert [text.partition(" ")[2][-8:] for text in found["words"]] == ["in force"] * 4
    assert found["earlier"][3].endswith("not in force at this step")
    assert "the model, with its clamps, says" in found["finding"]
    assert found["named"] == "biases and clamps"
    *shares, total = found["shares"]
    assert sum(shares) == pytest.approx(total, abs=0.01 * len(shares))
    assert "logit lens reads the stream alone" in found["note"]


def _asked(python: str) -> list[list[int]]:
    return json.loads("[[" + python.partition("batch([[")[2].partition("]]")[0] + "]]")


@needs_chromium
@pytest.mark.thorough
def test_a_page_says_which_clamp_it_cannot_show(runs, tmp_path):
    _, averaged = runs
    script = """
    const panel = [...document.querySelectorAll(".panel")].find((one) => one.textContent.startsWith("Clamps of"));
    return { said: panel.textContent, switches: panel.querySelectorAll("select").length, state: explorer.state.clamps };
    """
    found, complaints = seen(ms.explore(averaged).html(), tmp_path, script, fragment="clamps=with")
    assert not complaints
    assert "The model is shown without its clamps. This page does not compute L0H0=mean" in found["said"]
    assert (found["switches"], found["state"]) == (0, "")


def test_a_clamped_run_opens_with_its_clamps_or_is_refused(runs):
    held, averaged = runs
    assert 'location.hash = "clamps=with"' in ms.explore(ms.analyses.with_clamps(held)).html()
    assert 'location.hash = "clamps=with"' not in ms.explore(held).html()
    with pytest.raises(InputError, match=r"with its clamps\. This page does not compute L0H0=mean"):
        ms.explore(ms.analyses.with_clamps(averaged))
    clamped = ms.Subject(model=ms.analyses.with_clamps(held).hooked(), task=held.spec.task, seed=0)
    with pytest.raises(InputError, match="permanent hooks"):
        ms.explore(clamped)


def test_a_task_without_a_script_for_its_ideal_parts_is_refused():
    spec = small_spec("v3", changes={"recipe.clamps": (Clamp(ideal="copy"),), "model.n_layers": 2})
    spec = ms.RunSpec(task=WithParts().for_seed(0), model=spec.model, recipe=spec.recipe, seed=0)
    assert refusal("", spec) == "This page does not compute ideal copy: the task has no script for its ideal parts."
