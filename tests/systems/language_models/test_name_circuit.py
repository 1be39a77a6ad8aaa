"""Roles in indirect-object identification: found where they were put, and their parts measured as hooks say."""

import numpy as np
import pytest
import torch

import mnemoscope as ms
from mnemoscope.interventions import intervene
from mnemoscope.systems.language_models import constructed
from mnemoscope.systems.language_models.name_circuit import (
    attention_told_otherwise,
    direct_paths,
    find_roles,
    tellings,
)
from mnemoscope.systems.language_models.reading import ahead

SHARED = 1 / 12


@pytest.fixture(scope="module")
def shared():
    return constructed.sharing(0)["model"]


@pytest.fixture(scope="module")
def untrained():
    return constructed.untrained(0)["model"]


def test_tellings_differ_in_the_name_that_is_said_again_only(shared):
    pairs = tellings(shared, n=12, seed=3)
    differs = pairs.clean.inputs != pairs.corrupted.inputs
    assert differs.sum(1).tolist() == [1] * 12
    assert torch.equal(differs.int().argmax(1), pairs.clean.latents["S"])
    due = pairs.clean.inputs.gather(1, pairs.clean.latents["IO"][:, None])[:, 0]
    assert torch.equal(pairs.clean.targets[pairs.clean.scored], due)


def test_roles_are_found_where_they_were_put(shared):
    roles = find_roles(shared, tellings(shared, n=4, seed=0), share=SHARED)
    assert (roles.movers, roles.negative, roles.inhibitors) == ([(2, 0)], [(2, 1)], [(1, 0)])


def test_movers_of_the_first_layer_have_no_inhibitors(untrained):
    first = constructed.untrained(0)["model"]
    with torch.no_grad():
        for block in first.blocks[1:]:
            block.attn.W_O.zero_()
    roles = find_roles(first, tellings(first, n=4, seed=0), share=SHARED)
    assert {layer for layer, _ in roles.movers} == {0}
    assert roles.inhibitors == []


def test_what_is_written_otherwise_is_the_heads_output_in_the_other_telling_at_the_logits_alone(untrained):
    pairs = tellings(untrained, n=6, seed=1)
    paths = direct_paths(untrained, pairs)
    found = paths.lead([(1, 2), (3, 0)])
    assert np.allclose(paths.lead(), ahead(untrained, pairs.clean, pairs.foil)[0], atol=1e-4)
    with torch.no_grad():
        _, clean = untrained.run_with_cache(pairs.clean.inputs)
        _, other = untrained.run_with_cache(pairs.corrupted.inputs)
        stream = clean["resid_post", 3].clone()
        for layer, head in ((1, 2), (3, 0)):
            change = other["z", layer][:, :, head] - clean["z", layer][:, :, head]
            stream += change @ untrained.blocks[layer].attn.W_O[head]
        logits = untrained.unembed(untrained.ln_final(stream))[pairs.clean.scored]
    due, foil = (tokens[pairs.clean.scored] for tokens in (pairs.clean.targets, pairs.foil))
    expected = logits.gather(1, due[:, None]) - logits.gather(1, foil[:, None])
    assert np.allclose(found, expected[:, 0], atol=1e-4)
    effects = paths.effects()
    assert float(effects.sel(layer=1, head=2)) == pytest.approx((paths.lead() - paths.lead([(1, 2)])).mean())


def test_attention_is_lost_with_what_tells_the_queries_and_with_nothing_else(shared):
    pairs = tellings(shared, n=4, seed=1)
    clean, left, kept = attention_told_otherwise(shared, pairs, [(2, 0)], [[], [(1, 0)], [(1, 3), (0, 2)]])
    assert np.allclose(clean, 1, atol=1e-3)
    assert left.max() < 0.1
    assert np.allclose(kept, 1, atol=1e-3)


def test_what_is_told_otherwise_is_the_heads_output_in_the_other_telling_at_the_queries_alone(untrained):
    pairs = tellings(untrained, n=6, seed=1)
    (found,) = attention_told_otherwise(untrained, pairs, [(2, 1)], [[(0, 3), (1, 2)]])
    reader = ms.Site(kind="z", layer=2, head=1)
    writers = [ms.Site(kind="z", layer=layer, head=head) for layer, head in ((0, 3), (1, 2))]
    edges = [ms.Edge(writer=writer, reader=reader, through="q") for writer in writers]
    source = ms.Named(name="other", value=pairs.corrupted)
    patches = [ms.Patch(site=edge, source=source) for edge in edges]
    with intervene(untrained, pairs.clean, patches):
        _, cache = untrained.run_with_cache(pairs.clean.inputs)
    rows, at = torch.arange(6), pairs.clean.latents
    due, first, again = (cache["pattern", 2][rows, 1, at["last"], at[place]] for place in ("IO", "S1", "S"))
    assert np.allclose(found, (due - first - again).numpy(), atol=1e-5)
