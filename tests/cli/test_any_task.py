"""The commands that look at runs, on a task that the package knows nothing of."""

from pathlib import Path

import pytest

from mnemoscope.cli import main


@pytest.fixture(autouse=True)
def empty_directory(tmp_path, monkeypatch, as_installed):
    monkeypatch.chdir(tmp_path)


@pytest.mark.full
def test_a_task_without_an_entry_gets_the_plain_one(copy_run, capsys):
    main(["evaluate", "run", "--n-samples", "50", "--out", "tables"])
    out = capsys.readouterr().out
    assert "copying" in out
    assert (Path("tables") / copy_run.label / "evaluation.nc").exists()
    main(["predict", "run", "1 2 3 0 1"])
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert [line[:2] for line in lines[-5:]] == [["0", "1"], ["1", "2"], ["2", "3"], ["3", "0"], ["4", "1"]]
    main(["predict", "run", "1 2 3 0 1", "--out", "view.html"])
    assert "CircuitsVis.render" in Path("view.html").read_text(encoding="utf-8")
    main(["report", "run"])
    page = Path("report.html").read_text(encoding="utf-8")
    assert "<title>Copy</title>" in page
    assert "report-explorer.html" in page
    assert Path("report-explorer.html").exists()
    for section in ("what-was-learned", "removing-one-component", "training", "single-sequences"):
        assert f'<h2 id="{section}"' in page
    main(["follow", "run"])
    out = capsys.readouterr().out
    assert "followed 1 run; 0 were complete" in out
    assert "accuracy copying" in out
    assert copy_run.trajectory().step.values.tolist() == list(copy_run.steps)

    for words, named in (
        (["predict", "run", "9"], "a token must be one of: 0, 1, 2"),
        (["predict", "run", ""], "the number of tokens must be from 1"),
    ):
        with pytest.raises(SystemExit) as end:
            main(words)
        assert end.value.code == 2
        assert named in capsys.readouterr().err
