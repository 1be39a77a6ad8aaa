"""Both lines of TransformerLens against each other: the same bytes, logits and verdicts. Run by `make test-lines`.

The other line's interpreter is that of `.venv`, or the one that the variable OTHER_LINE names.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
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


def on_both_lines(place: Path, words: Callable[[Path], tuple[object, ...]]) -> list[Path]:
    """The places, one of each line, where both have run the words for their place at the same time."""
    places = [place / str(number) for number in range(2)]
    with ThreadPoolExecutor(2) as lines:
        list(lines.map(lambda interpreter, place: on_line(interpreter, *words(place)), INTERPRETERS, places))
    return places


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    places = on_both_lines(tmp_path_factory.mktemp("lines"), lambda place: ("-m", "tests.lines.outcome", place))
    return [json.loads((place / "outcome.json").read_text()) for place in places]


def test_they_are_two_lines(outcomes):
    assert {outcome["line"] for outcome in outcomes} == {3, 4}


@pytest.mark.parametrize("part", ["training", "zoo", "language"])
def test_every_bit_is_the_same(outcomes, part):
    one, other = (outcome[part] for outcome in outcomes)
    assert one == other
    assert len(one) > 2


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS)
def test_verdicts_are_the_same(claim, tmp_path):
    trial = (*COMMAND_LINE, "claims", "run", claim, "--zoo", "--jobs", "1", "--out")
    places = on_both_lines(tmp_path, lambda place: (*trial, place))
    said = on_line(sys.executable, *COMMAND_LINE, "claims", "diff", *places)
    assert "the two agree in every verdict, share and effect of 1 claim" in " ".join(said.split()), said
