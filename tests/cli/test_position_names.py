"""Whatever a command shows or writes of a run calls positions as the task does."""

import csv
import re
import shutil
from html import unescape
from pathlib import Path

import pytest
import xarray as xr

from mnemoscope.cli import main
from mnemoscope.cli.command import commands
from mnemoscope.cli.options import AnalysisOutputOptions
from mnemoscope.core.positions import TITLES, WORDS, position_names
from mnemoscope.core.presets import PRESETS, preset
from mnemoscope.models.run import find_runs, open_run
from mnemoscope.report.page import Page

SHORT = {
    "recipe.n_steps": 2,
    "recipe.batch_size": 16,
    "recipe.warmup_steps": 1,
    "recipe.metrics_every": 1,
    "recipe.checkpoint_steps": (1,),
}
PUZZLES = ("palindrome", "first-unique", "digit-sum", "sorted-list", "running-sum", "brackets")
SMALLER = {
    "in-context-bigrams": {"task.length": 12, "model.d_model": 16},
    "noisy-recall": {"task.length": 12, "model.d_model": 16, "task.n_tokens": 8},
    "factual-recall": {"task.length": 6, "task.n_subjects": 4, "task.n_relations": 3, "task.n_noise": 5},
    "modular-addition": {"task.modulus": 7},
    "palindrome": {"task.half": 4},
    "first-unique": {"task.n_shown": 8},
    "digit-sum": {},
    "sorted-list": {"task.length": 4},
    "running-sum": {"task.length": 8},
    "few-shot": {"task.n_classes": 6, "model.d_model": 16, "model.n_heads": 2},
    "brackets": {"task.max_pairs": 3, "model.n_layers": 2, "model.d_model": 16, "model.d_mlp": 8},
    "rasp": {},
    "markov-chains": {"task.length": 12},
}
"""Tasks that are faster so, by name."""
FIRST = {PRESETS.get(name).task.name: name for name in reversed(PRESETS.names())}
"""The first preset of every task."""
LEARNED = {
    "permutation-lookup": "zoo:v3-4-values-quick/seed-64",
    "retrieval": "zoo:retrieval-2-1-layer-quick/seed-16",
    "k-hop": "zoo:k-hop-4-2-layers-quick/seed-16",
}
"""Models that have learned their task; of the others, whose sequences are long, short ones, trained for two steps."""
TYPED = {
    "permutation-lookup": "1 2 3 4 2 1 1",
    "k-hop": "0 1 2 3 1 0 2 3 3 2 1 0 0 2 1 3",
    "factual-recall": "n1 s1 n0 r2 ?",
    "in-context-bigrams": "the cat",
    "noisy-recall": "1 2 1 3 1",
    "retrieval": "1",
    "modular-addition": "4 5",
    "palindrome": "1 2 3 4 4 3 2 1",
    "first-unique": "abcab",
    "digit-sum": "1234 + 567",
    "sorted-list": "9 3 50 12",
    "running-sum": "3 -2 -4 5",
    "brackets": "(())()",
    "few-shot": "x1 y2 x3 y1 x3",
    "rasp": "3 0 1 0 2 0",
    "markov-chains": "abbab",
}
"""A sequence of every task."""
TOKENS = dict.fromkeys(
    ("circuits", "discover", "neurons", "probe", "shapley", "truncate", "interchange"), "is about tokens"
)
"""Commands that are refused for vectors."""
LOOKUP = {"interchange": "reads runs of permutation-lookup"}
PAIRS = ("patch", "patch attention", "edges", "discover")
SHOWN = dict.fromkeys(PAIRS, "needs sequences in which a trigger's output")
"""Commands that are refused for pairs that short sequences do not have."""
NO_MLP = {"neurons": "the model has no MLP"}
UNTRAINED = dict.fromkeys(PAIRS, "tells clean from corrupted sequences apart")
"""Commands that are refused for models that have learned nothing."""
REFUSED = {
    "permutation-lookup": {},
    "retrieval": TOKENS,
    "k-hop": {**TOKENS, "heads": "attends in both directions"},
    "factual-recall": {**LOOKUP, **UNTRAINED},
    "in-context-bigrams": {**LOOKUP, **SHOWN},
    "noisy-recall": {**LOOKUP, **SHOWN},
    "modular-addition": {**LOOKUP, **UNTRAINED, "heads": "attends in both directions"},
    **{name: {**LOOKUP, **UNTRAINED, **NO_MLP} for name in PUZZLES[:4]},
    "running-sum": {**LOOKUP, **UNTRAINED},
    "few-shot": {
        **LOOKUP,
        **{name: words for name, words in UNTRAINED.items() if name != "discover"},
        **NO_MLP,
        "circuits": "positions that are added to the residual stream",
    },
    "brackets": {**LOOKUP, "heads": "attends in both directions"},
    "markov-chains": {**LOOKUP, **UNTRAINED, **NO_MLP, "circuits": "positions that are added to the residual"},
    "rasp": {**LOOKUP, **UNTRAINED, "heads": "attends in both directions"},
}
"""What every task has no answer to, and a part of the line that says why; all else is answered."""
CHEAP = {
    "patch": ["--n", "12", "--over", "layer", "pos"],
    "patch attention": ["patch", "--n", "12", "--kind", "pattern", "--over", "layer", "head", "query", "key"],
    "ablate": ["--n", "12", "--what", "positions"],
    "ablate paths": ["ablate", "--n", "12", "--what", "paths"],
    "neurons": ["--n", "32", "--sampled"],
    "probe": ["--n", "64", "--latents", "target", "--sites", "resid_post"],
    "discover": ["--n", "8", "--n-random", "2"],
    "learning-coefficient": ["--n", "12", "--n-chains", "2", "--burn-in", "20", "--draws", "10"],
    "interchange": ["--n", "16", "--n-pairs", "16", "--n-random", "2"],
    "edges": ["--n", "8"],
    "evaluate": ["--n-samples", "16"],
    "report": [],
    "evaluate --checkpoints": ["evaluate", "--checkpoints"],
}
"""Words after the runs; of other commands `--n 12`. What has two words is a command that is called differently."""
APART = [
    name
    for name, command in commands().items()
    if issubclass(command.options, AnalysisOutputOptions) and not name.startswith("dictionary")  # results have no pos
]
ON_RUNS = [*dict.fromkeys((*APART, *CHEAP))]
BY_NUMBER = re.compile(r"\b(?:pos|position|query|key|source|\w+_pos) -?\d+\b|(?:H\d+|head) \d+→\d+\b")
"""A position that is called by its number."""


def named(task_name: str) -> bool:
    return bool(position_names(PRESETS.get(FIRST[task_name]).task))


CASES = [
    pytest.param(task, command, marks=() if named(task) and task == "permutation-lookup" else pytest.mark.thorough)
    for task in FIRST
    for command in (*ON_RUNS, "predict", "predict --out", "compare")
]


@pytest.fixture
def drawn(monkeypatch):
    """Every figure of every page."""
    figures = []
    add = Page.figure

    def figure(page, figure, caption=""):
        figures.append(figure)
        return add(page, figure, caption)

    monkeypatch.setattr(Page, "figure", figure)
    return figures


def called(command: str, task, run) -> list[str]:
    """The words of a command on a run."""
    if command.startswith("predict"):
        return ["predict", str(run.path), TYPED[task.name], *(["--out", "page.html"] if "--out" in command else [])]
    if command == "compare":
        beside = run.path.with_name(f"seed-{run.spec.seed + 1}")
        other = beside if beside.is_dir() else f"{run.path}@{run.steps[0]}"
        return ["compare", str(run.path), str(other), "--n", "12"]
    name, *words = CHEAP[command] if " " in command else [command, *CHEAP.get(command, ["--n", "12"])]
    rare = task.name in PUZZLES  # some of their skills are
    return [name, str(run.path), *("64" if rare and word.isdigit() and word != "2" else word for word in words)]


def texts_of(figure) -> list[str]:
    """All that stands in a figure in words."""
    found = [figure.layout.title.text, *(note.text for note in figure.layout.annotations)]
    for trace in figure.data:
        for part in (trace.name, trace.x, trace.y, trace.text if trace.type == "scatter" else None):
            values = [part] if isinstance(part, str) else [] if part is None else list(part)
            found += [value for value in values if isinstance(value, str)]
    return [text for text in found if text]


def check_axes(figure, positions) -> None:
    """Axes of positions have the one title, and the names as labels."""
    for side in "xy":
        for trace in figure.select_traces("heatmap"):
            axis = figure.layout[f"{side}axis{(trace[f'{side}axis'] or side)[1:]}"]
            assert axis.title.text not in WORDS or axis.title.text in TITLES.values(), axis.title.text
            if axis.title.text in TITLES.values() and positions:
                labels = axis.ticktext or trace[side]
                assert {str(label) for label in labels} <= set(positions), axis.title.text


def check_arrays(place: Path, positions) -> None:
    """Positions along an axis have their names beside them."""
    for file in place.rglob("*.nc"):
        tree = xr.open_datatree(file, engine="h5netcdf")
        for node in tree.subtree:
            data = node.to_dataset()
            for axis in WORDS:
                if axis in data.dims and axis in data.coords and data[axis].dtype.kind in "iu":
                    assert (f"{axis}_name" in data.coords) == bool(positions), (file.name, axis)
                    if positions:
                        at = [positions[number] for number in data[axis].values.tolist()]
                        assert data[f"{axis}_name"].values.tolist() == at
        tree.close()


@pytest.mark.drawn(24)
@pytest.mark.parametrize(("task_name", "command"), CASES)
def test_positions_are_called_by_their_names(task_name, command, drawn, trained_once, tmp_path, monkeypatch, capsys):
    place = tmp_path / "results"
    place.mkdir()
    monkeypatch.chdir(place)
    if task_name in LEARNED:
        (run,) = find_runs(LEARNED[task_name])
    else:
        name = FIRST[task_name]
        recipe = next(iter(PRESETS.get(name).recipes))
        spec = preset(name, recipe, 0, changes={**SHORT, **SMALLER[task_name]})
        run = open_run(shutil.copytree(trained_once(f"positions/{task_name}", spec).path, tmp_path / "run"))
        if command == "report":  # which says more of a run that was followed
            main(["evaluate", "--checkpoints", str(run.path)])
    task = run.spec.task
    positions = position_names(task)
    if command in REFUSED[task_name]:
        with pytest.raises(SystemExit):
            main(called(command, task, run))
        assert REFUSED[task_name][command] in capsys.readouterr().err
        return
    main(called(command, task, run))
    out = capsys.readouterr().out
    check_arrays(place, positions)
    for figure in drawn:
        check_axes(figure, positions)
    cells = [cell for file in place.rglob("*.csv") for row in csv.reader(file.open()) for cell in row]
    paragraphs = [
        unescape(text)
        for file in place.rglob("*.html")
        for text in re.findall(r"<(?:p|h\d|td|th|caption|summary|figcaption)[^>]*>([^<]+)<", file.read_text())
    ]
    texts = [out, *cells, *paragraphs, *(text for figure in drawn for text in texts_of(figure))]
    wrong = [match[0] for text in texts for match in BY_NUMBER.finditer(text)]
    assert not (positions and wrong), wrong[:5]
    assert not [match for match in wrong if "_" in match]
