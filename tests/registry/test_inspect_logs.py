"""Verdicts as logs of Inspect: the fields that its reader needs, and nothing but what the entries say."""

import json
import re

from mnemoscope.claims.entry import packaged_entries
from mnemoscope.cli import main
from mnemoscope.registry.inspect_logs import inspect_logs
from tests.registry.made_up import registry

NEEDED = {
    "eval": {"created", "task", "dataset", "model", "config"},
    "sample": {"id", "epoch", "input", "target"},
    "score": {"value"},
    "result": {"name", "scorer"},
}
"""Required fields of `EvalSpec`, `EvalSample`, `Score` and `EvalScore` in inspect-ai 0.3.285."""


def test_a_log_a_system_has_a_sample_for_every_claim_with_a_verdict():
    logs = inspect_logs(registry(), "0.1")
    assert list(logs) == ["mnemo-tiny-recall", "mnemo-birth", "mnemo-memory-theory", "mnemo-language-models"]
    for log in logs.values():
        json.dumps(log, allow_nan=False)
        assert (log["version"], log["status"]) == (2, "success")
        assert NEEDED["eval"] <= set(log["eval"])
        assert log["eval"]["created"] == "2026-11-22T00:00:00+00:00"
        samples = log["samples"]
        assert [each["id"] for each in samples] == log["eval"]["dataset"]["sample_ids"]
        assert all(NEEDED["sample"] <= set(each) for each in samples)
        assert all(NEEDED["score"] <= set(score) for each in samples for score in each["scores"].values())
        [result] = log["results"]["scores"]
        assert NEEDED["result"] <= set(result)
        assert sum(metric["value"] for metric in result["metrics"].values()) == len(samples)
    first = logs["mnemo-tiny-recall"]["samples"][0]
    assert first["scores"]["verdict"]["value"] == first["target"] == "SUPPORTED"
    assert first["scores"]["share"]["value"] == 1
    assert first["scores"]["verdict"]["metadata"]["effect"] == 0.9
    assert set(logs["mnemo-birth"]["samples"][0]["scores"]) == {"verdict"}  # no replicate passed the gate


def test_the_command_writes_the_logs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    main(["claims", "export", "memory-theory", "birth", "--format", "inspect", "--out", "logs"])
    files = list((tmp_path / "logs").iterdir())
    assert all(re.match(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d_", file.name) for file in files)
    written = {file.name.partition("_")[2]: json.loads(file.read_text(encoding="utf-8")) for file in files}
    assert set(written) == {"mnemo-memory-theory.json", "mnemo-birth.json"}
    assert {each["id"] for each in written["mnemo-memory-theory.json"]["samples"]} == {
        f"mnemo:memory-theory/{name}@1" for name in ("M4", "M4-mlp", "M4-outer")
    }
    judged = [entry for _, entry in packaged_entries() if entry.system in ("memory-theory", "birth") and entry.verdicts]
    assert len(judged) >= 21
    assert capsys.readouterr().out == f"wrote 2 logs with {len(judged)} verdicts to logs\n"
