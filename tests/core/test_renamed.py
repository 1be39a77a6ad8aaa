"""Old public names still work, say what the new one is, and lead to the same object."""

import importlib.util
import json
import pkgutil
import subprocess
import sys

import pytest

from mnemoscope.core.renamed import OLD_NAMES, public_rooms

OLD_ROOMS = [old for old in OLD_NAMES if old.count(".") == 1 and importlib.util.find_spec(old)]


def resolved(name):
    room, _, last = name.rpartition(".")
    return getattr(importlib.import_module(room), last)


@pytest.mark.parametrize("old", OLD_NAMES)
def test_an_old_name_warns_and_is_the_new_object(old):
    room, _, name = old.rpartition(".")
    vars(importlib.import_module(room)).pop(name, None)  # the room may hold the module of an old name
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


ROOMS = sorted({room for rooms in public_rooms().values() for room in rooms})


@pytest.mark.parametrize("room", ROOMS)
def test_a_name_that_is_in_another_room_is_refused_with_its_place(room):
    face = importlib.import_module(room)
    elsewhere = [name for name, rooms in public_rooms().items() if room not in rooms and name not in vars(face)]
    elsewhere = [name for name in elsewhere if f"{room}.{name}" not in OLD_NAMES and not name.startswith("_")]
    assert len(elsewhere) > 50
    for name in elsewhere:
        with pytest.raises(AttributeError, match=rf"has no name {name}; it is ms\.[\w.]*\b{name}$") as caught:
            getattr(face, name)
        place = str(caught.value).rpartition(" ms.")[2]
        assert pkgutil.resolve_name(f"mnemoscope.{place}") is resolved(f"{public_rooms()[name][0]}.{name}")


@pytest.mark.parametrize("room", ROOMS)
def test_a_misspelt_name_is_refused_with_the_nearest_one(room):
    face = importlib.import_module(room)
    for name, rooms in public_rooms().items():
        typo = f"{name}{name[-1]}"
        if room in rooms and typo not in public_rooms() and not name.startswith("_"):
            with pytest.raises(AttributeError, match=rf"; the nearest: .*\b{name}\b"):
                getattr(face, typo)


def test_the_error_names_the_room_and_nothing_where_nothing_is_near():
    import mnemoscope as ms

    with pytest.raises(AttributeError, match=r"^ms has no name ov_circuits; it is ms\.analyses\.ov_circuits$"):
        ms.ov_circuits  # noqa: B018 # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(AttributeError, match=r"^ms has no name xyzzyq$"):
        ms.xyzzyq  # noqa: B018 # pyright: ignore[reportAttributeAccessIssue]
    assert not hasattr(ms, "__wrapped__")
