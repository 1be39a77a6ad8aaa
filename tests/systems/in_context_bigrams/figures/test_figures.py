import numpy as np
import pytest
import xarray as xr

from mnemoscope.analyses.stacking import concatenate
from mnemoscope.models import constructed
from mnemoscope.systems.in_context_bigrams.analyses import induction_memories, marked_patterns, memory_maps
from mnemoscope.systems.in_context_bigrams.figures import (
    MEASURES,
    MEMORY_NAMES,
    before_and_after,
    losses,
    mark_triggers,
    memory_bars,
    memory_heatmaps,
    outputs,
    schedules,
    settings,
)
from tests.support import random_model
from tests.systems.in_context_bigrams.analyses.test_evaluation import given
from tests.systems.in_context_bigrams.analyses.test_heads import SEQUENCE

STEPS = [0, 10, 20]
NAMES = (
    *MEASURES,
    *("loss_in_context", "loss_global", "feed_forward_kl"),
    *("accuracy_in_context_uniform_outputs", "accuracy_in_context_bigram_outputs"),
)


def tracked(seeds=(100, 101)):
    """Measures that differ from one another, from seed to seed and from step to step."""
    values = np.random.default_rng(0).random((len(NAMES), len(seeds), 3))
    measures = {name: (("seed", "step"), row) for name, row in zip(NAMES, values, strict=True)}
    return xr.Dataset(measures, coords={"seed": list(seeds), "step": STEPS})


def lines(figure, name):
    return [trace for trace in figure.data if trace.name == name]


def test_bars_are_means_and_dots_are_seeds():
    models = {seed: random_model(n_layers=2, mlp=False, seed=seed) for seed in (100, 101)}
    found = concatenate("seed", {seed: induction_memories(model, n_draws=2) for seed, model in models.items()})
    figure = memory_bars(found)
    bars = [trace.y[0] for trace in figure.data if trace.type == "bar"]
    dots = [trace.y for trace in figure.data if trace.type == "scatter"]
    order = ["previous token, early", "previous token", "remapped copy", "copied token"]
    assert bars == pytest.approx(found.recall.sel(memory=order).mean("seed").values)
    np.testing.assert_array_equal(dots[2], found.recall.sel(memory="remapped copy"))
    assert [shape.y0 for shape in figure.layout.shapes] == pytest.approx(found.chance.sel(memory=order)[0].values)


def test_stored_memories_have_a_diagonal():
    maps = memory_maps(constructed.induction(6, 12), tokens=[5, 1, 0])
    figure = memory_heatmaps(maps, n_pos=8)
    for trace, size in zip(figure.data, (7, 3, 3), strict=True):
        assert trace.z.shape == (size, size)
        np.testing.assert_array_equal(np.argmax(trace.z, 1), range(size))
    assert list(figure.data[1].y) == ["5", "1", "0"]
    named = memory_heatmaps(maps.assign_coords(symbol=("token_number", list("abcdef"))))
    assert list(named.data[2].x) == ["f", "b", "a"]
    assert list(named.data[0].x)[:2] == ["0", "1"]
    np.testing.assert_allclose(maps.copied_token.mean("logit"), 0, atol=1e-12)
    np.testing.assert_allclose(maps.copied_token.std("logit"), 1)


def test_patterns_stand_before_and_after_with_their_tokens_coloured():
    example = marked_patterns(constructed.induction(6, 12), SEQUENCE, [*"ab<def"]).isel(example=0)
    assert example.role.values.tolist() == ["trigger", "output", "trigger", "output", "other", "trigger", "output"]
    figure = before_and_after({"step 0": example, "step 9": example}, n_pos=5)
    assert [note.text for note in figure.layout.annotations] == [
        f"layer {layer}, step {step}" for step in (0, 9) for layer in (1, 2)
    ]
    np.testing.assert_array_equal(figure.data[1].z, example.pattern.isel(layer=1, head=0)[:5, :5])
    ticks = figure.layout.xaxis.ticktext
    assert [tick.startswith("<b style") for tick in ticks] == [True] * 4 + [False]
    assert mark_triggers(example).token.values.tolist()[:5] == ["▸a", "b◂", "▸a", "b◂", "f"]


def test_what_is_trigger_and_output_at_once_has_both_marks_and_html_is_escaped():
    batch = given(0, 0, 0, 0, 0, triggers=[0, 4], outputs=[0, 1])
    example = marked_patterns(constructed.induction(6, 12), batch, [*"<bcdef"]).isel(example=0)
    assert example.role.values.tolist()[1] == "output and trigger"
    assert mark_triggers(example).token.values[1] == "▸<◂"
    assert "&lt;</b>" in before_and_after({"now": example}).layout.xaxis.ticktext[1]


def test_schedules_show_means_ranges_and_the_step_of_release():
    joint, late = tracked(), tracked().assign_coords(step=[0, 20, 40])
    figure = schedules({"joint": joint, "late": late}, freed={"late": 15})
    names = {*MEMORY_NAMES.values(), "in-context accuracy"}
    assert {trace.name for trace in figure.data if trace.name} == names
    first, second = lines(figure, "in-context accuracy")
    np.testing.assert_allclose(first.y, joint.accuracy_in_context.mean("seed"))
    assert list(second.x) == [0, 20, 40]
    band = next(trace for trace in figure.data if trace.fill == "toself")
    np.testing.assert_allclose(band.y[:3], joint.recall_copied_token.max("seed"))
    np.testing.assert_allclose(band.y[3:], joint.recall_copied_token.min("seed")[::-1])
    assert [shape.x0 for shape in figure.layout.shapes] == [15]


def test_one_seed_has_no_range():
    figure = losses({"random": tracked((100,))})
    assert len(figure.data) == 2
    np.testing.assert_allclose(lines(figure, "in-context")[0].y, tracked((100,)).loss_in_context[0])


def test_outputs_are_crossed():
    uniform, bigram = tracked(), tracked() * 0.5
    figure = outputs({"uniform": uniform, "bigram": bigram})
    (crossed,) = lines(figure, "trained on bigram, tested on uniform")
    np.testing.assert_allclose(crossed.y, bigram.accuracy_in_context_uniform_outputs.mean("seed"))
    assert crossed.line.dash == "dash"
    recall, divergence = lines(figure, "trained on uniform")
    np.testing.assert_allclose(recall.y, uniform.recall_copied_token.mean("seed"))
    np.testing.assert_allclose(divergence.y, uniform.feed_forward_kl.mean("seed"))


def test_settings_show_the_end_and_leave_out_what_is_not_there():
    some, other = tracked(), tracked((100,))
    other["recall_copied_token"] = other.recall_copied_token * np.nan
    (heat,) = settings({"two seeds": some, "one layer": other}).data
    np.testing.assert_allclose(heat.z[0, 4], some.accuracy_in_context[:, -1].mean())
    low, high = (float(of) for of in (some.recall_copied_token[:, -1].min(), some.recall_copied_token[:, -1].max()))
    assert heat.text[0][0].endswith(f"{low:.2f} – {high:.2f}</sub>")
    assert heat.text[1][0] == ""
    assert heat.text[1][1] == f"{float(other.recall_remapped_copy[0, -1]):.2f}"
