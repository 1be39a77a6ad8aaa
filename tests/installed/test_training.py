"""What every task needs comes with the wheel."""

import json

import pytest

pytestmark = pytest.mark.installed

REGISTERED = """
import json
import mnemoscope
from mnemoscope.core.presets import PRESETS
from mnemoscope.core.specification import TASKS
tasks = {name: PRESETS.get(name).task.name for name in PRESETS.names()}
print(json.dumps({"where": mnemoscope.__file__, "presets": tasks, "tasks": TASKS.names()}))
"""
FIVE_STEPS = ("recipe.n_steps=5", "recipe.warmup_steps=0", "recipe.checkpoint_steps=[0]", "recipe.batch_size=32")


def test_five_steps_of_every_preset_in_an_empty_directory(installation, tmp_path):
    result = installation.run(["python", "-c", REGISTERED], tmp_path)
    assert result.returncode == 0, result.stdout
    found = json.loads(result.stdout.splitlines()[-1])
    assert found["where"].startswith(str(installation.path)), found["where"]
    assert set(found["presets"].values()) == set(found["tasks"])

    words = ["mnemoscope", "train", "--preset", *found["presets"], "--set", *FIVE_STEPS]
    result = installation.run(words, tmp_path)
    assert result.returncode == 0, result.stdout
    specifications = [json.loads(file.read_text()) for file in tmp_path.glob("runs/*/seed-00/run.json")]
    trained = {each["preset"].partition("+")[0] for each in specifications}
    assert trained == set(found["presets"])
    assert len(list(tmp_path.glob("runs/*/seed-00/done"))) == len(specifications)
