import re

import pytest
import torch

import mnemoscope as ms
from mnemoscope.explorer.content import ExactTable, choose_evenly
from mnemoscope.explorer.packing import Packer, checkpoint_bytes, pack_tensor, page_configuration
from mnemoscope.explorer.page import module_source
from tests.explorer.chromium import computed, needs_chromium
from tests.support import foreign_model, random_model


def test_half_precision_only_where_it_holds_the_numbers():
    assert pack_tensor(torch.tensor([0.5, -3.0]))["half"]
    assert not pack_tensor(torch.tensor([0.1]))["half"]


def test_checkpoints_share_what_training_left_alone():
    packer, model = Packer(), random_model()
    first = packer.checkpoint(model)
    with torch.no_grad():
        model.unembed.W_U += 1
    second = packer.checkpoint(model)
    assert {name for name in first if first[name] != second[name]} == {"unembed.W_U"}
    assert len(packer.tensors) == len({*first.values(), *second.values()})


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"n_ctx": 40_000}, "1,000,000"),
        ({"positional_embedding_type": "rotary", "rotary_dim": 2, "d_head": 4, "use_NTK_by_parts_rope": True}, "NTK"),
        ({"positional_embedding_type": "alibi"}, "positions of the kind alibi"),
        ({"parallel_attn_mlp": True}, "parallel_attn_mlp"),
        ({"gated_mlp": True}, "W_gate"),
        ({"act_fn": "solu"}, "solu"),
        ({"n_key_value_heads": 1}, "n_key_value_heads"),
    ],
)
def test_models_that_the_page_cannot_run_are_refused(changes, word):
    with pytest.raises(ms.InputError, match=word):
        page_configuration(foreign_model(**{"d_model": 32, **changes}))


def test_models_that_read_vectors_are_refused():
    with pytest.raises(ms.InputError, match="vectors"):
        page_configuration(ms.find_runs("zoo:retrieval-2-1-layer-quick")[0].model())


def test_names_at_the_top_of_modules_are_names_of_the_whole_script():
    declared = re.findall(r"^(?:const|let|function\*?|class) (\w+|\[[\w, ]+\])", module_source("app"), re.MULTILINE)
    names = [name for one in declared for name in re.findall(r"\w+", one)]
    assert len(names) > 50
    assert len(set(names)) == len(names)
    assert not re.search(r"^(?:import|export) ", module_source("app"), re.MULTILINE)


@needs_chromium
def test_what_was_packed_is_unpacked(tmp_path):
    values = torch.tensor([[0.1, -2.5e-8, 6e-8], [65504.0, 0.0, -1.5]])
    halves = torch.tensor([0.0, -0.0, 6.103515625e-05, 5.960464477539063e-08, 65504.0, -1.0009765625])
    packed = [pack_tensor(values), pack_tensor(halves)]
    assert [each["half"] for each in packed] == [False, True]
    whole = computed(("weights",), "return content.map((each) => [...unpack(each).data]);", packed, tmp_path)
    for found, expected in zip(whole, (values, halves), strict=True):
        assert torch.equal(torch.tensor(found), expected.flatten())


def test_fewer_checkpoints_are_evenly_apart_and_end_with_the_last():
    steps = [0, 1, 2, 4, 8, 16, 32, 64, 128]
    assert choose_evenly(steps, None) == choose_evenly(steps, 20) == steps
    assert choose_evenly(steps, 5) == [0, 2, 8, 32, 128]
    assert choose_evenly(steps, 2) == [0, 128]
    assert choose_evenly(steps, 1) == [128]


def test_a_page_that_would_be_too_large_is_refused_before_all_is_packed(tiny, monkeypatch):
    model = tiny.model()
    single = sum(len(pack_tensor(value)["data"]) for _, value in model.named_parameters())
    assert 0 < single <= checkpoint_bytes(model)
    monkeypatch.setattr("mnemoscope.explorer.packing.MAX_BYTES", single // 2)
    with pytest.raises(ms.InputError, match="--checkpoints 8"):
        ms.explore(tiny, checkpoints=1)
    with pytest.raises(ms.InputError, match="checkpoints must be"):
        ms.explore(tiny, checkpoints=0)


def test_equal_rows_of_exact_predictors_stand_there_once():
    table, packer = ExactTable(), Packer()
    rows = torch.tensor([[0.5, 0.5], [0.25, 0.75], [0.5, 0.5], [torch.nan, torch.nan]])
    assert table.numbers(rows) == [0, 1, 0, 2]
    assert table.numbers(rows[1:2]) == [1]
    number = table.packed(packer)
    assert number is not None
    assert packer.tensors[number]["shape"] == [3, 2]
    assert ExactTable().packed(packer) is None
