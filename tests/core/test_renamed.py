"""Old public names still work, say what the new one is, and lead to the same object."""

import importlib.util
import json
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


NEW_THEN_OLD = """
import importlib, json, sys, warnings
warnings.simplefilter("error", FutureWarning)
from mnemoscope.claims import *
for old, new in json.loads(sys.argv[1]).items():
    name = importlib.import_module(new).__all__[0]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        scope = {}
        exec(f"from {old} import {name}", scope)
    assert scope[name] is getattr(importlib.import_module(new), name), old
    assert any(warning.category is FutureWarning for warning in caught), old
"""


@pytest.mark.full
def test_a_room_warns_of_nothing_and_an_old_room_can_be_imported():
    rooms = json.dumps({old: OLD_NAMES[old] for old in OLD_ROOMS})
    done = subprocess.run([sys.executable, "-c", NEW_THEN_OLD, rooms], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
