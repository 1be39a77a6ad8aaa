import pytest

from mnemoscope.core.errors import InputError, in_range, one_of
from mnemoscope.core.registry import Registry


def test_a_name_stands_for_one_item():
    registry = Registry("thing", "mnemoscope.core")
    assert registry.add("a", 1) == 1
    assert registry.add("a", 1) == 1
    with pytest.raises(InputError, match="thing name 'a' is taken"):
        registry.add("a", 2)
    assert registry.get("a") == 1


def test_an_unknown_name_is_answered_with_the_known_ones():
    registry = Registry("thing", "mnemoscope.core")
    registry.add("b", 1)
    registry.add("a", 2)
    with pytest.raises(InputError, match="thing must be one of: b, a; got 'c'"):
        registry.get("c")


def test_modules_of_the_package_register_themselves(tmp_path, monkeypatch):
    package = tmp_path / "made_for_registry_test"
    package.mkdir()
    (package / "__init__.py").write_text("from mnemoscope.core.registry import Registry\nR = Registry('x', __name__)\n")
    for name in ("two", "one"):
        (package / f"{name}.py").write_text(f"from made_for_registry_test import R\nR.add('{name}', 0)\n")
    monkeypatch.syspath_prepend(tmp_path)
    from made_for_registry_test import R

    assert R.names() == ["one", "two"]


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
