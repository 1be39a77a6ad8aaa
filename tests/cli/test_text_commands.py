"""Runs of in-context bigrams and noisy recall at the command line, on a text of our own."""

import csv
import json
import shutil
from pathlib import Path

import pytest
import xarray as xr

from mnemoscope.claims.claim import CLAIMS
from mnemoscope.cli import main, trials
from mnemoscope.core.presets import SYSTEMS, System, TrainingSet
from mnemoscope.models import zoo
from mnemoscope.models.run import find_runs
from mnemoscope.systems.in_context_bigrams.markov import count_bigrams

TEXT = "she sells sea shells\nby the sea shore\n" * 3
SMALL = {
    "task.length": 16,
    "task.n_triggers": 2,
    "model.d_model": 8,
    "model.d_mlp": 8,
    "recipe.n_steps": 6,
    "recipe.batch_size": 8,
    "recipe.metrics_every": 3,
    "recipe.checkpoint_steps": (3,),
}
SET = [f"{name}={list(value) if isinstance(value, tuple) else value}".replace(" ", "") for name, value in SMALL.items()]
TRAIN = ["train", "--corpus", "text.txt", "--out", "runs", "--set", *SET]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Runs of two tasks in `runs`, and the text that they know."""
    place = tmp_path_factory.mktemp("texts")
    (place / "text.txt").write_text(TEXT)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        main([*TRAIN, "--preset", "birth-fixed", "noisy-recall", "--seeds", "100,101"])
    return place


@pytest.fixture(autouse=True)
def place(trained, tmp_path, monkeypatch, as_installed):
    """Every test has the runs to itself."""
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def birth(place):
    return str(next((place / "runs").glob("birth*")).relative_to(place))


@pytest.fixture
def noisy(place):
    return str(next((place / "runs").glob("noisy*")).relative_to(place))


def refused(words, capsys) -> str:
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 2
    error = capsys.readouterr().err
    assert len(error.strip().splitlines()) == 1
    return error


def test_a_run_on_a_text_says_what_text_it_was(birth):
    first, second = find_runs(birth)
    assert first.spec.task.counts == second.spec.task.counts == count_bigrams(TEXT)
    assert first.spec.task.symbols == "".join(sorted(set(TEXT)))
    kept = json.loads((first.path / "run.json").read_text())["task"]["counts"]
    assert [list(pair) for pair in count_bigrams(TEXT)] == kept


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (None, "cannot be read"),
        (b"", "2 to 1024 symbols; got 0"),
        (b"aaaa", "2 to 1024 symbols; got 1"),
        (b"\xff\xfe\x00a", "no text in UTF-8"),
        (b"ab\x00ab", "NUL"),
        (b"abab", "task.n_triggers must be 1;"),
    ],
)
def test_what_is_no_text_is_refused_before_anything_is_written(content, named, place, capsys):
    if content is not None:
        (place / "other.txt").write_bytes(content)
    words = ["train", "--preset", "birth-fixed", "--corpus", "other.txt", "--out", "new"]
    assert named in refused(words, capsys)
    assert named in refused(["reproduce", "birth", "--corpus", "other.txt", "--out", "new"], capsys)
    assert not (place / "new").exists()


def test_a_text_is_for_tasks_that_are_made_of_one(capsys):
    error = refused(["train", "--preset", "v1", "--corpus", "text.txt"], capsys)
    assert "birth-fixed" in error
    assert error.strip().endswith("got v1")
    assert "got v3" in refused(["reproduce", "tiny-recall", "--corpus", "text.txt"], capsys)


def test_evaluate_tells_classes_apart_and_writes_tables(birth, place, capsys):
    main(["evaluate", birth, "--n-samples", "20", "--out", "tables"])
    out = capsys.readouterr().out
    assert "in context" in out
    assert "20 samples" in out
    label = Path(birth).name
    evaluation = xr.open_dataset(place / "tables" / label / "evaluation.nc")
    assert [evaluation.sizes[dim] for dim in ("seed", "position_class", "reference")] == [2, 5, 3]
    rows = list(csv.DictReader((place / "tables" / label / "accuracy.csv").open()))
    (told,) = [row for row in rows if row["position class"] == "in context"]
    mean = float(evaluation.accuracy.sel(split="test", position_class="in_context").mean())
    assert told["model"].startswith(f"{mean:.4f} [")
    assert float(told["in context"].split()[0]) >= mean


def test_predict_shows_symbols_beside_the_ideal_learner(birth, noisy, capsys):
    main(["predict", f"{birth}/seed-100", "she\nsea"])
    lines = capsys.readouterr().out.splitlines()
    assert "she⏎sea" in lines[0]
    tokens = [line.split()[1] for line in lines if line.strip()][-7:]
    assert tokens == list("she⏎sea")
    assert "in context: likeliest" in " ".join(lines)
    main(["predict", f"{noisy}/seed-100", "se¤he"])
    assert "¤" in capsys.readouterr().out.splitlines()[-3]
    assert "no symbol 'x'" in refused(["predict", f"{birth}/seed-100", "box"], capsys)
    assert "from 1 to 16" in refused(["predict", f"{birth}/seed-100", "e" * 17], capsys)


def test_view_labels_tokens_with_their_symbols(noisy, place):
    main(["predict", f"{noisy}/seed-100", "she sells¤", "--step", "3", "--out", str(place / "view.html")])
    page = (place / "view.html").read_text()
    assert '"tokens": ["s", "h", "e", "\\u2423"' in page
    assert "CircuitsVis.render" in page


@pytest.mark.full
def test_follow_measures_once_and_the_report_shows_it(birth, place, capsys):
    main(["evaluate", "--checkpoints", birth])
    out = capsys.readouterr().out
    assert "followed 2 runs; 0 were complete" in out
    assert "accuracy in context" in out
    runs = find_runs(birth)
    assert all(run.trajectory().step.values.tolist() == list(run.steps) == [0, 3, 6] for run in runs)
    first, second = runs
    first.write_trajectory(first.trajectory().isel(step=[0, 1]))  # a checkpoint is missing
    written = second.trajectory_path.stat().st_mtime_ns
    main(["evaluate", "--checkpoints", birth])
    assert "followed 1 run; 1 was complete" in capsys.readouterr().out
    assert first.trajectory().sizes["step"] == 3
    assert second.trajectory_path.stat().st_mtime_ns == written
    main(["report", birth, "--out", "after.html"])
    page = (place / "after.html").read_text()
    assert "Not tracked yet." not in page
    assert '<h2 id="memories"' in page
    assert "In-context bigrams" in page


def test_follow_takes_tasks_with_and_without_measures_of_their_own(tiny, birth, place, capsys):
    shutil.copytree(tiny.path, place / "lookup")
    main(["follow", "lookup", f"{birth}/seed-100"])
    out = capsys.readouterr().out
    assert "followed 2 runs; 0 were complete" in out
    lookup, text = (dict(run.trajectory()) for run in (*find_runs("lookup"), *find_runs(f"{birth}/seed-100")))
    assert set(lookup) == {"accuracy_elimination", "accuracy_recall", "loss_elimination", "loss_recall"}
    assert {"induction_score", "feed_forward_kl"} < set(text)
    titles = [line.split(",")[0] for line in out.splitlines() if "onsets of measures" in line]
    assert sorted(titles) == sorted([tiny.label, Path(birth).name])


def test_follow_refuses_runs_that_have_not_come_to_their_end(birth, capsys):
    for run in find_runs(birth):
        (run.path / "done").unlink()
    assert "none of the runs is finished" in refused(["evaluate", "--checkpoints", birth], capsys)


@pytest.mark.full
def test_runs_of_several_tasks_stand_on_one_page(noisy, birth, place):
    main(["report", f"{birth}/seed-100", f"{noisy}/seed-100", "--out", "both.html"])
    page = (place / "both.html").read_text()
    assert page.count("Not tracked yet.") == 2
    assert "<title>Trained models</title>" in page
    assert page.index('<h1 class="part" id="in-context-bigrams') < page.index('<h1 class="part" id="noisy-recall"')
    assert page.count('id="training"') == page.count('id="training-2"') == 1


def test_the_zoo_without_a_system_is_said_in_a_sentence(place, monkeypatch, tiny, capsys):
    from mnemoscope.models.packing import pack

    monkeypatch.setenv("MNEMOSCOPE_CACHE", str(place / "cache"))
    monkeypatch.setattr(zoo, "folders", lambda: [place / "archives"])
    monkeypatch.setattr(zoo, "missing", list)
    assert "no trained runs come with the installed systems" in refused(["claims", "run", "B1", "--zoo"], capsys)
    pack([tiny], place / "archives")
    error = refused(["claims", "run", "B1", "--zoo"], capsys)
    assert "the zoo holds no models that the claims on birth are about" in error
    assert not (place / "verdicts").exists()


def test_claims_whose_models_the_zoo_does_not_hold_are_named():
    from mnemoscope.cli.trials import claims_for_zoo

    claims = [CLAIMS.get(name) for name in ("R1", "R2", "R3")]
    layers = ("1-layer", "2-layers", "3-layers")
    there, sentences = claims_for_zoo(claims, find_runs([f"zoo:retrieval-2-{n}-quick" for n in layers]))
    assert [claim.id for claim in there] == ["R1", "R3"]
    assert sentences == ["the zoo holds no models that R2 is about; train some, and name them with --runs"]


@pytest.mark.full
def test_reproduce_follows_reports_and_asks_the_claims_of_the_text(place, monkeypatch, capsys):
    part = TrainingSet(recipe="quick", presets=("birth-fixed",), seeds=(100,), changes=tuple(SMALL.items()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SYSTEMS._items, "birth", System(summary="one small run", quick=(part,), full=()))
        patch.setattr(trials, "claims_named", lambda _: [CLAIMS.get("B1")])
        main(["reproduce", "birth", "--corpus", "text.txt", "--jobs", "1"])
    out = capsys.readouterr().out
    assert "What was learned" in out
    assert "followed 1 run" in out
    assert "no claim is made of such models" in out
    assert "its verdicts are left out" in out
    (run,) = find_runs("reports/birth/runs")
    assert run.spec.task.counts == count_bigrams(TEXT)
    assert run.trajectory() is not None
    assert (place / "reports/birth/report.html").exists()
    assert list((place / "reports/birth/arrays").glob("*/trajectory.nc"))
