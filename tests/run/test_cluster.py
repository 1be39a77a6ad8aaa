"""What is refused of `--scheduler` before any work, each in one line and at once, and how workers start."""

import os
import socket
import subprocess
import sys
from pathlib import Path
from time import monotonic

import pytest
import yaml

from mnemoscope.cli import main
from mnemoscope.core.errors import InputError
from mnemoscope.run.cluster import on_scheduler
from mnemoscope.run.executor import client

SLURM = Path(__file__).parents[2] / "docs" / "examples" / "slurm.yaml"
SETTINGS = (
    "from distributed.nanny import _get_env_variables as found; "
    'print(*sorted(found("distributed.nanny.pre-spawn-environ")))'
)


@pytest.fixture
def closed_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def refused(where: str) -> str:
    began = monotonic()
    with pytest.raises(InputError) as caught, on_scheduler(where):
        raise AssertionError("there is no such cluster")
    assert monotonic() - began < 60
    assert "\n" not in str(caught.value)
    assert client.get() is None
    return str(caught.value)


def test_without_the_extra_a_line_names_it(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "distributed", None)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["train", "--preset", "v3", "--scheduler", "local"])
    assert ended.value.code == 2
    message = "mnemoscope: --scheduler needs dask.distributed: pip install 'mnemoscope[dask]'\n"
    assert capsys.readouterr().err == message
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("address", ["nonsense", "localhost", "tcp://localhost", "http://localhost:80", "a:b:c", ""])
def test_what_is_no_address_is_refused(address):
    assert "--scheduler must be local, the address of a Dask scheduler such as tcp://host:8786, or a YAML" in refused(
        address
    )


def test_a_slip_of_the_pen_is_noticed():
    assert refused("locl").endswith("; the nearest: local")


def test_where_nobody_listens_is_refused_at_once(closed_port):
    assert "nobody answers there: " in refused(f"tcp://127.0.0.1:{closed_port}")
    assert "nobody answers there: " in refused(f"127.0.0.1:{closed_port}")


@pytest.mark.thorough  # waits for an answer
def test_who_listens_and_is_no_scheduler_is_refused():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert "is no Dask scheduler that answers" in refused(f"tcp://127.0.0.1:{listener.getsockname()[1]}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must hold the key class, such as dask_jobqueue.SLURMCluster"),
        ("- class", "must hold the key class"),
        ("class: 3", "must hold the key class"),
        ("class: [", "is no YAML"),
        ("class: a.b\nworker: 3", "must be one of: class, arguments, workers, adapt; got 'worker'"),
        ("class: a.b\nworkers: many", "must be a whole number; got 'many'"),
        ("class: a.b\nworkers: 0", "must be at least 1; got 0"),
        ("class: a.b\narguments: [1]", "arguments in "),
        ("class: no_such_package.Cluster", "there is no no_such_package.Cluster; is no-such-package installed?"),
        ("class: distributed.NoSuchCluster", "there is no distributed.NoSuchCluster"),
        ("class: LocalCluster", "there is no LocalCluster"),
        ("class: distributed.LocalCluster\narguments: {n_workers: 1, foo: 1, processes: false}", "cannot be made"),
    ],
)
def test_a_file_that_makes_no_cluster_is_refused(tmp_path, text, message):
    file = tmp_path / "cluster.yaml"
    file.write_text(text)
    assert message in refused(str(file))


def test_a_file_that_is_not_there_is_refused(tmp_path):
    assert "cannot be read: No such file or directory" in refused(str(tmp_path / "cluster.yaml"))


def test_workers_of_several_threads_are_refused(tmp_path):
    file = tmp_path / "cluster.yaml"
    arguments = "{processes: false, n_workers: 1, threads_per_worker: 2, dashboard_address: '127.0.0.1:0'}"
    file.write_text(f"class: distributed.LocalCluster\narguments: {arguments}\n")
    assert "every worker of the Dask cluster must have one thread; got 2" in refused(str(file))


@pytest.mark.parametrize("kept", [pytest.param(None, id="by default"), pytest.param("4096", id="set by the user")])
def test_local_workers_keep_their_memory(kept, monkeypatch):
    """Dask's own setting has the C library ask the system anew for the memory of every larger tensor."""
    if kept:
        monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", kept)
    else:
        monkeypatch.delenv("MALLOC_TRIM_THRESHOLD_", raising=False)
    with on_scheduler("local", jobs=1):
        found = client.get().run(os.getenv, "MALLOC_TRIM_THRESHOLD_")
    assert list(found.values()) == [kept]


def test_the_line_for_other_workers_leaves_that_setting_out(monkeypatch):
    lines = yaml.safe_load(SLURM.read_text())["arguments"]["job_script_prologue"]
    (line,) = [line for line in lines if "NANNY" in line]
    found = subprocess.run(["bash", "-c", f"{line}; {sys.executable} -c '{SETTINGS}'"], capture_output=True, text=True)
    assert found.stdout.split() == ["MKL_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"], found.stderr


def test_a_cluster_is_announced_once_and_forgotten(tmp_path):
    file = tmp_path / "cluster.yaml"
    arguments = "{processes: false, n_workers: 1, threads_per_worker: 1, dashboard_address: '127.0.0.1:0'}"
    file.write_text(f"class: distributed.LocalCluster\narguments: {arguments}\nworkers: 1\n")
    lines: list[str] = []
    with on_scheduler(str(file), announce=lines.append):
        assert client.get().nthreads()
    assert client.get() is None
    (line,) = lines
    assert line.startswith("scheduler ")
    assert "workers: 1 now; dashboard http://" in line
