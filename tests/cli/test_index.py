"""`mnemoscope index`, and the commands that end with such a page."""

import shutil

import pytest

from mnemoscope.cli import main
from mnemoscope.cli.commands.index import refresh


@pytest.fixture(autouse=True)
def directory(tmp_path, monkeypatch, tiny, as_installed):
    shutil.copytree(tiny.path, tmp_path / "runs" / "v3-quick" / "seed-00")
    monkeypatch.chdir(tmp_path)


def test_the_page_lies_in_the_directory_or_where_out_says(tmp_path, capsys):
    main(["index", "runs"])
    assert "recipe.n_steps=60" in (tmp_path / "runs" / "index.html").read_text()
    main(["index", "runs", "--out", "pages/all.html"])
    assert 'href="../runs/v3-quick/seed-00/"' in (tmp_path / "pages" / "all.html").read_text()
    main(["index"])
    assert "runs/index.html" in (tmp_path / "index.html").read_text()
    assert "wrote index.html" in capsys.readouterr().out


def test_a_second_call_writes_the_same(tmp_path):
    main(["index", "runs"])
    first = (tmp_path / "runs" / "index.html").read_bytes()
    main(["index", "runs"])
    assert (tmp_path / "runs" / "index.html").read_bytes() == first


@pytest.mark.parametrize(
    ("words", "named"), [(["index", "nowhere"], "is no directory"), (["index", "site"], "no such overview")]
)
def test_what_is_refused(words, named, tmp_path, capsys):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "index.html").write_text("<html></html>")
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 2
    assert named in capsys.readouterr().err
    assert (tmp_path / "site" / "index.html").read_text() == "<html></html>"


def test_commands_leave_a_page_of_another_kind_alone(tmp_path, capsys):
    refresh(tmp_path)
    assert "v3-quick" in (tmp_path / "index.html").read_text()
    (tmp_path / "index.html").write_text("mine")
    refresh(tmp_path)
    assert (tmp_path / "index.html").read_text() == "mine"
    assert "left as it is" in capsys.readouterr().out


def test_list_shows_what_was_changed(capsys):
    main(["list", "runs"])
    assert "recipe.n_steps=60" in "".join(capsys.readouterr().out.replace("│", " ").split())
