"""The archives that come with the package: packed, damaged, unpacked by several at once, named by words."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import torch
import xarray as xr

from mnemoscope.core.errors import InputError
from mnemoscope.core.presets import SYSTEMS, preset
from mnemoscope.models import zoo
from mnemoscope.models.checkpoint import compact_checkpoint
from mnemoscope.models.files import user_cache
from mnemoscope.models.independence import check_replicates
from mnemoscope.models.manifest import FILE, ManifestEntry, read_manifest, write_manifest
from mnemoscope.models.packing import pack
from mnemoscope.models.run import COMPACT, find_runs, open_run
from mnemoscope.run.sweep import run_path
from mnemoscope.training.loop import train
from tests.support import contents, flip, random_model, small_spec

UNPACK = """
import sys; from pathlib import Path; from mnemoscope.models import zoo
zoo.folders = lambda: [Path(sys.argv[1])]; zoo.missing = list; print(*zoo.unpack_word("zoo"), sep="\\n")
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Three seeds of one configuration, 60 steps each."""
    directory = tmp_path_factory.mktemp("trained")
    return [train(small_spec("d4", seed=seed), directory / str(seed)) for seed in (3, 4, 5)]


@pytest.fixture(scope="module")
def packed(trained, tmp_path_factory) -> Path:
    return pack(trained, tmp_path_factory.mktemp("packed"))


@pytest.fixture
def archives(alone, monkeypatch) -> Path:
    """A zoo of one configuration from which nothing is missing."""
    monkeypatch.setattr(zoo, "missing", list)
    return alone


@pytest.fixture
def alone(packed, tmp_path, monkeypatch) -> Path:
    """A zoo of one configuration, without the others, and nothing unpacked."""
    (tmp_path / "archives").mkdir()
    shutil.copy(packed, tmp_path / "archives")
    monkeypatch.setattr(zoo, "folders", lambda: [tmp_path / "archives"])
    monkeypatch.setenv("MNEMOSCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(zoo.tempfile, "gettempdir", lambda: str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    return tmp_path / "archives"


def sealed(path: Path, names) -> None:
    """An archive with files of those names that is not damaged."""
    with zipfile.ZipFile(path, "w") as file:
        for name in names:
            file.writestr(name, "{}")
        file.comment = b"0" * zoo.SEAL
    body = path.read_bytes()[: -zoo.SEAL]
    path.write_bytes(body + zoo.seal(body))


# ---- packing


def test_runs_come_back_bit_for_bit(trained, archives):
    found = find_runs("zoo")
    assert [run.spec for run in found] == [run.spec for run in trained]
    kept = [(0, 10, 30, 60), (60,), (60,)]
    for run, original, steps in zip(found, trained, kept, strict=True):
        assert run.finished
        assert run.steps == steps
        expected = {name: data for name, data in contents(original.path).items() if name != "last.safetensors"}
        dropped = {f"checkpoints/{step:08d}.safetensors" for step in set(original.steps) - set(steps)}
        assert contents(run.path) == {name: data for name, data in expected.items() if name not in dropped}
        assert run.metrics().identical(original.metrics())
        state, before = run.model().state_dict(), original.model().state_dict()
        assert state.keys() == before.keys()
        assert all(torch.equal(state[name], before[name]) for name in state)


def test_the_same_runs_in_any_order_give_the_same_bytes(trained, packed, tmp_path):
    for run in trained:
        shutil.copytree(run.path, tmp_path / "moved" / run.path.name)
    again = pack(find_runs(tmp_path / "moved")[::-1], tmp_path / "again")
    assert again.read_bytes() == packed.read_bytes()
    assert again.name == f"{trained[0].label}.zip"


def test_an_archive_is_an_ordinary_zip_file(packed):
    with zipfile.ZipFile(packed) as file:
        assert file.testzip() is None
        assert file.comment == zoo.seal(packed.read_bytes()[: -zoo.SEAL])
        assert {info.date_time for info in file.infolist()} == {(1980, 1, 1, 0, 0, 0)}


def test_no_path_of_the_machine_is_packed(trained, tmp_path):
    shutil.copytree(trained[0].path, tmp_path / "run")
    file = tmp_path / "run" / "run.json"
    content = json.loads(file.read_text())
    words = [
        "train",
        "--out",
        "/home/ada/runs",
        "--config=/home/ada/a=b.yaml",
        "/home/ada/x=y",
        "--set",
        "task.a=0.5",
        "a/b",
    ]
    file.write_text(json.dumps({**content, "command": words}))
    with zipfile.ZipFile(pack([open_run(tmp_path / "run")], tmp_path / "out")) as archive:
        kept = json.loads(archive.read("seed-03/run.json"))
        assert all(str(tmp_path).encode() not in archive.read(name) for name in archive.namelist())
    assert kept["command"] == ["train", "--out", "runs", "--config=a=b.yaml", "x=y", "--set", "task.a=0.5", "b"]
    assert {**kept, "command": None} == {**content, "command": None}


def test_runs_that_are_not_whole_are_not_packed(trained, tmp_path):
    def refused(message: str) -> None:
        with pytest.raises(InputError, match=message):
            pack([open_run(tmp_path / "run")], tmp_path / "out")

    shutil.copytree(trained[0].path, tmp_path / "run")
    flip(tmp_path / "run" / "checkpoints" / "00000060.safetensors", -1)
    refused("00000060.safetensors was changed after it was written")
    (tmp_path / "run" / "checkpoints" / "00000030.safetensors").unlink()
    refused("must be one of: 0, 10, 60; got 30")
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "run" / "metrics.jsonl").write_text("".join(lines[:-1]))
    refused("does not reach step 60")
    (tmp_path / "run" / "done").unlink()
    refused("is not finished")
    assert not (tmp_path / "out").exists()


def test_seeds_may_be_added_to_an_archive(trained, packed, tmp_path):
    """Together they are what is packed at once, but for the checkpoints that the first of each part keeps."""
    pack(trained[1:], tmp_path)
    file = pack(trained[:1], tmp_path, add=True)
    assert list(zoo.read_archive(file).steps) == ["seed-03", "seed-04", "seed-05"]
    with zipfile.ZipFile(file) as found, zipfile.ZipFile(packed) as whole:
        assert set(whole.namelist()) <= set(found.namelist())
        assert all(found.read(name) == whole.read(name) for name in whole.namelist())
    assert pack(trained[:1], tmp_path, add=True).read_bytes() == file.read_bytes(), "what is there is replaced"
    assert list(zoo.read_archive(pack(trained[2:], tmp_path)).steps) == ["seed-05"], "without it the others go"
    flip(file, 100)
    with pytest.raises(InputError, match="is damaged"):
        pack(trained[:1], tmp_path, add=True)


def test_an_archive_holds_one_configuration(trained, tiny, tmp_path):
    for runs in ([], [*trained, tiny]):
        with pytest.raises(InputError, match="an archive holds one configuration"):
            pack(runs, tmp_path)


# ---- unpacking


@pytest.mark.parametrize("share", [0, 0.1, 0.5, 0.9, 1])
def test_a_damaged_archive_is_refused(archives, share):
    (file,) = archives.glob("*.zip")
    flip(file, int(share * (file.stat().st_size - 1)))
    with pytest.raises(InputError, match=r"\.zip is damaged \(its digest does not match\); install mnemoscope again"):
        find_runs("zoo")


@pytest.mark.parametrize("length", [0, 10, 63, 64, 1000])
def test_a_truncated_archive_is_refused(archives, length):
    (file,) = archives.glob("*.zip")
    file.write_bytes(file.read_bytes()[:length])
    with pytest.raises(InputError, match="is damaged"):
        find_runs("zoo")


@pytest.mark.parametrize(
    "name", ["../run.json", "/run.json", "seed-00/../../x/run.json", "seed-00/a.pkl", "seed-00\\run.json", "seed-00/"]
)
def test_only_files_of_runs_are_unpacked(archives, tmp_path, name):
    sealed(archives / "x-quick.zip", ["seed-00/run.json", name])
    with pytest.raises(InputError, match="is no archive of runs"):
        find_runs("zoo:x-quick")
    assert not (tmp_path / "cache").exists()


def test_what_is_missing_or_cut_short_is_written_again(archives):
    first = {run.path: contents(run.path) for run in find_runs("zoo")}
    run, other, _ = first
    (run / "checkpoints" / "00000030.safetensors").unlink()
    (run / "metrics.jsonl").write_text("{")
    (run / ".metrics.jsonl.0").write_text("left by a process that was killed")
    shutil.rmtree(other)
    assert {run.path: contents(run.path) for run in find_runs("zoo")} == first


def test_what_is_there_is_not_written_again(archives):
    def times() -> dict[Path, int]:
        return {file: file.stat().st_mtime_ns for run in find_runs("zoo") for file in run.path.rglob("*")}

    assert times() == times()


def test_an_interrupted_unpacking_is_completed(archives, trained, monkeypatch):
    write, left = zoo.write_atomically, iter(range(4))

    def interrupted(path: Path, content: bytes, **kind: bool) -> None:
        if next(left, None) is None:
            raise KeyboardInterrupt
        write(path, content, **kind)

    with monkeypatch.context() as patch:
        patch.setattr(zoo, "write_atomically", interrupted)
        with pytest.raises(KeyboardInterrupt):
            find_runs("zoo")
    assert [run.steps for run in find_runs("zoo")] == [(0, 10, 30, 60), (60,), (60,)]


@pytest.mark.thorough
def test_processes_may_unpack_at_once(archives, tmp_path):
    words = [sys.executable, "-c", UNPACK, str(archives)]
    started = [subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(4)]
    ends = [process.communicate() for process in started]
    assert [process.returncode for process in started] == [0] * 4, ends
    assert len({out for out, _ in ends}) == 1
    (place,) = tmp_path.glob("cache/zoo/*/*")
    assert not [file for file in place.rglob(".*") if file.is_file()]
    with zipfile.ZipFile(next(archives.glob("*.zip"))) as file:
        assert all((place / name).read_bytes() == file.read(name) for name in file.namelist())


def test_an_archive_that_its_manifest_does_not_list_as_it_is_is_refused(archives, trained):
    """An archive that was edited and sealed anew differs from the manifest; packing takes the entry out."""
    file = next(archives.glob("*.zip"))
    packed = zoo.read_archive(file)
    entry = ManifestEntry(sha256=packed.digest, machine="this one", runs={3: {"final_weights": "abc"}})
    write_manifest(archives, {packed.label: entry})
    assert read_manifest(archives) == {packed.label: entry}
    run = find_runs("zoo")[0]
    assert run.origin["final_weights"] == "abc"
    with pytest.raises(InputError, match="does not hold the weights that training ended with"):
        check_replicates([run])
    write_manifest(archives, {packed.label: replace(entry, sha256="0" * 64)})
    with pytest.raises(InputError, match=r"is not the archive that manifest\.json beside it lists"):
        zoo.read_archive(file)
    pack(trained, archives)
    assert read_manifest(archives) == {}
    (archives / FILE).write_text("[")
    with pytest.raises(InputError, match=r"manifest\.json is damaged"):
        zoo.read_archive(file)


def test_another_archive_is_unpacked_beside_the_old_one(archives, trained):
    old = find_runs("zoo")
    pack(trained[:2], archives)
    new = find_runs("zoo")
    assert [run.spec.seed for run in new] == [3, 4]
    assert not {run.path for run in old} & {run.path for run in new}


# ---- where to


def test_where_the_cache_cannot_be_written_a_temporary_directory_serves(archives, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MNEMOSCOPE_CACHE", str(tmp_path / "file" / "below"))
    place = find_runs("zoo")[0].path
    assert place.is_relative_to(tmp_path / "temporary" / f"mnemoscope-{os.getuid()}")
    assert (tmp_path / "temporary" / f"mnemoscope-{os.getuid()}").stat().st_mode & 0o077 == 0


def test_where_users_have_no_numbers_their_own_temporary_directory_serves(archives, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MNEMOSCOPE_CACHE", str(tmp_path / "file" / "below"))
    monkeypatch.delattr(os, "getuid")
    assert find_runs("zoo")[0].path.is_relative_to(tmp_path / "temporary" / "mnemoscope")


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_a_directory_without_permission_counts_as_one_that_cannot_be_written(archives, tmp_path):
    (tmp_path / "cache").mkdir(mode=0o500)
    assert find_runs("zoo")[0].path.is_relative_to(tmp_path / "temporary")


def test_an_unpacked_zoo_serves_where_nothing_can_be_written(archives, monkeypatch):
    before = find_runs("zoo")

    def refused(path: Path, content: bytes, **kind: bool) -> None:
        raise PermissionError(f"{path} cannot be written")

    monkeypatch.setattr(zoo, "write_atomically", refused)
    assert find_runs("zoo") == before


def test_where_no_place_can_be_written_the_way_out_is_named(archives, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MNEMOSCOPE_CACHE", str(tmp_path / "file"))
    open_to_all = tmp_path / "temporary" / f"mnemoscope-{os.getuid()}"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    with pytest.raises(InputError, match=r"can be written by others; set MNEMOSCOPE_CACHE to another directory"):
        find_runs("zoo")


def test_the_cache_is_where_the_platform_keeps_such_things(monkeypatch, tmp_path):
    for name in ("MNEMOSCOPE_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(zoo.Path, "home", lambda: tmp_path)
    monkeypatch.setattr(sys, "platform", "linux")
    assert user_cache() == tmp_path / ".cache" / "mnemoscope"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # the convention: to be ignored
    assert user_cache() == tmp_path / ".cache" / "mnemoscope"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert user_cache() == tmp_path / "xdg" / "mnemoscope"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert user_cache() == tmp_path / "Library" / "Caches" / "mnemoscope"
    monkeypatch.setenv("MNEMOSCOPE_CACHE", str(tmp_path / "mine"))
    assert user_cache() == tmp_path / "mine"


# ---- words


def test_words_name_all_some_or_one(archives, trained):
    label = trained[0].label
    assert find_runs("zoo") == find_runs("zoo:") == find_runs(f"zoo:{label}") == find_runs([Path(f"zoo:{label}/")])
    one = open_run(Path(f"zoo:{label}/seed-04"))
    assert one.spec == trained[1].spec
    assert find_runs(f"zoo:{label}/seed-04") == [one]
    assert zoo.unpack_word("zoology") is zoo.unpack_word("runs/zoo") is zoo.unpack_word("./zoo:x") is None


@pytest.mark.parametrize(
    ("word", "named"),
    [
        ("zoo:v9", r"a configuration of the zoo must be one of: d4\+\w+-quick; got 'v9'"),
        ("zoo:{}/seed-99", r"a run of zoo:d4\+\w+-quick must be one of: seed-03, seed-04, seed-05; got 'seed-99'"),
        ("zoo:{}/seed-03/checkpoints", "must be one of: seed-03"),
        ("zoo:../archives/{}", "a configuration of the zoo must be one of"),
    ],
)
def test_a_word_that_names_nothing_says_what_exists(archives, trained, word, named):
    for read in (find_runs, open_run):
        with pytest.raises(InputError, match=named):
            read(word.format(trained[0].label))


def test_one_run_is_not_several(archives, trained):
    with pytest.raises(InputError, match=r"zoo names 3 runs; choose one, such as zoo:d4\+\w+-quick/seed-03"):
        open_run("zoo")


def test_an_empty_zoo_says_so(alone, monkeypatch):
    next(alone.glob("*.zip")).unlink()
    for word in ("zoo", "zoo:v1-published"):
        with pytest.raises(InputError, match=r'not installed; pip install "mnemoscope\[zoo\]" brings'):
            find_runs(word)
    monkeypatch.setattr(zoo, "missing", list)
    for word in ("zoo", "zoo:v1-published"):
        with pytest.raises(InputError, match="no trained runs come with the installed systems"):
            find_runs(word)


def test_a_directory_of_that_name_is_not_taken_for_it(archives, trained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(trained[0].path, tmp_path / "zoo" / "mine")
    with pytest.raises(InputError, match=r"zoo is a directory here; write zoo: for the zoo, or /.*/zoo for that"):
        find_runs("zoo")
    assert len(find_runs("zoo:")) == 3
    assert find_runs(tmp_path / "zoo") == [open_run(tmp_path / "zoo" / "mine")]
    assert {run.path for run in find_runs(".")} >= {Path("zoo/mine")}


def test_a_run_that_is_not_installed_is_named_with_the_command_that_brings_it(alone, trained, monkeypatch):
    brings = r'pip install "mnemoscope\[zoo\]" brings'
    for word in ("zoo:v3-published", "zoo:k-hop-4-quick/seed-16", "zoo:v3+914f44-published"):
        with pytest.raises(InputError, match=rf"^zoo:[\w-]+ is not installed; {brings} it$"):
            open_run(word)
    with pytest.raises(InputError, match=rf"86 configurations are not installed; {brings} them \(installed: zoo:d4"):
        find_runs("zoo")
    assert len(find_runs(f"zoo:{trained[0].label}")) == 3
    monkeypatch.setattr(zoo, "_distributions", lambda: [alone])
    assert len(find_runs("zoo")) == 3, "with some data installed the word stands for what there is"


def test_the_archives_of_an_installed_distribution_are_found(packed, tmp_path, monkeypatch):
    """The package of a distribution of data holds them, and need not be imported."""
    package = tmp_path / "mnemoscope_zoo_example"
    package.mkdir()
    (package / "__init__.py").write_text("raise AssertionError")
    shutil.copy(packed, package)
    monkeypatch.syspath_prepend(tmp_path)
    points = [EntryPoint(name="example", value=package.name, group=zoo.GROUP)]
    monkeypatch.setattr(zoo, "entry_points", lambda group: points if group == zoo.GROUP else [])
    monkeypatch.setattr(zoo, "guests", tuple)
    assert zoo.labels() == [packed.stem]
    assert zoo.not_installed() is None


# ---- compact archives


def test_a_compact_archive_keeps_what_was_learned_and_what_was_measured(trained, tmp_path, monkeypatch):
    runs = []
    for run in trained:
        shutil.copytree(run.path, tmp_path / "runs" / run.path.name)
        runs.append(open_run(tmp_path / "runs" / run.path.name))
    with pytest.raises(
        InputError, match="has no trajectory over all its checkpoints; `mnemoscope evaluate --checkpoints` makes it"
    ):
        pack(runs, tmp_path / "archives", compact=True)
    steps = list(runs[0].steps)
    for run in runs:
        run.write_trajectory(xr.Dataset({"loss": ("step", [0.5] * len(steps))}, coords={"step": steps}))
    small = pack(runs, tmp_path / "archives", compact=True)
    assert small.stat().st_size < 0.7 * pack(runs, tmp_path / "whole").stat().st_size
    monkeypatch.setattr(zoo, "folders", lambda: [tmp_path / "archives"])
    monkeypatch.setenv("MNEMOSCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(zoo, "missing", list)
    for run, original in zip(find_runs("zoo"), runs, strict=True):
        assert (run.steps, run.finished) == ((60,), True)
        assert run.trajectory().identical(original.trajectory())
        state, expected = run.model().state_dict(), original.model().state_dict()
        assert all(value.dtype == expected[name].dtype for name, value in state.items())
        for name, value in expected.items():
            torch.testing.assert_close(state[name], value, atol=1e-4, rtol=1e-3, equal_nan=True)
        assert not torch.equal(state["embed.W_E"], expected["embed.W_E"])


def test_a_compact_checkpoint_of_another_model_is_refused(trained, tmp_path):
    run = open_run(shutil.copytree(trained[0].path, tmp_path / "run"))
    other = random_model(d_model=8)
    content = compact_checkpoint(other, random_model(d_model=8, seed=1), step=60)
    run.checkpoint_path(60).unlink()
    run.checkpoint_path(60).with_suffix(COMPACT).write_bytes(content)
    assert run.steps == (0, 10, 30, 60)
    with pytest.raises(InputError, match="the weights do not fit the specification"):
        run.model(60)


# ---- what is shipped


def test_what_is_shipped_is_planned_and_nothing_else_is_missing():
    plan = {label: runs for system in SYSTEMS.names() for label, runs in zoo.runs_to_pack(system).items()}
    compact = {label for name in SYSTEMS.names() if SYSTEMS.get(name).compact for label in zoo.runs_to_pack(name)}
    shipped = {label: sorted(specs) for label, specs in plan.items()}
    assert zoo.labels() == sorted(shipped)
    assert all(file.suffix == ".zip" or file.name == FILE for folder in zoo.folders() for file in folder.glob("*"))
    for archive in zoo.archives():
        seeds = shipped[archive.label]
        recipe = plan[archive.label][seeds[0]].recipe
        if archive.label in compact:
            assert list(archive.steps) == [f"seed-{seed:02d}" for seed in seeds]
            last = [steps for steps in archive.steps.values() if steps != (recipe.n_steps,)]
            assert recipe.stop_at is not None or not last
            assert all(len(steps) == 1 and steps[0] < recipe.n_steps for steps in last)
            continue
        first, *others = archive.steps.items()
        assert first == (f"seed-{seeds[0]:02d}", recipe.checkpoints)
        assert dict(others) == {f"seed-{seed:02d}": (recipe.n_steps,) for seed in seeds[1:]}


def test_what_is_shipped_holds_no_path_of_a_machine():
    for archive in zoo.archives():
        with archive.open() as file:
            for name in file.namelist():
                if name.endswith("run.json"):
                    assert not [word for word in json.loads(file.read(name))["command"] if "/" in word]


@pytest.mark.slow
def test_a_shipped_run_trained_anew_is_the_same(tmp_path, monkeypatch):
    """Bits are equal on equal hardware only; rounding shows in key biases at once, elsewhere after some 200 steps.

    The gradient of a key bias is zero but for rounding, of which Adam makes whole steps.
    """
    monkeypatch.setenv("MNEMOSCOPE_CACHE", str(tmp_path / "cache"))
    label = "v1-quick"
    if label not in zoo.labels():
        pytest.skip(f"{label} is not in the zoo")
    shipped = open_run(f"zoo:{label}/seed-16")
    again = train(shipped.spec, tmp_path / "run")
    early = [step for step in shipped.steps if step <= 100]
    assert len(early) >= 8
    for step in early:
        state, expected = again.model(step).state_dict(), shipped.model(step).state_dict()
        for name in expected:
            if not name.endswith("b_K"):
                torch.testing.assert_close(state[name], expected[name], rtol=0, atol=1e-5, equal_nan=True)
    new, old = (run.metrics().isel(step=-1) for run in (again, shipped))
    skills = [f"{split}_{skill}" for split in ("train", "test") for skill in ("elimination", "recall")]
    assert all(abs(float(new[skill] - old[skill])) <= 0.01 for skill in skills)


def test_labels_of_what_is_shipped_are_words_and_the_earlier_ones_keep_working():
    assert not [label for label in zoo.labels() if "+" in label]
    run = open_run("zoo:v3-no-norm-published/seed-16")
    assert run.label == "v3-no-norm-published"
    assert run.spec.label == "v3+914f44-published"
    assert open_run("zoo:v3+914f44-published/seed-16") == run
    assert zoo.is_zoo_word("zoo:memories+1491e6-sgd")
    with pytest.raises(InputError, match=r"a configuration of the zoo must be one of: .*; got 'v3\+000000-published'"):
        zoo.is_zoo_word("zoo:v3+000000-published")


def test_a_run_that_lies_under_its_earlier_label_stays_there(tmp_path):
    spec = preset("v3", "published", 16, changes={"model.normalization": "none"})
    assert run_path(tmp_path, spec) == tmp_path / "v3-no-norm-published" / "seed-16"
    earlier = tmp_path / "v3+914f44-published" / "seed-16"
    earlier.mkdir(parents=True)
    assert run_path(tmp_path, spec) == earlier
    other = preset("v3", "published", 16, changes={"model.d_model": 8})
    assert run_path(tmp_path, other).parent.name == other.label


def test_a_run_of_the_zoo_is_named_by_its_word(tmp_path):
    [run] = zoo.unpack_word("zoo:v3-quick/seed-16") or []
    assert zoo.run_word(run) == "zoo:v3-quick/seed-16"
    own = tmp_path / "zoo" / "0123456789abcdef" / "v3-quick" / "seed-16"
    assert zoo.run_word(own) == str(own)
    assert zoo.run_word(Path("run")) == "run"
