"""Features of dictionaries on the page: beside the analyses of the same names, and by clicks."""

import re
from dataclasses import asdict
from urllib.parse import quote

import pytest
import torch

import mnemoscope as ms
from mnemoscope.analyses import neuron_activity, neuron_keys, neuron_values, top_inputs
from mnemoscope.cli import main
from mnemoscope.explorer.packing import MAX_PARAMETERS, Packer, page_configuration
from tests.dictionaries import N_FEATURES, random_dictionary
from tests.explorer.chromium import computed, needs_chromium
from tests.explorer.test_page import seen
from tests.support import foreign_model, random_model

HARNESS = """
const { tensors, run, tokens, answer, foil, sequences, unit } = content;
const model = opener(tensors)(run, 0);
const pass = forward(model, tokens);
const pos = tokens.length - 1;
return {
  keys: neuronKeys(model, 1, unit, "feature"), value: [...neuronValue(model, 1, unit, "feature")],
  top: atOnce(topInputs(model, sequences, { kind: "feature", layer: 1, neuron: unit, pos: 4 })),
  shares: unitShares(model, pass, pos, answer, foil, 1, "feature"),
  error: errorShare(model, pass, pos, answer, foil, 1),
};
"""
SUBJECTS = {
    "LN, mlp_in": (lambda: random_model(n_layers=2), "mlp_in"),
    "LN, resid_mid": (lambda: random_model(n_layers=2), "resid_mid"),
    "RMS, mlp_in": (lambda: foreign_model(normalization_type="RMS"), "mlp_in"),
    "none, mlp_out": (lambda: random_model(n_layers=2, normalization="none"), "mlp_out"),
}


@needs_chromium
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.thorough) if i else name for i, name in enumerate(SUBJECTS)]
)
def test_what_is_told_of_features_is_what_the_analyses_say(name, tmp_path):
    build, reads = SUBJECTS[name]
    model = build()
    split = ms.with_dictionaries(model, [random_dictionary(model, reads=reads, activation="topk", k=4)])
    of_layer = {"layer": 1, "units": "features"}
    drawn = torch.randint(6, (20, 5), generator=torch.Generator().manual_seed(0))
    batch = ms.Batch(inputs=drawn, targets=drawn, scored=torch.arange(5).expand(20, 5) == 4)
    activity = neuron_activity(split, batch, **of_layer)
    unit, answer, foil = int(activity.activation.mean(0).argmax()), 3, 1
    packer = Packer()
    run = {"cfg": page_configuration(split), "checkpoints": [packer.checkpoint(split)]}
    run["dictionaries"] = [asdict(one) for one in packer.dictionaries(split)]
    content = {"tensors": packer.tensors, "run": run, "tokens": drawn[0].tolist(), "sequences": drawn.tolist()}
    content |= {"answer": answer, "foil": foil, "unit": unit}
    found = computed(("weights", "reading", "neurons"), HARNESS, content, tmp_path)

    if reads == "mlp_out":
        assert found["keys"] is None
        with pytest.raises(ms.InputError, match="reads mlp_out"):
            neuron_keys(split, **of_layer)
    else:
        keys = neuron_keys(split, neurons=[unit], **of_layer).isel(neuron=0)
        for kind in ("token", "pos"):
            assert list(found["keys"][kind].values()) == pytest.approx(keys[f"key_{kind}"].values, abs=1e-4)
            for head, own in enumerate(found["keys"]["heads"]):
                assert list(own[kind].values()) == pytest.approx(keys[f"key_head_{kind}"].values[head], abs=1e-4)
    value = neuron_values(split, neurons=[unit], **of_layer).value.values[0]
    assert found["value"] == pytest.approx(value, abs=1e-4)
    top = top_inputs(activity, n=20).isel(neuron=unit)
    active = top.where(top.active, drop=True)
    assert 0 < len(found["top"]) == active.sizes["rank"]
    assert [one["row"] for one in found["top"]] == active.sequence.values.astype(int).tolist()
    assert [one["activation"] for one in found["top"]] == pytest.approx(active.activation.values, abs=1e-4)
    one = batch.select(slice(0, 1))
    chosen, other = (torch.full_like(one.inputs, token) for token in (answer, foil))
    exact = ms.logit_attribution(split, one, by="feature", answer=chosen, foil=other)
    assert found["shares"] == pytest.approx(exact.attribution.values.flatten(), abs=1e-4)
    assert sum(share != 0 for share in found["shares"]) <= 4
    with torch.no_grad():
        _, cache = split.run_with_cache(one.inputs)
        error = cache["blocks.1.hook_error"][0, -1]
        if name != "none, mlp_out":
            centre = error.mean() if name.startswith("LN") else 0
            error = (error - centre) / cache["ln_final.hook_scale"][0, -1] * model.ln_final.w
        told = float(error @ (model.W_U[:, answer] - model.W_U[:, foil]))
    assert found["error"] == pytest.approx(told, abs=1e-4)


SPARSE = {"activation": "topk", "k": 4}


@pytest.fixture(scope="module")
def with_features(tiny, tmp_path_factory):
    """A run with a dictionary on disk, and the file."""
    file = tmp_path_factory.mktemp("dictionaries") / "dictionary-00.safetensors"
    ms.save_dictionary(random_dictionary(tiny.hooked(), layer=0, reads="mlp_in", **SPARSE), file)
    return ms.models.run_with_dictionaries(tiny, [file]), file


CLICKS = r"""
const labels = [...document.querySelectorAll("label.choose")];
const list = labels.find((one) => one.textContent.startsWith("look at")).firstElementChild;
const words = document.querySelector(".stream summary").textContent;
const neurons = document.querySelectorAll(".neurons button").length;
list.value = "features";
list.dispatchEvent(new Event("change"));
const squares = [...document.querySelectorAll(".neurons button")];
squares[0].click();
const { neuron } = explorer.state;
const wait = () => new Promise((done) => setTimeout(done, 400));
await wait();
const needed = document.querySelector(".needed").textContent;
document.querySelector(".neuron .switch").click();
await wait();
const again = document.querySelector(".needed").textContent;
document.querySelector(".together .switch").click();
const box = document.querySelector(".actions .choose input");
const { state } = explorer;
const found = {
  words, neurons, squares: squares.length, neuron, needed, again, units: state.units, box: box.value,
  card: document.querySelector(".neuron").textContent, edits: state.edits, pos: state.pos,
  python: document.getElementById("python").textContent, commands: document.getElementById("commands").textContent,
  list: [...document.querySelectorAll(".edits li")].map((one) => one.textContent),
  said: [...document.querySelectorAll("table.says tr")].slice(1).map((row) => row.cells[2].textContent),
  tokens: [...document.querySelectorAll("table.says th[scope=row]")].map((cell) => Number(cell.textContent)),
};
box.value = "11";
box.dispatchEvent(new Event("change"));
return { ...found, typed: explorer.state.neuron, none: explorer.fragment().includes("units=features") };
"""


@needs_chromium
@pytest.mark.thorough
def test_features_stand_beside_neurons_and_are_switched_off_as_in_python(with_features, tmp_path, capsys):
    run, file = with_features
    found, complaints = seen(ms.explore(run).html(), tmp_path, CLICKS, fragment="neuron=0.3&removal=zero")
    assert not complaints
    assert found["words"] == f"its {run.hooked().cfg.d_mlp} neurons, and {N_FEATURES} features of random"
    assert found["neurons"] == run.hooked().cfg.d_mlp
    assert 0 < found["squares"] <= 4, "those that are active"
    assert found["neuron"] == f"0.{found['box']}"
    assert f"feature {found['box']} of random, L0: active at" in found["card"]
    assert re.search(r"a token, through .*it raises, and lowers, the logit of", found["card"])
    assert "Most active, of the page's 256 sequences" in found["card"]
    assert found["needed"] == found["again"]
    assert re.search(
        r"Switched off \(zero\): the probability of \d goes from \S+ to \S+, and its logit", found["needed"]
    )
    unit = int(found["box"])
    assert found["edits"] == [
        {"kind": "zero", "site": {"kind": "feature", "layer": 0, "neuron": unit}},
        {"kind": "zero", "site": {"kind": "error", "layer": 0}},
    ]
    assert [words.rstrip("×") for words in found["list"][:2]] == [
        f"L0 feature {unit}: zero",
        "L0 error of the dictionary: zero",
    ]
    names = {}
    exec(found["python"], names)
    capsys.readouterr()
    expected = names["logits"][found["pos"]].softmax(-1)
    assert [float(p) for p in found["said"]] == pytest.approx(expected[found["tokens"]].tolist(), abs=0.0051)
    assert f"--dictionary '{file}' --step" in found["commands"]
    assert "--layer 0 --units features" in found["commands"]
    assert (found["typed"], found["none"]) == ("0.11", True)


@needs_chromium
@pytest.mark.thorough
def test_an_address_without_its_dictionary_shows_neurons(tiny, tmp_path):
    edits = quote('[{"kind":"zero","site":{"kind":"feature","layer":0,"neuron":1}}]')
    script = "const { state } = explorer; return [state.units, state.neuron, state.edits];"
    fragment = f"units=features&neuron=0.2&edits={edits}"
    found, complaints = seen(ms.explore(tiny).html(), tmp_path, script, fragment=fragment)
    assert not complaints
    assert found == ["", "0.2", []]


@needs_chromium
@pytest.mark.thorough
@pytest.mark.parametrize("width", [1400, 500])
def test_features_fit_on_the_page(with_features, tmp_path, width):
    script = r"""
    return {
      wide: document.documentElement.scrollWidth > document.documentElement.clientWidth,
      unnamed: [...document.querySelectorAll("#explorer button, #explorer select, #explorer input")]
        .filter((one) => !(one.textContent.trim() || one.ariaLabel || one.title || one.labels?.length)).length,
      odd: /\[object|undefined|NaN/.test(document.querySelector("#explorer").textContent),
    };
    """
    page = ms.explore(with_features[0]).html()
    found, complaints = seen(page, tmp_path, script, fragment="units=features&neuron=0.3", width=width)
    assert not complaints
    assert found == {"wide": False, "unnamed": 0, "odd": False}


@needs_chromium
@pytest.mark.thorough
def test_a_model_without_mlp_shows_the_features_with_its_last_head(tmp_path):
    model = foreign_model(attn_only=True)
    split = ms.with_dictionaries(model, [random_dictionary(model, "resid_post", **SPARSE)])
    tokens = torch.randint(model.cfg.d_vocab, (8, 5), generator=torch.Generator().manual_seed(0))
    script = """
    const summaries = [...document.querySelectorAll(".stream summary")].map((one) => one.textContent);
    document.querySelector(".neuron .switch").click();
    const rows = [...document.querySelectorAll(".stream .share b")].map((b) => Number(b.textContent.replace("−", "-")));
    return { summaries, rows, card: document.querySelector(".neuron").textContent,
      biases: document.querySelector(".stream li:nth-last-child(2) .part").textContent };
    """
    page = ms.explore(split, tokens).html()
    found, complaints = seen(page, tmp_path, script, fragment="neuron=1.2&removal=zero")
    assert not complaints
    assert found["summaries"] == [f"{N_FEATURES} features of random"]
    assert "It reads resid_post" in found["card"]
    assert found["biases"] == "biases, and changes of the stream"
    *parts, total = found["rows"]
    assert sum(parts) == pytest.approx(total, abs=0.005 * len(parts) + 0.005)


def test_the_command_takes_dictionaries(with_features, tiny, tmp_path, capsys):
    out = tmp_path / "explorer.html"
    main(["explore", str(tiny.path), "--dictionary", str(with_features[1]), "--out", str(out)])
    assert "1 model" in capsys.readouterr().out
    text = out.read_text()
    assert f'"n":{N_FEATURES},"error":true' in text
    assert with_features[1].as_posix() in text


def test_dictionaries_count_as_parameters(tiny):
    model = tiny.hooked()
    n = MAX_PARAMETERS // model.cfg.d_model // 2
    wide = random_dictionary(model, layer=0)
    large = torch.zeros(n, model.cfg.d_model)
    fields = {**wide.settings, "w_enc": large, "w_dec": large, "b_enc": torch.zeros(n), "b_dec": wide.b_dec}
    with pytest.raises(ms.InputError, match="with their dictionaries"):
        page_configuration(ms.with_dictionaries(model, [ms.Dictionary(**fields)]))
