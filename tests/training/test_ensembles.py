import pytest
import torch

from mnemoscope.core.errors import InputError
from mnemoscope.run.executor import train_many
from mnemoscope.training import loop
from mnemoscope.training.loop import bytes_of_run, train_in_groups, train_together
from tests.support import small_spec

SHORT = {"recipe.n_steps": 4, "recipe.warmup_steps": 0, "recipe.batch_size": 16, "recipe.checkpoint_steps": ()}


def specs(n: int) -> list:
    return [small_spec(seed=seed, changes=SHORT) for seed in range(n)]


@pytest.fixture
def groups(monkeypatch):
    """The sizes of the groups that are trained, on a device that holds `memory` bytes and refuses larger groups."""

    def install(memory: int, counted: int | None = None) -> list[int]:
        sizes: list[int] = []
        needed = bytes_of_run(specs(1)[0])

        def watched(chosen, paths, **rest):
            sizes.append(len(chosen))
            if len(chosen) * needed > memory:
                raise torch.OutOfMemoryError("too large")
            return train_together(chosen, paths, **rest | {"device": "cpu"})

        monkeypatch.setattr(loop, "usable_device", torch.device)
        monkeypatch.setattr(loop, "free_bytes", lambda device: memory / loop.SHARE)
        monkeypatch.setattr(loop, "bytes_of_run", lambda spec, device: counted or needed)
        monkeypatch.setattr(loop, "train_together", watched)
        return sizes

    return install


def test_groups_are_as_large_as_the_memory(tmp_path, groups):
    sizes = groups(3 * bytes_of_run(specs(1)[0]) + 10)
    runs = train_in_groups(specs(7), [tmp_path / str(i) for i in range(7)], device="cuda")
    assert sizes == [3, 3, 1]
    assert [run.spec.seed for run in runs] == list(range(7))
    assert all(run.finished for run in runs)


def test_groups_that_are_too_large_are_halved(tmp_path, groups):
    sizes = groups(2 * bytes_of_run(specs(1)[0]), counted=1)
    runs = train_in_groups(specs(5), [tmp_path / str(i) for i in range(5)], device="cuda")
    assert sizes == [5, 2, 3, 1, 2]
    assert [run.spec.seed for run in runs] == list(range(5))
    assert all(run.finished for run in runs)


def test_a_device_too_small_for_one_run_is_refused_in_a_line(tmp_path, groups):
    groups(10)
    with pytest.raises(InputError, match=r"^cuda has too little memory for one run of v3.*-quick$"):
        train_in_groups(specs(2), [tmp_path / "a", tmp_path / "b"], device="cuda")


def test_on_a_cpu_all_train_as_one_program(tmp_path, groups):
    sizes = groups(10**12)
    train_in_groups(specs(3), [tmp_path / str(i) for i in range(3)], device="cpu")
    assert sizes == [3]


def test_there_must_be_something_to_train():
    with pytest.raises(InputError, match="nothing to train"):
        train_in_groups([], [])


def test_what_a_run_takes_grows_with_its_batches_and_weights():
    small, large, narrow, wide = (
        bytes_of_run(small_spec(changes={**SHORT, **more}))
        for more in ({}, {"recipe.batch_size": 2**14}, {"model.d_mlp": 32}, {"model.d_mlp": 4096})
    )
    assert large > 4 * small
    assert wide - narrow > 4 * 4 * (4096 - 32) * (2 * small_spec().model.d_model + 1)


@pytest.mark.parametrize(
    ("device", "together", "expected"),
    [("cpu", None, []), ("cuda", None, [2]), ("cuda:1", None, [2]), ("cpu", True, [2]), ("cuda", False, [])],
)
def test_seeds_train_as_one_program_on_a_gpu(tmp_path, monkeypatch, device, together, expected):
    groups: list[int] = []
    monkeypatch.setattr("mnemoscope.models.building.usable_device", torch.device)
    monkeypatch.setattr("mnemoscope.training.loop.train", lambda spec, path, **rest: train_together([spec], [path]))
    monkeypatch.setattr(
        loop,
        "train_in_groups",
        lambda chosen, paths, **rest: groups.append(len(chosen)) or train_together(chosen, paths),
    )
    train_many(specs(2), [tmp_path / "0", tmp_path / "1"], device=device, together=together)
    assert groups == expected
