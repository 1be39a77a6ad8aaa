"""`mnemoscope export`: the directory, what it says, what it refuses."""

import pytest

from mnemoscope.cli import main


def test_a_run_leaves_for_other_libraries(tiny, tmp_path, capsys):
    main(["export", str(tiny.path), "--step", "30", "--out", str(tmp_path / "out")])
    assert "with a model card in README.md" in "".join(capsys.readouterr().out.splitlines())
    assert {"config.json", "model.safetensors", "README.md", "transformers"} == {
        file.name for file in (tmp_path / "out").iterdir()
    }
    assert "for 30 steps" in (tmp_path / "out" / "README.md").read_text()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--step", "31"], "the step of"),
        (["--out", "runs"], "runs holds something else (run); name an empty directory"),
        (["--out", "runs/run/run.json"], "runs/run/run.json is a file"),
    ],
)
def test_what_cannot_be_exported_is_refused(refused, words, reason, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert reason in refused(["export", "runs/run", *words])
