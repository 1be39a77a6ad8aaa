"""The commands about claims as a user types them."""

import json
import re
import shutil
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from mnemoscope.claims.claim import CLAIMS
from mnemoscope.cli import main
from mnemoscope.cli.trials import time_left
from mnemoscope.core.presets import Configuration
from mnemoscope.models.building import build
from mnemoscope.models.checkpoint import save_checkpoint
from mnemoscope.models.run import create_run

KEYS = {"id", "outcome", "share", "effect", "p", "reason"}


@pytest.fixture(autouse=True)
def empty_directory(tmp_path, monkeypatch, as_installed):
    monkeypatch.chdir(tmp_path)


def make_untrained_runs() -> str:
    """Runs called v1-published that learned nothing."""
    for seed in (0, 1):
        spec = Configuration(preset="v1", recipe="published").spec(seed)
        run = create_run(Path(f"runs/v1-published/seed-{seed:02d}"), spec)
        model = build(spec.model, d_vocab=spec.task.d_vocab, n_ctx=spec.task.n_ctx, seed=seed)
        last = spec.recipe.n_steps
        save_checkpoint(model, run.checkpoint_path(last), step=last)
        (run.path / "done").touch()
    return "runs"


@pytest.fixture
def untrained_runs() -> str:
    return make_untrained_runs()


@pytest.fixture(scope="module")
def trial(tmp_path_factory) -> tuple[Path, str]:
    """A directory where T1 was tried on untrained runs, and what was printed."""
    place, printed = tmp_path_factory.mktemp("trial"), StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(printed):
        patch.chdir(place)
        main(["claims", "run", "T1", "--runs", make_untrained_runs(), "--jobs", "1", "--out", "first"])
    return place, printed.getvalue()


@pytest.fixture
def tried(trial, tmp_path) -> str:
    """That directory for one test; what was measured in it is not measured again."""
    shutil.copytree(trial[0], tmp_path, dirs_exist_ok=True)
    return trial[1]


@pytest.fixture
def other_runs() -> str:
    """An untrained run of a configuration that T1 is not about, and one of T1's that is not finished."""
    for preset, seed in (("v2", 0), ("v1", 9)):
        spec = Configuration(preset=preset, recipe="published").spec(seed)
        run = create_run(Path(f"others/{preset}-published/seed-{seed:02d}"), spec)
        model = build(spec.model, d_vocab=spec.task.d_vocab, n_ctx=spec.task.n_ctx, seed=seed)
        save_checkpoint(model, run.checkpoint_path(0), step=0)
    (Path("others/v2-published/seed-00") / "done").touch()
    return "others"


@pytest.mark.full
def test_list_names_every_claim_and_its_rivals(capsys):
    main(["claims", "list"])
    text = capsys.readouterr().out
    assert all(name in text for name in CLAIMS.names())
    assert "T14-single" in text
    main(["claims", "list", "T14"])
    assert "T13" not in capsys.readouterr().out


@pytest.mark.full
def test_list_and_show_tell_the_verdicts_on_record(capsys):
    main(["claims", "list", "T14", "T7", "L1", "G1"])
    lines = [[cell.strip() for cell in line.split("│")] for line in capsys.readouterr().out.splitlines()]
    found = {line[1]: line[4] for line in lines if len(line) > 4 and line[1]}
    assert found == {
        "T14, headline": "REFUTED, 0 of 31",
        "T7": "SUPPORTED, 16 of 16",
        "L1": "not tried",
        "G1": "SUPPORTED, 25 of 25",
    }
    main(["claims", "show", "T14", "L1", "G1"])
    text = capsys.readouterr().out
    assert "REFUTED, 0 of 31 seeds, published recipe (experiments/2026-tiny-recall)" in text
    assert "SUPPORTED, 25 of 25 questions, SmolLM2-135M (experiments/2026-language-models)" in text
    assert "not tried" in text


def test_the_time_that_a_trial_still_takes():
    assert time_left(30, 0, 8) == ""
    assert time_left(30, 2, 8) == "about 0:01:30 left"


def test_show_tells_all_that_is_fixed(capsys):
    main(["claims", "show", "T14"])
    text = capsys.readouterr().out
    claim = CLAIMS.get("T14")
    assert claim.gate is not None
    assert claim.explanation is not None
    explained = [quantity.formula[:20] for quantity in claim.explanation.quantities.values()]
    words = ["32 seeds or more; a headline claim", "in more than half of the seeds, the effect is above 0", *explained]
    words += [control.name for control in claim.controls]
    assert all(word in text for word in [*words, *(rival.id for rival in claim.rivals), "resample"])


@pytest.mark.full
def test_register_writes_beside_the_claims_once(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("mnemoscope.claims.registration.package_of", lambda claim: tmp_path)
    main(["dev", "register", "T14"])
    assert "registered.json: T14" in "".join(capsys.readouterr().out.splitlines())
    assert list(json.loads((tmp_path / "registered.json").read_text())) == ["T14"]
    main(["dev", "register", "T14"])
    assert "registered.json: nothing new" in "".join(capsys.readouterr().out.splitlines())
    content = json.loads((tmp_path / "registered.json").read_text())
    content["T14"]["joined"] = "any"
    (tmp_path / "registered.json").write_text(json.dumps(content))
    main(["dev", "register", "T14", "--supersede", "a slip"])
    assert "superseded without a verdict: T14; add it with --verdicts" in capsys.readouterr().out
    trial = {"id": "T14", "outcome": "MIXED", "share": 0.5, "n": 32, "units": {"v3": {"recipe": "published"}}}
    (tmp_path / "verdicts.json").write_text(json.dumps([trial]))
    main(["dev", "register", "T14", "--verdicts", str(tmp_path)])
    assert "without a verdict" not in capsys.readouterr().out
    main(["claims", "show", "T14"])
    assert "MIXED (16 of 32, published recipe); superseded: a slip" in " ".join(capsys.readouterr().out.split())
    monkeypatch.setattr("mnemoscope.claims.registration.package_of", lambda claim: None)
    with pytest.raises(SystemExit):
        main(["dev", "register", "T14"])
    assert "claim T14 belongs to no package, where registered.json could lie" in capsys.readouterr().err


def test_check_measures_the_controls_and_refuses_what_is_registered_otherwise(tmp_path, monkeypatch, capsys):
    main(["dev", "check", "T5", "--jobs", "1"])
    assert "yes" in capsys.readouterr().out
    monkeypatch.setattr("mnemoscope.claims.registration.package_of", lambda claim: tmp_path)
    main(["dev", "register", "T5"])
    content = json.loads((tmp_path / "registered.json").read_text())
    control = next(iter(content["T5"]["values"].values()))
    control["loss_distance"] = [number + 1e-8 for number in control["loss_distance"]]
    (tmp_path / "registered.json").write_text(json.dumps(content))
    with pytest.raises(SystemExit) as ended:
        main(["dev", "check", "T5", "--jobs", "1"])
    assert ended.value.code == 2
    printed = capsys.readouterr()
    assert "otherwise" in printed.out
    assert "T5: not as registered: values" in " ".join(printed.out.split())
    assert "not as registered: T5; where other numbers are meant, raise the claim's version" in printed.err


@pytest.mark.full
def test_run_writes_verdicts_evidence_and_a_report(tried):
    assert re.search(r"too few seeds \(\d+ of 16\)", tried)
    (verdict,) = json.loads(Path("first/verdicts.json").read_text(encoding="utf-8"))
    assert set(verdict) >= KEYS
    assert verdict["outcome"] == "NOT_APPLICABLE"
    assert verdict["n"] == 2
    assert 0 < verdict["effect"] < 1
    assert "T1" in Path("first/report.html").read_text(encoding="utf-8")
    assert Path("first/evidence/T1.nc").exists()
    kept = {file: file.stat().st_mtime_ns for file in Path("first/measured").rglob("*.json")}
    assert kept
    main(["claims", "run", "T1", "--runs", "runs", "--jobs", "1", "--out", "first"])
    assert kept == {file: file.stat().st_mtime_ns for file in Path("first/measured").rglob("*.json")}


@pytest.mark.full
@pytest.mark.usefixtures("tried")
def test_the_page_counts_the_models_that_were_measured(other_runs):
    words = ["--runs", "runs", other_runs, "--no-sensitivity", "--no-emergence", "--jobs", "1"]
    main(["claims", "run", "T1", *words, "--out", "first"])
    assert json.loads(Path("first/verdicts.json").read_text(encoding="utf-8"))[0]["n"] == 2
    lead = "2 trained models that the claims are about; a seed is the unit of replication."
    assert f'<p class="lead">{lead}</p>' in Path("first/report.html").read_text(encoding="utf-8")


@pytest.mark.full
def test_diff_shows_what_differs(untrained_runs, capsys):
    words = ["claims", "run", "T18", "--runs", untrained_runs, "--jobs", "1", "--no-sensitivity", "--out", "first"]
    main(words)
    shutil.copytree("first", "second")
    capsys.readouterr()
    main(["claims", "diff", "first", "second/verdicts.json"])
    assert "agree" in capsys.readouterr().out
    changed = json.loads(Path("second/verdicts.json").read_text(encoding="utf-8"))
    changed[0]["outcome"] = "SUPPORTED"
    Path("second/verdicts.json").write_text(json.dumps(changed), encoding="utf-8")
    main(["claims", "diff", "first", "second"])
    text = capsys.readouterr().out.lower()
    assert "not applicable → supported" in " ".join(text.split())
    other = [{**changed[0], "id": "T1"}, {**changed[0], "id": "T2"}]
    Path("second/verdicts.json").write_text(
        json.dumps([*json.loads(Path("first/verdicts.json").read_text(encoding="utf-8")), *other]), encoding="utf-8"
    )
    main(["claims", "diff", "first", "second"])
    assert capsys.readouterr().out.splitlines() == [
        "left out: 2 claims in second only",
        "the two agree in every verdict, share and effect of 1 claim",
    ]
    Path("second/verdicts.json").write_text(json.dumps(other), encoding="utf-8")
    with pytest.raises(SystemExit):
        main(["claims", "diff", "first", "second"])
    assert "first and second have no claim in common" in capsys.readouterr().err


def test_the_list_names_the_system_of_every_claim(capsys):
    main(["claims", "list", "T18", "B1"])
    lines = [[cell.strip() for cell in line.split("│")] for line in capsys.readouterr().out.splitlines()]
    assert {line[1]: line[2] for line in lines if len(line) > 2 and line[1]} == {"T18": "tiny-recall", "B1": "birth"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["claims"], "the command must be one of"),
        (["claims", "prove"], "the command must be one of"),
        (
            ["claims", "show", "T99"],
            "a claim or a system must be one of: birth, dictionaries, factual-recall, induction-formation, k-hop",
        ),
        (["claims", "run", "T1"], "claims run needs models: --zoo"),
        (["claims", "run", "T1", "--runs", "nowhere"], "nowhere is no run directory"),
        (["claims", "run", "T1", "--runs", "nowhere", "--recipe", "slow"], "--recipe must be one of: quick, "),
        (["claims", "run", "T1", "--runs", "nowhere", "--jobs", "-1"], "jobs must be"),
        (["claims", "run", "T10", "--runs", "nowhere", "--recipe", "quick"], "T10 says nothing of the quick recipe"),
        (["claims", "diff", "a", "b"], "a does not exist; `mnemoscope claims run` writes one"),
    ],
)
def test_wrong_input_is_one_line_and_leaves_nothing(words, message, capsys):
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not list(Path().iterdir())


def test_files_that_hold_no_verdicts_are_refused(tmp_path, capsys):
    for content, message in (("{", "holds no verdicts"), ('{"a": 1}', "holds no verdicts; `mnemoscope claims run`")):
        Path("old.json").write_text(content, encoding="utf-8")
        with pytest.raises(SystemExit):
            main(["claims", "diff", "old.json", "old.json"])
        assert message in capsys.readouterr().err
