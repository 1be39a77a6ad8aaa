import pickle

import numpy as np

from mnemoscope.core.presets import Configuration
from mnemoscope.models.constructed.stand_ins import prescribe_course, step_course

UNITS = {"together": Configuration(preset="memories"), "late": Configuration(preset="memories-keys-late")}
PLANT = prescribe_course(
    UNITS, {name: {"loss": ((0, 2.0), (100, 1.0)), "recall": step_course(50, low=0.25)} for name in UNITS}
)


def test_courses_at_the_steps_that_are_kept():
    planted = pickle.loads(pickle.dumps(PLANT))(0)
    assert set(planted) == set(UNITS)
    for name, subject in planted.items():
        found = subject.trajectory
        assert tuple(found.step.to_numpy()) == UNITS[name].spec(0).recipe.checkpoints
        assert found.loss.sel(step=[0, 50, 100, 600]).to_numpy().tolist() == [2, 1.5, 1, 1]
        assert np.array_equal(found.recall, np.where(found.step < 50, 0.25, 1))
        assert subject.model.cfg.d_vocab == subject.task.d_vocab
