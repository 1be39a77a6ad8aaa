"""Commands on our own runs do without the import of TransformerLens, which would take most of their time."""

import subprocess
import sys

import pytest

CODE = """
import sys

class Refused:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "transformer_lens":
            raise AssertionError(f"{name} is imported")

sys.meta_path.insert(0, Refused())
from mnemoscope.cli import main

for command in sys.argv[1:]:
    try:
        main(command.split())
    except SystemExit as end:
        assert not end.code, command
"""


RUN = "zoo:v3-quick/seed-16"
TRAIN = (
    "train --preset v3 --seeds 0 --out runs --set recipe.n_steps=4 recipe.warmup_steps=1 recipe.metrics_every=2",
    "evaluate runs --n-samples 20",
)
LOOKS = ("edges", "heads", "circuits", "neurons", "truncate", "report", "shapley", "discover", "patch")
LOOKS += ("evaluate --checkpoints",)


def runs(tmp_path, *commands: str) -> None:
    done = subprocess.run([sys.executable, "-c", CODE, *commands], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.full
def test_training_and_the_first_look_do(tmp_path):
    runs(tmp_path, *TRAIN, f"ablate {RUN}")


@pytest.mark.drawn(3)
@pytest.mark.thorough
@pytest.mark.parametrize("command", LOOKS)
def test_every_look_at_a_run_does(tmp_path, command):
    runs(tmp_path, f"{command} {RUN}")
