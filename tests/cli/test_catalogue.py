"""Lists come from the user's cache where nothing has changed, and else from the guests, which are imported once."""

import subprocess
import sys
from pathlib import Path

import pytest

from mnemoscope.cli import catalogue, main
from mnemoscope.cli.catalogue import catalogue_entries, claim_entries, collect_entries, sources_digest
from mnemoscope.core import guests
from mnemoscope.core.errors import InputError
from tests.support import MINUTES

KINDS = ("tasks", "presets", "systems", "claims")


@pytest.fixture
def without_registries(monkeypatch, tmp_path):
    """A process without registries, with a cache of its own that starts empty; how often guests are asked."""
    asked = []

    def ask(invited):
        asked.append(invited)
        return {kind: collect_entries(kind) for kind in KINDS}

    monkeypatch.setenv("MNEMOSCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(catalogue, "_REGISTRIES", dict.fromkeys(KINDS, "not.imported"))
    monkeypatch.setattr(catalogue, "_from_another_process", ask)
    catalogue._cached_lists.cache_clear()
    yield asked
    catalogue._cached_lists.cache_clear()


@pytest.mark.full
def test_lists_are_kept_and_hold_what_the_guests_register(without_registries, monkeypatch):
    for kind in KINDS:
        found, expected = catalogue_entries(kind), collect_entries(kind)
        assert found == expected
        assert kind == "claims" or list(found) == list(expected)
    catalogue._cached_lists.cache_clear()
    catalogue_entries("presets")
    assert without_registries == [guests.invited_sources()], "the second process finds it in the cache"
    catalogue._cached_lists.cache_clear()
    monkeypatch.setattr(catalogue, "sources_digest", lambda places: "of other sources")
    catalogue_entries("presets")
    assert len(without_registries) == 2


@pytest.mark.full
def test_a_cache_that_is_damaged_or_cannot_be_written_does_no_harm(without_registries, tmp_path, monkeypatch):
    (tmp_path / "cache" / "catalogues").mkdir(parents=True)
    catalogue_entries("presets")
    (file,) = (tmp_path / "cache").rglob("*.json")
    for content in ("{", "{}", "[]"):
        file.write_text(content)
        catalogue._cached_lists.cache_clear()
        assert "v1" in catalogue_entries("presets")
    (tmp_path / "file").touch()
    monkeypatch.setenv("MNEMOSCOPE_CACHE", str(tmp_path / "file"))
    catalogue._cached_lists.cache_clear()
    assert "v1" in catalogue_entries("presets")
    assert len(without_registries) == 5


def test_guests_that_cannot_be_asked_are_imported_here(without_registries, tmp_path, monkeypatch):
    monkeypatch.setattr(catalogue, "_from_another_process", lambda invited: None)
    assert "v1" in catalogue_entries("presets")
    assert not (tmp_path / "cache").exists()


def test_a_digest_is_that_of_all_sources(tmp_path):
    package = tmp_path / "lab"
    (package / "claims").mkdir(parents=True)
    files = [package / "tasks.py", package / "claims" / "order.py", package / "registered.json", tmp_path / "single.py"]
    digests = {sources_digest([package, tmp_path / "none"])}
    for file in files:
        file.write_text("x = 1\n")
        digests.add(sources_digest([package, tmp_path / "single.py"]))
    assert len(digests) == 5
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "tasks.py").touch()
    (package / "zoo.zip").touch()
    assert sources_digest([package, tmp_path / "single.py"]) in digests


def test_claims_are_listed_by_system_and_number():
    assert list(claim_entries(("noisy-recall", "T2", "T14", "B1"))) == ["B1", "N1", "N2", "T2", "T14"]
    with pytest.raises(InputError, match=r"a claim or a system must be one of: birth, .*; got 'T99'"):
        claim_entries(("T99",))


LAB = """
import mnemoscope as ms
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup
recipes = {"slow": ms.Recipe(name="slow", n_steps=9)}
model = ms.ModelSpec(d_model=8, n_heads=1)
ms.PRESETS.add("lab-v1", ms.Preset(summary="v1 of a lab", task=PermutationLookup(), model=model, recipes=recipes))
"""


@MINUTES
@pytest.mark.thorough
def test_a_guest_that_is_invited_is_kept_too_and_a_change_of_it_is_noticed(tmp_path, monkeypatch):
    monkeypatch.setenv("MNEMOSCOPE_CACHE", str(tmp_path / "cache"))
    package = tmp_path / "some_lab"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "presets.py").write_text(LAB)

    def run(*words):
        code = "import sys\nfrom mnemoscope.cli import main\nmain(sys.argv[1:])\nprint('torch' in sys.modules)"
        command = [sys.executable, "-c", code, *words, "--import", "some_lab"]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    for _ in range(2):
        text = run("list", "presets")
        assert "v1 of a lab" in text
        assert text.count("d 16, 1 head, no repeats") == 1
        assert text.endswith("False\n")
    (package / "presets.py").write_text(LAB.replace("lab-v1", "lab-v2"))
    text = run("list", "presets")
    assert "lab-v2" in text
    assert "lab-v1" not in text
    assert len(list(Path(tmp_path / "cache").rglob("*.json"))) == 1


def test_what_a_script_registers_itself_is_listed(monkeypatch, capsys):
    from mnemoscope.core.presets import PRESETS

    monkeypatch.setitem(PRESETS._items, "of-a-script", PRESETS.get("v1"))
    assert "of-a-script" in catalogue_entries("presets")
    main(["list", "presets"])
    assert "of-a-script" in capsys.readouterr().out
