"""Old public names still work, say what the new one is, and lead to the same object."""

import importlib.util
import pkgutil
import subprocess
import sys

import pytest

from mnemoscope.core.renamed import OLD_NAMES

OLD_ROOMS = [old for old in OLD_NAMES if old.count(".") == 1 and importlib.util.find_spec(old)]


def resolved(name):
    room, _, last = name.rpartition(".")
    return getattr(importlib.import_module(room), last)


@pytest.mark.parametrize("old", OLD_NAMES)
def test_an_old_name_warns_and_is_the_new_object(old):
    room, _, name = old.rpartition(".")
    vars(importlib.import_module(room)).pop(name, None)  # an old room that something imported stands there
    with pytest.warns(FutureWarning, match="is now"):
        found = resolved(old)
    assert found is pkgutil.resolve_name(OLD_NAMES[old])


@pytest.mark.parametrize("old", OLD_NAMES)
def test_no_new_name_is_old(old):
    assert OLD_NAMES[old] not in OLD_NAMES


@pytest.mark.parametrize("old", OLD_ROOMS)
def test_an_old_room_can_be_imported(old):
    new = importlib.import_module(OLD_NAMES[old])
    name = next(iter(new.__all__))
    code = f"from {old} import {name} as one; from {OLD_NAMES[old]} import {name} as other; assert one is other"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "FutureWarning" in done.stderr


def test_importing_everything_from_a_room_warns_of_nothing():
    code = "import warnings; warnings.simplefilter('error', FutureWarning); from mnemoscope.claims import *"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
