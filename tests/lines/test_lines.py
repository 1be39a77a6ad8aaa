"""Both lines of TransformerLens against each other: the same bytes, logits and verdicts. Run by `make test-lines`.

The other line's interpreter is that of `.venv`, or the one that the variable OTHER_LINE names.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lines.outcome import CLAIMS

pytestmark = pytest.mark.lines
ROOT = Path(__file__).parents[2]
INTERPRETERS = (os.environ.get("OTHER_LINE", str(ROOT / ".venv" / "bin" / "python")), sys.executable)


COMMAND_LINE = ("-c", "from mnemoscope.cli import main; main()")


def on_line(interpreter: str, *arguments: object) -> str:
    command = [interpreter, *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    found = []
    for number, interpreter in enumerate(INTERPRETERS):
        place = tmp_path_factory.mktemp("line") / str(number)
        on_line(interpreter, "-m", "tests.lines.outcome", place)
        found.append(json.loads((place / "outcome.json").read_text()))
    return found


def test_they_are_two_lines(outcomes):
    assert {outcome["line"] for outcome in outcomes} == {3, 4}


@pytest.mark.parametrize("part", ["training", "zoo", "language"])
def test_every_bit_is_the_same(outcomes, part):
    one, other = (outcome[part] for outcome in outcomes)
    assert one == other
    assert len(one) > 2


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS)
def test_verdicts_are_the_same(claim, tmp_path):
    places = []
    for number, interpreter in enumerate(INTERPRETERS):
        places.append(tmp_path / str(number))
        on_line(interpreter, *COMMAND_LINE, "claims", "run", claim, "--zoo", "--out", places[-1])
    said = on_line(sys.executable, *COMMAND_LINE, "claims", "diff", *places)
    assert "the two agree in every verdict, share and effect of 1 claim" in " ".join(said.split()), said
