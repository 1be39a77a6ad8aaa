"""The commands at the start of the page of claims about language models, in its order, on the packaged one; shorter."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.lm

PAGE = (Path(__file__).parents[2] / "docs" / "language_claims.md").read_text()
(BLOCK,) = re.findall(r"## Two commands\n\n```console\n(.*?)```", PAGE, re.S)
LINES = [line.split("#")[0].split() for line in BLOCK.splitlines() if line.startswith("mnemoscope ")]
SHORTER = {
    "claims run": "--no-sensitivity",
    "prompts retrieval": "--questions 2 --formulations equations --difficulties 1-2",
}
ONE_OF = {"language-models": "G2"}
"""One claim in place of the system's."""


def test_the_page_in_its_own_order(tmp_path):
    assert len(LINES) == len(SHORTER)
    for _, *words in LINES:
        words = [ONE_OF.get(word, word) for word in words]
        words += shlex.split(SHORTER[" ".join(words[:2])])
        command = [sys.executable, "-m", "mnemoscope.cli", *words]
        found = subprocess.run(
            command, cwd=tmp_path, env=dict(os.environ), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert found.returncode == 0, found.stdout
        assert "wrote" in found.stdout
    assert list(tmp_path.glob("**/report.html"))
