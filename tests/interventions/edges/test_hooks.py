"""Interventions on edges, as values, in force together with others."""

import pytest
import torch

from mnemoscope.core.batch import Named
from mnemoscope.core.errors import InputError
from mnemoscope.core.intervention import Add, Mean, Patch, Project, Resample, Scale, Zero
from mnemoscope.core.site import Edge, Site
from mnemoscope.interventions.graph import model_edges
from mnemoscope.interventions.run import run_with
from tests.split_hooks import by_hand, random_pairs
from tests.support import foreign_model

H00, H01, H10 = (Site(kind="z", layer=layer, head=head) for layer, head in ((0, 0), (0, 1), (1, 0)))
MLP0, MLP1 = (Site(kind="mlp_out", layer=layer) for layer in (0, 1))
MODEL = foreign_model(normalization_type="LN", dtype="float64")
PAIRS = random_pairs(n=3, seed=5)
CLEAN, OTHER = PAIRS.clean, Named(name="other", value=PAIRS.corrupted)


SHARED = {"n_heads": 4, "n_key_value_heads": 2}


@pytest.mark.parametrize("changes", [{}, {"attn_only": True}, {"parallel_attn_mlp": True}, SHARED], ids=str)
@pytest.mark.parametrize("embeddings", ["together", "apart"])
def test_a_patch_equals_transformer_lens_split_inputs(changes, embeddings):
    model = foreign_model(normalization_type="LN", dtype="float64", **changes)
    chosen = model_edges(model, embeddings=embeddings)
    expected = by_hand(model, CLEAN.inputs, PAIRS.corrupted.inputs, chosen)
    for edge, logits in zip(chosen, expected, strict=True):
        assert torch.allclose(run_with(model, CLEAN, [Patch(site=edge, source=OTHER)]), logits, rtol=0, atol=1e-10), (
            edge
        )


def test_all_edges_of_a_writer_together_are_the_site():
    chosen = [edge for edge in model_edges(MODEL) if edge.writer == H01]
    on_edges = run_with(MODEL, CLEAN, [Patch(site=edge, source=OTHER) for edge in chosen])
    at_site = run_with(MODEL, CLEAN, [Patch(site=Site(kind="result", layer=0, head=1), source=OTHER)])
    assert torch.allclose(on_edges, at_site, atol=1e-10)


@pytest.mark.parametrize(
    "make",
    [
        lambda at: Zero(site=at),
        lambda at: Mean(site=at, source=OTHER),
        lambda at: Scale(site=at, factor=-2.0),
        lambda at: Add(site=at, direction=Named(name="up", value=torch.arange(8.0))),
        lambda at: Project(site=at, basis=Named(name="two", value=torch.eye(8)[:2]), part="remove"),
        lambda at: Resample(site=at, source=OTHER),
    ],
    ids=["zero", "mean", "scale", "add", "project", "resample"],
)
def test_every_intervention_does_to_an_edge_what_it_does_to_its_writer(make):
    """The last MLP is read by the logits alone, so that its edge and its output are the same."""
    on_edge, at_site = (run_with(MODEL, CLEAN, [make(at)], seed=3) for at in (Edge(writer=MLP1), MLP1))
    assert torch.allclose(on_edge, at_site, atol=1e-10)
    assert not torch.allclose(on_edge, run_with(MODEL, CLEAN, []), atol=1e-3)


def test_positions_and_composition():
    edge = Edge(writer=H00, reader=H10, through="k")
    some = run_with(MODEL, CLEAN, [Patch(site=edge.at((0, 2)), source=OTHER)])
    apart = run_with(MODEL, CLEAN, [Patch(site=edge.at(0), source=OTHER), Patch(site=edge.at(2), source=OTHER)])
    assert torch.allclose(some, apart, atol=1e-10)
    twice = run_with(MODEL, CLEAN, [Scale(site=edge, factor=3.0), Scale(site=edge, factor=2.0)])
    assert torch.allclose(twice, run_with(MODEL, CLEAN, [Scale(site=edge, factor=6.0)]), atol=1e-10)
    nothing = run_with(MODEL, CLEAN, [Scale(site=edge, factor=1.0)])
    assert torch.allclose(nothing, run_with(MODEL, CLEAN, []), rtol=0, atol=1e-12)


def test_the_reader_sees_what_the_writer_writes_under_other_interventions():
    """A head that is zeroed writes nothing, so that three times that changes nothing more."""
    zero = Zero(site=H00)
    both = run_with(MODEL, CLEAN, [zero, Scale(site=Edge(writer=H00, reader=H10), factor=3.0)])
    assert torch.allclose(both, run_with(MODEL, CLEAN, [zero]), atol=1e-10)


def test_leaves_nothing_behind_also_after_an_exception():
    before = run_with(MODEL, CLEAN, [])
    with pytest.raises(InputError, match="must be as wide"):
        run_with(
            MODEL, CLEAN, [Add(site=Edge(writer=H00, reader=MLP1), direction=Named(name="d", value=torch.ones(3)))]
        )
    assert torch.equal(run_with(MODEL, CLEAN, []), before)
    assert not any(module._forward_pre_hooks for module in MODEL.modules())


def test_what_the_model_has_not_is_refused():
    with pytest.raises(InputError, match="the layer of site L7H0 result must be from 0 to 1"):
        run_with(MODEL, CLEAN, [Zero(site=Edge(writer=Site(kind="z", layer=7, head=0)))])
    shared = foreign_model(n_key_value_heads=1)
    for through in ("k", None):
        with pytest.raises(InputError, match="heads share keys and values, which key/value heads read"):
            run_with(shared, CLEAN, [Zero(site=Edge(writer=H00, reader=H10, through=through))])
