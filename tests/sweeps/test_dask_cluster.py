"""What is refused of `--scheduler` before any work, each in one line and at once."""

import socket
import sys
from time import monotonic

import pytest

from mnemoscope.cli import main
from mnemoscope.core.errors import InputError
from mnemoscope.sweeps.dask_cluster import client, on_scheduler


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
    assert client() is None
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


def test_a_cluster_is_announced_once_and_forgotten(tmp_path):
    file = tmp_path / "cluster.yaml"
    arguments = "{processes: false, n_workers: 1, threads_per_worker: 1, dashboard_address: '127.0.0.1:0'}"
    file.write_text(f"class: distributed.LocalCluster\narguments: {arguments}\nworkers: 1\n")
    lines: list[str] = []
    with on_scheduler(str(file), announce=lines.append):
        assert client().nthreads()
    assert client() is None
    (line,) = lines
    assert line.startswith("scheduler ")
    assert "workers: 1 now; dashboard http://" in line
