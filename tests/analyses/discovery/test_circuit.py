"""Circuits as values, and which of their edges can matter."""

import networkx as nx
import numpy as np
import pytest

from mnemoscope.analyses.discovery.setting import EdgePaths, align_to_edges, circuit, circuit_masks, circuit_nodes
from mnemoscope.core.errors import InputError
from mnemoscope.core.site import part_name
from mnemoscope.interventions.graph import model_edges
from tests.support import foreign_model, random_model

EDGES = model_edges(random_model())


def test_a_circuit_names_its_edges_and_parts():
    found = circuit(EDGES, ["L0H1 → L0 MLP", "input → L0H1 k", "L0 MLP → logits"])
    assert found.sum() == 3
    assert found.sel(edge="input → L0H1 k").writer.item() == "input"
    assert found.sel(edge="input → L0H1 k").reader.item() == "L0H1"
    assert found.sel(edge="input → L0H1 k").through.item() == "k"
    assert found.sel(edge="L0 MLP → logits").through.item() == ""
    assert circuit_nodes(found) == ["input", "L0H1", "L0 MLP", "logits"]
    assert circuit_nodes(circuit(EDGES, [])) == []


@pytest.mark.parametrize("from_embeddings", [True, False])
@pytest.mark.parametrize("embeddings", ["together", "apart"])
@pytest.mark.parametrize("sharing", [{}, {"n_heads": 4, "n_key_value_heads": 2}])
def test_pruned_edges_lie_on_no_path(from_embeddings, embeddings, sharing):
    model = foreign_model(**sharing)
    parts = model_edges(model, embeddings=embeddings)
    paths = EdgePaths.from_edges(model, parts)
    masks = np.random.default_rng(0).random((30, len(parts))) < (0.1 if sharing else 0.2)
    found = paths.prune(masks, from_embeddings=from_embeddings)
    assert not (found & ~masks).any()
    starts = [part_name(edge.writer) for edge in parts if part_name(edge.writer) in ("input", "embed", "pos_embed")]
    for mask, kept in zip(masks, found, strict=True):
        graph = nx.DiGraph(
            [(part_name(e.writer), part_name(e.reader)) for e, inside in zip(parts, mask, strict=True) if inside]
        )
        graph.add_nodes_from([*starts, "logits"])
        for name in {name for e in parts if "KV" in (name := part_name(e.reader))}:
            layer, pair = name[1], int(name[-1])
            graph.add_edges_from((name, f"L{layer}H{head}") for head in (2 * pair, 2 * pair + 1))
        on = nx.ancestors(graph, "logits") | {"logits"}
        if from_embeddings:
            on &= set(starts).union(*(nx.descendants(graph, start) for start in starts))
        expected = [
            m and part_name(e.writer) in on and part_name(e.reader) in on for e, m in zip(parts, mask, strict=True)
        ]
        assert kept.tolist() == expected
    assert (paths.prune(found, from_embeddings=from_embeddings) == found).all()
    assert found.any()
    assert (found != masks).any()


def test_what_is_no_circuit_of_the_model_is_refused():
    with pytest.raises(InputError, match="has no 'L0H0 → L9 MLP'"):
        circuit(EDGES, ["L0H0 → L9 MLP"])
    found = circuit(EDGES, [])
    with pytest.raises(InputError, match="13 edges of the model, labelled along edge; got 12"):
        circuit_masks(EDGES, found[1:])
    with pytest.raises(InputError, match="got 0"):
        align_to_edges(EDGES, found.drop_vars("edge"))
    with pytest.raises(InputError, match="how often"):
        align_to_edges(EDGES, found.isel(edge=[0, *range(13)]))
    with pytest.raises(InputError, match="truth values; got float64"):
        circuit_masks(EDGES, found.astype(float))
    assert circuit_masks(EDGES, found[::-1]).shape == (13,)
