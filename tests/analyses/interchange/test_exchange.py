"""Exchanges against brute force, and on circuits that are known."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from mnemoscope.analyses.interchange import SubspacePlace, interchange_accuracy, random_pairs
from mnemoscope.core.batch import Named
from mnemoscope.core.causal import CausalModel
from mnemoscope.core.errors import InputError
from mnemoscope.core.site import Site
from mnemoscope.models.constructed import induction, induction_batch
from mnemoscope.systems.tiny_recall.analyses.causal_models import SPLIT, VALUES_AND_MATCH
from mnemoscope.systems.tiny_recall.constructed import dissociated, store_and_match, two_layer_recall
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup
from tests.bridge import as_bridge
from tests.support import global_generators_untouched, random_model, reads_back, seeded

TASK = PermutationLookup(repeat_ratio=0.3).for_seed(0)
BATCH = TASK.monitor(60, split="test", generator=seeded())
PAIRS = random_pairs(BATCH, 300)
FEW = random_pairs(BATCH, 60)
ADD = CausalModel(
    name="add",
    variables={"sum": lambda known: known["tokens"][:, :3].sum(1) % 6, "x": lambda known: known["tokens"][:, -1]},
    answer=lambda known: (known["sum"] + known["x"]) % 6,
)


def by_hand(model, hook, exchange):
    """Pair by pair with TransformerLens's own hooks: logits at the last position."""
    logits = []
    for row in range(len(FEW)):
        base, source = FEW.clean.select(slice(row, row + 1)), FEW.corrupted.select(slice(row, row + 1))
        theirs = model.run_with_cache(source.inputs)[1][hook]

        def write(old, hook, base=base, source=source, theirs=theirs):
            return exchange(old.clone(), theirs, base, source)

        logits.append(model.run_with_hooks(base.inputs, fwd_hooks=[(hook, write)])[0, -1])
    return torch.stack(logits).detach()


def one_head(old, theirs, base, source):
    old[:, -1, 1] = theirs[:, -1, 1]
    return old


SPAN = torch.linalg.qr(torch.randn(8, 3, generator=seeded(5))).Q.T


def inside(old, theirs, base, source):
    return old + (theirs - old) @ SPAN.T @ SPAN


def at_the_repeat(old, theirs, base, source):
    here, there = (int(batch.latents["source_pos"]) for batch in (base, source))
    if here >= 0 and there >= 0:
        old[0, here] = theirs[0, there]
    return old


@pytest.mark.parametrize(
    ("place", "hook", "exchange"),
    [
        (Site(kind="z", layer=0, head=1, pos=-1), "blocks.0.attn.hook_z", one_head),
        (
            SubspacePlace(site=Site(kind="resid_mid", layer=0), basis=Named(name="span", value=SPAN)),
            "blocks.0.hook_resid_mid",
            inside,
        ),
        (Site(kind="resid_post", layer=0, pos="source_pos"), "blocks.0.hook_resid_post", at_the_repeat),
    ],
    ids=["head", "subspace", "latent"],
)
@pytest.mark.thorough
def test_it_equals_brute_force(place, hook, exchange):
    model = random_model(n_layers=2)
    with global_generators_untouched():
        found = interchange_accuracy(model, ADD, FEW, places={"it": [place]}).sel(place="it")
    log_probs = by_hand(model, hook, exchange).log_softmax(-1)
    base, source = FEW.clean.inputs, FEW.corrupted.inputs
    before = (base[:, :3].sum(1) + base[:, -1]) % 6
    for variable, token in (
        ("sum", (source[:, :3].sum(1) + base[:, -1]) % 6),
        ("x", (base[:, :3].sum(1) + source[:, -1]) % 6),
    ):
        right = (log_probs.argmax(1) == token).double()
        mass = log_probs.gather(1, token[:, None])[:, 0]
        for over, rows in (("all", before >= 0), ("changing", token != before), ("kept", token == before)):
            cell = found.sel(variable=variable, over=over)
            assert cell.n == rows.sum()
            assert cell.iia.item() == pytest.approx(right[rows].mean().item())
            assert cell.mass.item() == pytest.approx(mass[rows].exp().mean().item(), rel=1e-4)
            assert cell.kl.item() == pytest.approx(-mass[rows].mean().item(), rel=1e-4)


HEADS = {f"L0H{n}": [Site(kind="z", layer=0, head=n, pos=-1)] for n in range(2)}


def test_a_circuit_confirms_the_causal_model_that_it_was_built_from():
    values = interchange_accuracy(store_and_match(), VALUES_AND_MATCH, PAIRS, places=HEADS)
    assert values.attrs["agreement"] == values.attrs["follows"] == 1
    for variable, right, wrong in (("values", "L0H0", "L0H1"), ("match", "L0H1", "L0H0")):
        assert (values.iia.sel(variable=variable, place=right) == 1).all()
        assert (values.mass.sel(variable=variable, place=right) > 0.999).all()
        assert (values.kl.sel(variable=variable, place=right) < 1e-3).all()
        assert values.iia.sel(variable=variable, place=wrong, over="changing") < 0.3
    assert (values.before_iia.sel(over="changing") == 0).all()
    assert (values.before_iia.sel(over="kept") == 1).all()
    split = interchange_accuracy(two_layer_recall(), SPLIT, PAIRS)
    assert (split.iia.sel(variable="eliminated", place="L1H0") == 1).all()
    assert (split.iia.sel(variable="recalled", place="L1H1") == 1).all()
    assert (split.iia.sel(place=["L0H0", "L0H1"], over="changing") < 0.4).all()


def test_a_circuit_refutes_the_other_causal_model():
    """Kept pairs tell: without them the store would pass for a list of what is eliminated."""
    store = interchange_accuracy(store_and_match(), SPLIT, PAIRS, places=HEADS).iia.sel(
        place="L0H0", variable="eliminated"
    )
    assert store.sel(over="changing") == 1
    assert store.sel(over="kept") < 0.5
    apart = interchange_accuracy(dissociated(), VALUES_AND_MATCH, PAIRS, places=HEADS).iia.sel(
        place="L0H0", variable="values"
    )
    assert apart.sel(over="kept") == 1
    assert apart.sel(over="changing") < 0.7  # right without a repeat only


def test_arbitrary_answers_are_not_given():
    found = interchange_accuracy(store_and_match(), VALUES_AND_MATCH, PAIRS, places=HEADS, answers="arbitrary")
    natural = interchange_accuracy(store_and_match(), VALUES_AND_MATCH, PAIRS, places=HEADS)
    assert found.iia.sel(over="changing", place="L0H0", variable="values") == 0
    assert (found.n == natural.n).all()
    assert found.iia.sel(over="kept").equals(natural.iia.sel(over="kept"))


def test_an_untrained_model_is_at_chance():
    found = interchange_accuracy(random_model(d_model=32), VALUES_AND_MATCH, random_pairs(BATCH, 1000))
    assert (found.iia.sel(over="changing") < 0.35).all()


def test_the_answer_may_be_due_at_another_place_in_every_sequence():
    """An induction circuit copies what followed the last token before: its variable is that token."""
    model = induction(20, 16)
    batch = induction_batch(200, n_tokens=20, n_ctx=16, generator=seeded())
    due = 8 + torch.arange(len(batch)) % 8
    answer = batch.targets[torch.arange(len(batch)), due]
    batch = replace(batch, known={"due": due, "answer": answer})
    copied = CausalModel(
        name="copy",
        variables={"copied": lambda known: known["answer"]},
        answer=lambda known: known["copied"],
        pos="due",
    )
    found = interchange_accuracy(
        model, copied, random_pairs(batch, 200), places={"it": [Site(kind="z", layer=1, head=0, pos="due")]}
    )
    assert found.attrs["agreement"] == 1
    assert (found.iia.sel(place="it") == 1).all()


@pytest.mark.thorough
def test_a_bridge_and_parts_of_a_batch_give_the_same(monkeypatch, tmp_path):
    model = random_model(n_layers=2)
    whole = interchange_accuracy(model, ADD, PAIRS)
    monkeypatch.setattr("mnemoscope.engine.budget.MAX_BYTES", 100_000)
    parts, bridged = (interchange_accuracy(m, ADD, PAIRS) for m in (model, as_bridge(model)))
    assert list(whole.place.values) == ["L0H0", "L0H1", "L1H0", "L1H1", "L0 MLP", "L1 MLP"]
    for name in whole:
        np.testing.assert_allclose(parts[name], whole[name], rtol=1e-5)
        np.testing.assert_allclose(bridged[name], whole[name], rtol=1e-4)
    assert reads_back(whole, tmp_path / "result.nc")


@pytest.mark.usefixtures("as_installed")
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"places": {}}, "places must name at least one set of sites"),
        ({"places": {"nothing": []}}, "none may be empty"),
        ({"variables": []}, "variables must name at least one of values, match"),
        ({"variables": ["colour"]}, "variable must be one of: values, match; got 'colour'"),
        ({"answers": "wrong"}, "answers must be one of: causal model, arbitrary"),
        ({"places": {"it": [Site(kind="z", layer=3)]}}, "the layer of site L3 z must be 0"),
    ],
)
def test_wrong_input_is_refused(changes, message):
    with pytest.raises(InputError, match=message):
        interchange_accuracy(store_and_match(), VALUES_AND_MATCH, PAIRS, **changes)


def test_models_that_do_not_fit_are_refused():
    with pytest.raises(InputError, match="the model has 4 tokens and the batch uses token 5"):
        interchange_accuracy(random_model(d_vocab=4), VALUES_AND_MATCH, PAIRS)
    broken = random_model()
    with torch.no_grad():
        broken.unembed.W_U[0, 0] = torch.nan
    with pytest.raises(InputError, match="W_U holds NaN"):
        interchange_accuracy(broken, VALUES_AND_MATCH, PAIRS)
