"""What a report says: of a breach, of what may be believed, on the command line, in files, and in a pytest session."""

import json
import sys
from pathlib import Path
from unittest import mock
from xml.etree import ElementTree

import pytest

from mnemoscope.cli import main
from mnemoscope.cli.command import commands
from mnemoscope.core import guests
from mnemoscope.core.errors import InputError
from mnemoscope.hookcheck.check import check_model
from mnemoscope.hookcheck.laws import LAWS
from mnemoscope.hookcheck.named import open_model
from mnemoscope.hookcheck.reports import analysis_rows
from tests.hookcheck.good import good

MODELS = """
from mnemoscope.hookcheck.laws import LAWS
from tests.hookcheck.good import good

def fine():
    return good("plain")

def deaf():
    return LAWS["reach-of-scores"].mutant(good("plain"))

def refusing():
    return Refusing()

class Refusing:
    def __getattr__(self, name):
        return getattr(good("plain"), name)

    def run_with_hooks(self, *_, **__):
        raise ValueError("hooks are not for this model")
"""
SOME = ["reach-of-scores", "reach-of-z", "reach-of-shared-values"]


commands()  # pytester forgets what its sessions import


@pytest.fixture
def models(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("hookcheck_models.py").write_text(MODELS, encoding="utf-8")
    with mock.patch.dict(guests._invited):
        yield "hookcheck_models.py"
    sys.modules.pop("hookcheck_models", None)


def test_a_breach_says_by_how_much_where_and_on_which_smallest_prompt():
    report = check_model(LAWS["reach-of-scores"].mutant(good("plain")), laws=["reach", "identity"])
    assert report.broken == ("reach-of-scores",)
    finding = report.findings["reach-of-scores"]
    assert finding.amount > 0.1
    assert "blocks.0.attn.hook_pattern" in finding.points
    assert finding.smallest.startswith("tokens [[")
    assert finding.smallest.count(",") <= 3  # one prompt and its donor, of one or two tokens
    assert str(report).splitlines()[1].startswith("reach-of-scores is broken by ")


@pytest.mark.full
def test_a_breach_at_one_kind_of_site_leaves_the_others_to_be_believed():
    rows = {name: trust for name, trust, _ in analysis_rows(check_model(LAWS["reach-of-scores"].mutant(good("plain"))))}
    assert rows["patch"] == "except at scores"
    assert rows["heads"] == "yes"
    mutant = LAWS["pattern-rows-sum-to-one"].mutant(good("plain"))
    rows = {name: trust for name, trust, _ in analysis_rows(check_model(mutant, laws=["sums"]))}
    assert rows["attention-entropy"] == "no"


def test_a_model_that_raises_is_refused_and_not_broken(models):
    report = check_model(open_model(f"{models}:refusing"), laws=SOME)
    assert report.holds
    assert {finding.outcome for finding in report.findings.values()} == {"refused"}
    assert report.findings["reach-of-z"].reason == "ValueError: hooks are not for this model"


def test_no_time_is_a_refusal():
    report = check_model(good("plain"), laws=["reach-of-z"], max_seconds=1e-9)
    assert "no time was left" in report.findings["reach-of-z"].reason


def test_wrong_arguments_are_refused():
    with pytest.raises(InputError, match="must be a list of names; got the text 'reach'"):
        check_model(good("plain"), laws="reach")
    with pytest.raises(InputError, match="got 'reech'; the nearest: reach"):
        check_model(good("plain"), laws=["reech"])
    with pytest.raises(InputError, match="n_pos must be 1 or more"):
        check_model(good("plain"), n_pos=0)


def test_the_command_writes_files_and_ends_with_1_where_a_law_is_broken(models, capsys):
    main(["hookcheck", f"{models}:fine", "--laws", *SOME])
    assert "holds: 2, does not apply: 1" in capsys.readouterr().out
    with pytest.raises(SystemExit) as end:
        main(["hookcheck", "deaf", "--import", models, "--laws", *SOME, "--json", "out/r.json", "--junit", "out/r.xml"])
    assert end.value.code == 1
    written = json.loads(Path("out/r.json").read_text(encoding="utf-8"))
    assert {law["name"]: law["outcome"] for law in written["laws"]} == dict(
        zip(SOME, ("broken", "holds", "does not apply"), strict=True)
    )
    assert written["analyses"]["patch"] == ["reach-of-scores"]
    suite = ElementTree.parse("out/r.xml").getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("3", "1", "1")
    assert "reach-of-scores is broken by" in suite.find(".//failure").get("message")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["fine", "deaf"])
def test_every_law_is_a_test_of_a_session(models, name, pytester, monkeypatch):
    monkeypatch.chdir(pytester.path)
    Path(models).write_text(MODELS, encoding="utf-8")
    result = pytester.runpytest_inprocess("--mnemoscope-hookcheck", f"{models}:{name}", "-p", "no:xdist")
    outcomes = result.parseoutcomes()
    assert sum(outcomes.get(key, 0) for key in ("passed", "failed", "skipped")) == len(LAWS)
    assert outcomes.get("failed", 0) == (name == "deaf")
    if name == "deaf":
        result.stdout.fnmatch_lines(["*reach-of-scores is broken by*"])


def test_a_model_that_is_none_is_a_usage_error(models, pytester):
    result = pytester.runpytest_inprocess("--mnemoscope-hookcheck", "nowhere.gguf")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--mnemoscope-hookcheck: *nowhere.gguf does not exist"])
