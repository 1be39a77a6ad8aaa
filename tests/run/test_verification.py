"""Which runs are verified, which are not, and which are refused."""

import json
import shutil

import pytest

from mnemoscope.core.errors import InputError
from mnemoscope.models import zoo
from mnemoscope.models.manifest import read_manifest
from mnemoscope.models.packing import pack
from mnemoscope.models.run import find_runs, machine, open_run
from mnemoscope.run.verification import list_archive, verify_runs
from mnemoscope.training.loop import train
from tests.support import small_spec


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    directory = tmp_path_factory.mktemp("verified")
    return [train(small_spec("d4", seed=seed), directory / f"seed-{seed:02d}") for seed in (3, 4, 5)]


@pytest.fixture
def copies(trained, tmp_path):
    return [open_run(shutil.copytree(run.path, tmp_path / run.path.name)) for run in trained]


def edit_record(run, drop=(), **changes):
    content = {**json.loads((run.path / "run.json").read_text()), **changes}
    (run.path / "run.json").write_text(json.dumps({name: each for name, each in content.items() if name not in drop}))
    return open_run(run.path)


def test_runs_of_our_own_are_verified_and_one_of_them_is_replayed(trained):
    (found,) = verify_runs(trained)
    assert found.word == "verified"
    assert sum(each.replayed is not None for each in found.runs) == 1
    label = trained[0].label
    assert str(found) == f"{label}: 3 verified (1 replayed)"
    line = str(found.runs[0])
    assert line.startswith(f"{label}, seed 3: verified; it ended where its recipe says")
    for part in (
        "final weights are those written down",
        "the final weights descend from the initial ones",
        "no two runs are nearer",
    ):
        assert part in line
    assert "the first batches follow from the seed" in line
    (found,) = verify_runs(trained, "all")
    assert all(each.replayed.exact for each in found.runs)
    (found,) = verify_runs(trained, 0)
    assert not any(each.replayed for each in found.runs)
    with pytest.raises(InputError, match="replays must be one of"):
        verify_runs(trained, "some")


def test_a_run_without_digests_is_unverified_with_the_reasons(copies):
    runs = [edit_record(copies[0], drop=("final_weights", "origin")), *copies[1:]]
    (found,) = verify_runs(runs, 0)
    assert found.word == "unverified"
    assert found.count("unverified") == 1
    assert "seed 3: unverified; no digest of the final weights was written down" in str(found.runs[0])


def test_first_batches_of_another_seed_are_refused(copies):
    origin = {**copies[0].origin, "first_batches": copies[1].origin["first_batches"]}
    (found,) = verify_runs([edit_record(copies[0], origin=origin), *copies[1:]], 0)
    assert found.word == "refused"
    assert "does not name the first batches of seed 3" in str(found.runs[0])
    (found,) = verify_runs([edit_record(copies[0], origin={**origin, "machine": "Other"})], 0)
    assert found.runs[0].missing == ("the first batches were drawn on another kind of machine",)


def test_a_replay_that_does_not_agree_is_a_refusal(copies):
    log = copies[0].path / "metrics.jsonl"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    lines[1]["train_loss"] *= 2
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (found,) = verify_runs(copies, "all")
    assert [each.state for each in found.runs] == ["refused", "verified", "verified"]
    assert "is not what its seed 3 gives: 20 steps replayed" in found.runs[0].problem


@pytest.mark.full
def test_an_archive_is_listed_with_digests_and_replays(trained, tmp_path, monkeypatch):
    """What seals older runs: the manifest names their digests, and what their replays agreed with."""
    bare = [open_run(shutil.copytree(run.path, tmp_path / run.path.name)) for run in trained]
    bare = [edit_record(run, drop=("final_weights", "origin")) for run in bare]
    (tmp_path / "archives").mkdir()
    file = pack(bare, tmp_path / "archives")
    monkeypatch.setattr(zoo, "folders", lambda: [file.parent])
    monkeypatch.setattr(zoo, "missing", list)
    monkeypatch.setenv("MNEMOSCOPE_CACHE", str(tmp_path / "cache"))
    list_archive(file)
    (entry,) = read_manifest(file.parent).values()
    assert entry.machine == machine()
    assert all("bit for bit" in run["replay"] for run in entry.runs.values())
    assert entry.runs[3]["final_weights"] == trained[0].final_weights
    assert entry.runs[3]["first_batches"] == trained[0].origin["first_batches"]
    zoo._listed_runs.cache_clear()
    (found,) = verify_runs(find_runs("zoo"), 0)
    assert found.word == "verified"
    assert "when it was listed: 20 steps replayed" in str(found.runs[0])
