import sys
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import ClassVar

import pytest

from mnemoscope.core import guests
from mnemoscope.core.errors import InputError, in_range, one_of
from mnemoscope.core.guests import Registry
from mnemoscope.core.specification import TASKS
from mnemoscope.core.task import BaseTask


def test_a_name_stands_for_one_item():
    registry = Registry("thing", "things")
    assert registry.add("a", 1) == 1
    assert registry.add("a", 1) == 1
    with pytest.raises(InputError, match="thing name 'a' is taken"):
        registry.add("a", 2)
    assert registry.get("a") == 1


def test_an_unknown_name_is_answered_with_the_known_ones():
    registry = Registry("thing", "things")
    registry.add("b", 1)
    registry.add("a", 2)
    with pytest.raises(InputError, match="thing must be one of: b, a; got 'c'"):
        registry.get("c")


@pytest.fixture
def guest(tmp_path, monkeypatch) -> str:
    """A package that registers things in two modules of its part `things`."""
    package = tmp_path / "made_for_registry_test"
    (package / "things").mkdir(parents=True)
    (package / "__init__.py").write_text("from mnemoscope.core.guests import Registry\nR = Registry('x', 'things')\n")
    (package / "things" / "__init__.py").write_text("")
    for name in ("two", "one"):
        (package / "things" / f"{name}.py").write_text(f"from made_for_registry_test import R\nR.add('{name}', 0)\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(guests, "_invited", {})
    return package.name


def test_parts_of_a_guest_register_themselves_when_somebody_asks(guest):
    registry = guests.invite(guest).R
    assert "made_for_registry_test.things" not in sys.modules
    assert registry.names() == ["one", "two"]
    assert guests.guest_of("made_for_registry_test.things.one") == guest
    assert [file.name for file in guests.source_files("made_for_registry_test.things.one")] == [
        "__init__.py",
        "__init__.py",
        "one.py",
        "two.py",
    ]


def test_the_built_in_systems_are_found_like_any_other():
    assert {"mnemoscope.systems.in_context_bigrams", "mnemoscope.systems.tiny_recall"} <= set(guests.guests())
    assert {point.value for point in entry_points(group=guests.GROUP)} <= set(guests.guests())


def test_a_file_is_a_guest(tmp_path, monkeypatch):
    monkeypatch.setattr(guests, "_invited", {})
    file = tmp_path / "file_made_for_registry_test.py"
    file.write_text("VALUE = 3\n")
    assert guests.invite(str(file)).VALUE == 3
    assert guests.invited_sources() == (str(file),)
    assert guests.source_files("file_made_for_registry_test") == [file]
    assert guests.invite(str(file)) is sys.modules["file_made_for_registry_test"]
    del sys.modules["file_made_for_registry_test"]


def test_a_file_may_import_a_file_beside_it_and_lie_on_the_path(tmp_path, monkeypatch):
    """As `--import claim.py` with `PYTHONPATH=.` does; a folder that was added for one file hides no other."""
    monkeypatch.setattr(guests, "_invited", {})
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(guests, "_folders", set())
    for place, value in (("first", 1), ("second", 2)):
        (tmp_path / place).mkdir()
        (tmp_path / place / f"beside_{place}.py").write_text(f"VALUE = {value}\n")
        (tmp_path / place / "claim_for_registry_test.py").write_text(f"from beside_{place} import VALUE\n")
        assert value == guests.invite(str(tmp_path / place / "claim_for_registry_test.py")).VALUE
        del sys.modules["claim_for_registry_test"], sys.modules[f"beside_{place}"]
    monkeypatch.setattr(sys, "path", [str(tmp_path / "first"), *sys.path])
    assert guests.invite(str(tmp_path / "first" / "claim_for_registry_test.py")).VALUE == 1
    del sys.modules["claim_for_registry_test"], sys.modules["beside_first"]


class Empty:
    pass


@dataclass(frozen=True, kw_only=True)
class Sizeless(BaseTask):
    name: ClassVar[str] = "sizeless"


@pytest.mark.parametrize(
    ("name", "task", "lacks"),
    [
        ("empty", Empty, "Empty has no name, references"),
        ("sizeless", Sizeless, "Sizeless has no d_vocab, n_ctx, sample:"),
    ],
)
def test_a_class_that_is_no_task_is_refused(name, task, lacks):
    with pytest.raises(InputError, match=f"must be a frozen dataclass with all that ms.Task lists; {lacks}"):
        TASKS.add(name, task)
    assert name not in TASKS.names()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (None, "", "there is no such file"),
        ("broken_for_registry_test", "1 / 0", "cannot be imported: ZeroDivisionError"),
        ("json", "", "a module json exists already; rename the file"),
    ],
)
def test_a_file_that_is_no_guest_is_refused(tmp_path, monkeypatch, name, content, message):
    monkeypatch.setattr(guests, "_invited", {})
    file = tmp_path / f"{name}.py"
    if name is not None:
        file.write_text(content)
    with pytest.raises(InputError, match=message):
        guests.invite(str(file))
    assert guests.invited_sources() == ()
    assert "broken_for_registry_test" not in sys.modules


@pytest.mark.parametrize("given", [0.0, 3.1, float("nan")])
def test_in_range_refuses(given):
    with pytest.raises(InputError, match="width must be from 1 to 3; got"):
        in_range("width", given, 1, 3)


def test_in_range_and_one_of_accept_what_is_allowed():
    for given in (1, 2.5, 3):
        in_range("width", given, 1, 3)
    one_of("kind", "a", ("a", "b"))
    with pytest.raises(InputError, match="width must be at least 1; got 0"):
        in_range("width", 0, 1, float("inf"))
