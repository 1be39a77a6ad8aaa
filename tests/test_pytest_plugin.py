"""Sessions of claim tests over runs whose models are known, in this process and in others."""

import json
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import get_args

import pytest

import mnemoscope.claims.testing.cases  # noqa: F401 (pytester forgets what its sessions import)
from mnemoscope.claims.claim import Outcome
from mnemoscope.cli.commands.claims import read_verdicts
from mnemoscope.systems.tiny_recall.constructed import dissociated, elimination_only, shared_store
from tests.claims.testing.planted import N_VALUES, plant

RUNS = "--mnemoscope-runs"
CLAIM = """
import pytest
from mnemoscope.claims.testing import assert_dissociated

@pytest.mark.claim(gate="recall", at_least=0.99)
def test_two_heads():
    '''Each skill has a head of its own.

    This is not part of the statement.
    '''
    assert_dissociated("elimination", "recall", n=128)
"""
OWN = """
import pytest
from mnemoscope.claims.testing import claim_effect
"""
OUTCOMES = get_args(Outcome)


@pytest.fixture(scope="session")
def planted_runs(tmp_path_factory):
    """Of 18 seeds 14 dissociate, 2 (4 and 7) have one store, and 2 (16 and 17) cannot recall."""
    models = {seed: dissociated(N_VALUES) for seed in range(16)}
    models |= {seed: shared_store(N_VALUES) for seed in (4, 7)}
    models |= {seed: elimination_only(N_VALUES) for seed in (16, 17)}
    return plant(tmp_path_factory.mktemp("planted"), models)


@pytest.fixture(scope="session")
def two_seeds(tmp_path_factory):
    """Too few for a verdict."""
    return plant(tmp_path_factory.mktemp("two"), {seed: dissociated(N_VALUES) for seed in (3, 5)})


@pytest.fixture(scope="session")
def alike(tmp_path_factory):
    """16 seeds with the same model."""
    return plant(tmp_path_factory.mktemp("alike"), {seed: dissociated(N_VALUES) for seed in range(16)})


@pytest.fixture
def session(pytester):
    """Write a test file and run it in this process."""

    def run(source, *arguments):
        pytester.makepyfile(source)
        return pytester.runpytest_inprocess("-p", "no:cacheprovider", *map(str, arguments))

    return run


def section(result) -> list[str]:
    """The lines about claims."""
    return [line for line in result.stdout.lines if line.startswith(OUTCOMES)]


def properties(file: Path) -> list[dict[str, str]]:
    """What JUnit XML says of every test case."""
    cases = ET.parse(file).getroot().iter("testcase")
    return [{p.get("name"): p.get("value") for p in case.iter("property")} for case in cases]


def test_a_claim_over_seeds_ends_in_a_verdict(session, planted_runs, pytester):
    out, xml = pytester.path / "verdicts.json", pytester.path / "junit.xml"
    result = session(CLAIM, RUNS, planted_runs, "--mnemoscope-json", out, f"--junitxml={xml}", "-rA", "-v")
    assert result.ret == 0
    assert "14 passed, 2 deviates, 2 not learned" in result.stdout.lines[-1]
    result.stdout.fnmatch_lines(["*two_heads?seed-04? DEVIATES*", "*two_heads?seed-16? NOT LEARNED*", "*= claims =*"])
    [line] = section(result)
    assert line.startswith("SUPPORTED ")
    for part in (
        "::test_two_heads (planted-by-hand): share 0.88 [0.617 to 0.984], effect ",
        "] accuracy. 16 of 18 seeds pass the gate (recall right in 99 % of unseen sequences or more)",
        "the effect is above 0 accuracy in 14 of 16 seeds. Deviating: seeds 4, 7.",
    ):
        assert part in line

    [verdict] = json.loads(out.read_text())
    assert verdict["id"].endswith(".py::test_two_heads")
    assert verdict["statement"] == "Each skill has a head of its own."
    assert (verdict["outcome"], verdict["n"], verdict["n_failed"]) == ("SUPPORTED", 16, 2)
    assert verdict["share"] == 14 / 16
    assert verdict["unit"] == "accuracy"
    assert verdict["fixed"]["gate"] == {"at_least": 0.99, "at_most": None}
    assert verdict["fixed"]["criteria"][0]["quantifier"] == "most"
    assert read_verdicts(out) == [verdict]  # as `claims run` writes them

    cases = properties(xml)
    assert [case["claim_outcome"] for case in cases].count("deviates") == 2
    assert all(case["claim"] == verdict["id"] for case in cases)
    assert float(cases[0]["claim_effect"]) == pytest.approx(0.25)
    assert float(cases[4]["claim_effect"]) < 0
    assert float(cases[16]["claim_gate_value"]) < 0.99
    assert "claim_effect" not in cases[16]
    [whole] = [p for p in ET.parse(xml).getroot().iter("property") if p.get("name") == verdict["id"]]
    assert whole.get("value").startswith("SUPPORTED: 16 of 18")


def test_what_an_item_measured_is_plain_and_survives_other_processes(pytester, two_seeds):
    pytester.makepyfile(CLAIM)
    reports = pytester.inline_run("-p", "no:cacheprovider", RUNS, two_seeds).getreports("pytest_runtest_logreport")
    ends = [report for report in reports if report.when == "teardown"]
    assert len(ends) == 2
    for report in ends:
        values = dict(report.user_properties)
        assert json.loads(json.dumps(values)) == values
        assert {type(value) for value in values.values()} <= {str, int, float}
        assert {"claim", "claim_seed", "claim_outcome", "claim_effect", "claim_margin", "claim_unit"} <= set(values)
        assert values["claim_gate_value"] == 1


@pytest.mark.slow
def test_other_processes_and_files_give_the_same_verdict(session, planted_runs, pytester):
    alone, spread, xml = (pytester.path / name for name in ("alone.json", "spread.json", "junit.xml"))
    session(CLAIM, RUNS, planted_runs, "--mnemoscope-json", alone)
    result = session(CLAIM, RUNS, planted_runs, "--mnemoscope-json", spread, "-n", 2, f"--junitxml={xml}")
    assert result.ret == 0
    assert "14 passed, 2 deviates, 2 not learned" in result.stdout.lines[-1]
    assert len(section(result)) == 1
    assert alone.read_text() == spread.read_text()
    assert {case["claim_seed"] for case in properties(xml)} == {str(seed) for seed in range(18)}


def test_most_do_both_is_judged_and_not_most_do_each(session, alike):
    source = OWN + "\n".join(
        [
            "@pytest.mark.claim",
            "def test_both(subject):",
            "    claim_effect(subject.seed, above=3.5)",  # 12 of 16
            "    claim_effect(subject.seed, below=11.5)",  # 12 of 16
        ]
    )
    result = session(source, RUNS, alike)
    [line] = section(result)
    assert "share 0.50" in line
    assert "above 0 in 8 of 16 seeds" in line
    assert "8 passed, 8 deviates" in result.stdout.lines[-1]


@pytest.mark.full
def test_a_single_number_is_judged_in_its_own_terms(session, alike, pytester):
    out = pytester.path / "verdicts.json"
    source = OWN + "\n".join(
        [
            "@pytest.mark.claim(quantifier='every', expect='SUPPORTED')",
            "def test_the_seed_is_small(subject):",
            "    claim_effect(subject.seed, below=20, unit='seeds')",
            "@pytest.mark.claim('A statement.', expect='REFUTED')",
            "def test_the_seed_is_large(subject):",
            "    claim_effect(subject.seed, above=20)",
            "@pytest.mark.claim(quantifier='mean', bounds=(-0.05, 0.1))",
            "def test_the_mean():",
            "    claim_effect(0.05, within=0.1)",
        ]
    )
    result = session(source, RUNS, alike, "--mnemoscope-json", out)
    assert result.ret == 0  # a refuted claim is a result
    mean, large, small = json.loads(out.read_text())
    assert [one["outcome"] for one in (large, small, mean)] == ["REFUTED", "SUPPORTED", "SUPPORTED"]
    assert [one["statement"] for one in (large, small)] == ["A statement.", "the seed is small"]
    assert small["effect"] == 7.5
    assert "The effect is below 20 seeds in 16 of 16 seeds" in small["reason"]
    assert mean["effect"] == pytest.approx(0.05)


@pytest.mark.parametrize(("expect", "code"), [("SUPPORTED", 1), ("NOT_APPLICABLE", 0)])
def test_an_unexpected_verdict_fails_the_session(session, two_seeds, expect, code):
    source = CLAIM.replace("at_least", f"expect={expect!r}, at_least")
    result = session(source, RUNS, two_seeds)
    [line] = section(result)
    assert result.ret == code
    assert ("(expected SUPPORTED)" in line) == bool(code)
    assert "2 passed" in result.stdout.lines[-1]
    assert line.startswith("NOT_APPLICABLE ")
    assert "effect 0.25" in line
    assert "a verdict needs 16 seeds" in line


def test_an_error_in_a_seed_is_an_error_and_leaves_no_verdict(session, alike, pytester):
    out = pytester.path / "verdicts.json"
    source = OWN + "\n".join(
        [
            "@pytest.mark.claim",
            "def test_one(subject):",
            "    claim_effect(1, above=0)",
            "    if subject.seed == 2: raise RuntimeError('broken')",
            "    if subject.seed == 3: pytest.skip('not this one')",
        ]
    )
    result = session(source, RUNS, alike, "--mnemoscope-json", out)
    assert result.ret == 1
    assert "1 failed, 14 passed, 1 skipped" in result.stdout.lines[-1]
    [verdict] = json.loads(out.read_text())
    assert (verdict["outcome"], verdict["n"], verdict["p"]) == ("NOT_APPLICABLE", 14, None)
    assert "2 of 16 seeds were not measured" in verdict["reason"]


@pytest.mark.full
def test_seeds_cannot_be_picked(session, alike):
    result = session(CLAIM, RUNS, alike, "-k", "seed-1")
    [line] = section(result)
    assert line.startswith("NOT_APPLICABLE ")
    assert "10 of 16 seeds were not measured" in line


def test_a_claim_of_which_every_seed_fails(session, two_seeds):
    result = session(CLAIM.replace('gate="recall"', 'gate="reading"'), RUNS, two_seeds)
    assert result.ret == 1
    result.stdout.fnmatch_lines(["gate must be one of: elimination, recall; got 'reading'"])
    assert "Traceback" not in result.stdout.str()
    assert "no seed to judge. 2 of 2 seeds were not measured" in section(result)[0]


def test_an_unknown_role_and_a_claim_without_a_number_are_one_line(session, two_seeds):
    source = OWN + "\n".join(
        [
            "from mnemoscope.claims.testing import assert_necessary, head",
            "@pytest.mark.claim",
            "def test_role():",
            "    assert_necessary(head('third head'), for_='recall', n=64)",
            "@pytest.mark.claim",
            "def test_bare():",
            "    assert True",
        ]
    )
    result = session(source, RUNS, two_seeds)
    assert result.ret == 1
    result.stdout.fnmatch_lines(["a part of the model must be one of: elimination head, other head, L0 MLP; got*"])
    result.stdout.fnmatch_lines(["a claim needs a number from every seed: use assert_necessary, claim_effect or*"])
    assert "in _component" not in result.stdout.str()


def test_fixtures_hold_what_is_on_trial(session, two_seeds):
    source = OWN + "\n".join(
        [
            "@pytest.mark.claim(gate=lambda subject: subject.seed, at_least=4)",
            "@pytest.mark.parametrize('share', [0.5, 0.6])",
            "def test_it(run, runs, model, subject, share):",
            "    assert subject.model is model and subject.task == run.spec.task",
            "    assert [one.spec.seed for one in runs] == [3, 5]",
            "    assert run.spec.seed == subject.seed == 5",
            "    claim_effect(1, above=share)",
        ]
    )
    result = session(source, RUNS, two_seeds)
    assert "2 passed, 2 not learned" in result.stdout.lines[-1]
    lines = section(result)
    assert ["test_it[0.5]" in lines[0], "test_it[0.6]" in lines[1]] == [True, True]
    assert "1 of 2 seeds pass the gate (<lambda> is 4 or more)" in lines[0]


def test_a_gate_of_several_skills_asks_for_all_of_them(session, planted_runs):
    place = planted_runs / "planted"
    source = CLAIM.replace('gate="recall"', 'gate=("elimination", "recall")')
    result = session(source, RUNS, place / "seed-15", RUNS, place / "seed-16")
    assert "1 passed, 1 not learned" in result.stdout.lines[-1]
    assert "1 of 2 seeds pass the gate (elimination and recall right in 99 % of unseen" in section(result)[0]


def test_every_seed_has_a_model_of_its_own(session, two_seeds):
    source = OWN + "\n".join(
        [
            "@pytest.mark.parametrize('again', [0, 1])",
            "@pytest.mark.claim",
            "def test_it(model, again):",
            "    largest = float(model.unembed.W_U.abs().max())",
            "    model.unembed.W_U.data.zero_()",
            "    claim_effect(largest, above=0)",
        ]
    )
    assert "4 passed" in session(source, RUNS, two_seeds).stdout.lines[-1]


@pytest.mark.full
def test_several_configurations_need_a_choice(session, two_seeds, tmp_path):
    other = plant(tmp_path, {3: shared_store(N_VALUES)}, preset="stored")
    places = (RUNS, two_seeds, RUNS, other)
    result = session(CLAIM, *places)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    message = "::test_two_heads: there are runs of several configurations; choose one by preset=: "
    assert f"{message}planted-by-hand, stored-by-hand" in result.stdout.str()
    chosen = session(CLAIM.replace("at_least", "preset='stored', at_least"), *places)
    assert "1 deviates" in chosen.stdout.lines[-1]
    assert "(stored-by-hand)" in section(chosen)[0]
    by_label = session(CLAIM.replace("at_least", "preset='planted-by-hand', at_least"), *places)
    assert "2 passed" in by_label.stdout.lines[-1]
    wrong = session(CLAIM.replace("at_least", "preset='v3', at_least"), *places)
    assert "preset of the claim must be one of: planted-by-hand, stored-by-hand; got 'v3'" in wrong.stdout.str()


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("quantifer='most'", "an option of the marker claim must be one of: statement, quantifier, gate, at_least"),
        ("quantifier='equivalence'", "quantifier must be one of: most, every, exists, mean; got 'equivalence'"),
        ("expect='TRUE'", "expect must be one of: SUPPORTED, REFUTED, MIXED"),
    ],
)
def test_a_marker_that_cannot_be_read_is_one_line(session, two_seeds, option, message):
    result = session(CLAIM.replace("at_least=0.99", option), RUNS, two_seeds)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert message in result.stdout.str()
    assert "Traceback" not in result.stdout.str()


def test_runs_that_are_no_replicates_are_refused(session, two_seeds, tmp_path):
    """One run under two seeds, and one that did not end."""
    copied = shutil.copytree(two_seeds, tmp_path / "copied") / "planted"
    shutil.copyfile(*(copied / f"seed-0{seed}/checkpoints/00000001.safetensors" for seed in (3, 5)))
    stopped = shutil.copytree(two_seeds, tmp_path / "stopped") / "planted"
    (stopped / "seed-05" / "done").unlink()
    for place, message in ((copied, "a copy is no replicate"), (stopped, "seed-05 is not finished")):
        result = session(CLAIM, RUNS, place)
        assert result.ret == pytest.ExitCode.INTERRUPTED
        assert message in result.stdout.str()
        assert "Traceback" not in result.stdout.str()


def test_places_without_runs_are_a_usage_error(session, tmp_path):
    for arguments, message in (
        ((RUNS, tmp_path / "none"), f"--mnemoscope-runs: there is no directory {tmp_path / 'none'}"),
        ((RUNS, tmp_path), f"--mnemoscope-runs: {tmp_path} is no run directory and holds none; train some first"),
        (("--mnemoscope-json", tmp_path / "none" / "out.json"), "does not exist; make it first"),
    ):
        result = session(CLAIM, *arguments)
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        assert message in result.stderr.str()
        assert "Traceback" not in result.stderr.str()


def test_without_runs_claims_are_skipped_and_the_rest_is_as_ever(session):
    source = CLAIM + "\n".join(
        [
            "def test_other(): pass",
            "def test_fixture(model): pass",
        ]
    )
    result = session(source, "-rs", "--strict-markers")
    assert result.ret == 1
    assert "1 passed, 1 skipped, 1 error" in result.stdout.lines[-1]
    result.stdout.fnmatch_lines(["*a claim about trained models: give their runs with --mnemoscope-runs DIR"])
    result.stdout.fnmatch_lines(["the fixtures run, runs, model and subject of mnemoscope are for tests marked with*"])
    assert not section(result)


def test_unmarked_tests_keep_their_own_fixtures_beside_claims(session, two_seeds):
    source = CLAIM + "\n".join(
        [
            "@pytest.fixture",
            "def model(): return 'mine'",
            "def test_other(model): assert model == 'mine'",
            "def test_failing(): assert False",
        ]
    )
    result = session(source, RUNS, two_seeds)
    assert result.ret == 1
    assert "1 failed, 3 passed" in result.stdout.lines[-1]


def test_a_session_that_does_not_use_the_plugin_imports_nothing_heavy(tmp_path):
    heavy = "('torch', 'transformer_lens', 'xarray', 'mnemoscope.core.batch', 'mnemoscope.claims.testing')"
    (tmp_path / "test_light.py").write_text(
        f"import sys\ndef test_light():\n    assert 'mnemoscope.pytest_plugin' in sys.modules\n"
        f"    assert not [name for name in {heavy} if name in sys.modules]\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout
