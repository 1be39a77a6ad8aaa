"""Scripts that start workers, with `if __name__ == "__main__":` and without.

Each imports everything twice, so these tests are thorough; what a worker and its pool do for them is in `test_local`.
"""

import subprocess
import sys
import textwrap

import pytest

TRAIN = """
    from pathlib import Path
    from mnemoscope.core.presets import preset
    from mnemoscope.run.executor import train_many

    def work():
        sizes = {"recipe.n_steps": 4, "recipe.warmup_steps": 1, "recipe.batch_size": 8}
        specs = [preset("v1", "quick", seed, changes=sizes) for seed in (0, 1)]
        print("finished", len(train_many(specs, [Path("0"), Path("1")], jobs=2)))
"""
ANALYSE = """
    from mnemoscope.run.executor import analyse_many

    def work():
        print("finished", len(list(analyse_many([1.0, 2.0], abs, jobs=2))))
"""
TRY = """
    from mnemoscope.claims.claim import Claim
    from mnemoscope.claims.trials import run_trials

    def parity(draw):
        return {"effect": float(draw % 2)}

    def work():
        claim = Claim(
            id="X", statement="draws are odd", source="made up", quantifier="mean", margin=0.1, n_replicates=16,
            measure=parity, prompts="enumerated", replicate="draw",
        )
        run_trials([claim], [], jobs=2)
        print("finished", 2)
"""


pytestmark = pytest.mark.thorough
each_body = pytest.mark.parametrize("body", [TRAIN, ANALYSE, TRY])


def run_script(folder, body: str, end: str) -> subprocess.CompletedProcess:
    (folder / "script.py").write_text(textwrap.dedent(body) + end)
    command = [sys.executable, "script.py"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.drawn(1)
@each_body
def test_a_script_without_a_guard_gets_one_error_with_the_way_out(tmp_path, body):
    done = run_script(tmp_path, body, "\nwork()\n")
    assert done.returncode == 1
    assert done.stderr.count("Traceback") == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("mnemoscope.core.errors.InputError: worker processes import ")
    assert "script.py, which starts workers when it is imported" in last
    assert 'under `if __name__ == "__main__":`, or take jobs=1' in last
    assert "finished" not in done.stdout


@pytest.mark.drawn(1)
@each_body
def test_a_script_with_a_guard_works(tmp_path, body):
    done = run_script(tmp_path, body, '\nif __name__ == "__main__":\n    work()\n')
    assert (done.returncode, done.stdout, done.stderr) == (0, "finished 2\n", "")
