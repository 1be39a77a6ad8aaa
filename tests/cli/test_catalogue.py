"""Lists are read from catalogues that say what the guests register, and from the guests where these have changed."""

import json
import shutil
import subprocess
import sys

import pytest

from mnemoscope.cli import main
from mnemoscope.cli.catalogue import FILE, _kept, claims_listed, listed, sources_digest
from mnemoscope.cli.cataloguing import entries, write
from mnemoscope.core import guests
from mnemoscope.core.errors import InputError

KINDS = ("tasks", "presets", "systems", "claims")
OURS = [guest for guest in guests.guests() if guest.startswith("mnemoscope.systems.")]
MEND = "write it again: python -m mnemoscope.cli.cataloguing"


@pytest.mark.parametrize("guest", OURS)
def test_a_catalogue_is_of_the_sources_that_lie_beside_it(guest):
    place = guests.location(guest)
    assert json.loads((place / FILE).read_text())["sources"] == sources_digest(place), MEND


@pytest.mark.parametrize("kind", KINDS)
def test_catalogues_hold_what_the_guests_register(kind):
    catalogued = {}
    for guest in OURS:
        catalogued |= _kept(guests.location(guest))[kind]
    registered = entries(kind, OURS)
    assert catalogued == {name: registered[name] for name in catalogued}, MEND
    ours = {name for name in registered if name in catalogued or kind != "claims"}
    assert set(catalogued) == ours, MEND


def test_claims_are_listed_by_system_and_number():
    assert list(claims_listed(("noisy-recall", "T2", "T14", "B1"))) == ["B1", "N1", "N2", "T2", "T14"]
    with pytest.raises(InputError, match=r"a claim or a system must be one of: birth, .*; got 'T99'"):
        claims_listed(("T99",))


@pytest.fixture
def copied(tmp_path):
    """The package of a guest, with its catalogue, in a directory of its own."""
    place = tmp_path / "k_hop"
    shutil.copytree(guests.location("mnemoscope.systems.k_hop"), place, ignore=shutil.ignore_patterns("zoo"))
    return place


def test_a_catalogue_that_is_older_than_its_guest_is_not_read(copied):
    assert _kept(copied) is not None
    for file in ("tasks.py", "claims/order.py", "claim_parts.py", "presets.py", "registered.json"):
        before = (copied / file).read_bytes()
        (copied / file).write_bytes(before + b"\n")
        _kept.cache_clear()
        assert _kept(copied) is None, file
        (copied / file).write_bytes(before.replace(b"\n", b"\r\n"))  # as git may check it out
        _kept.cache_clear()
        assert _kept(copied) is not None, file
    (copied / "report.py").write_text("")
    (copied / FILE).write_text("{")
    _kept.cache_clear()
    assert _kept(copied) is None


LAB = """
import mnemoscope as ms
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup
recipes = {"slow": ms.Recipe(name="slow", n_steps=9)}
model = ms.ModelSpec(d_model=8, n_heads=1)
ms.PRESETS.add("lab-v1", ms.Preset(summary="v1 of a lab", task=PermutationLookup(), model=model, recipes=recipes))
"""


@pytest.mark.thorough
def test_a_guest_without_a_catalogue_is_listed_and_gains_one(tmp_path):
    package = tmp_path / "some_lab"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "presets.py").write_text(LAB)

    def run(*words):
        code = "import sys\nfrom mnemoscope.cli import main\nmain(sys.argv[1:])\nprint('torch' in sys.modules)"
        command = [sys.executable, "-c", code, *words, "--import", "some_lab"]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    text = run("list", "presets")
    assert "v1 of a lab" in text
    assert "lab-v1" in text
    assert text.count("d 16, 1 head, no repeats") == 1
    code = "from mnemoscope.core import guests; guests.invite('some_lab'); "
    code += "from mnemoscope.cli.cataloguing import write; write('some_lab')"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    assert list(json.loads((package / FILE).read_text())["presets"]) == ["lab-v1"]
    assert "lab-v1" in (text := run("list", "presets"))
    assert text.endswith("False\n")


def test_only_guests_have_catalogues():
    with pytest.raises(InputError, match="a guest must be one of"):
        write("no.such.guest")


def test_what_a_script_registers_itself_is_listed(monkeypatch, capsys):
    from mnemoscope.core.presets import PRESETS

    monkeypatch.setitem(PRESETS._items, "of-a-script", PRESETS.get("v1"))
    assert "of-a-script" in listed("presets")
    main(["list", "presets"])
    assert "of-a-script" in capsys.readouterr().out
