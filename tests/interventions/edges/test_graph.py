"""Edges as values, the graph of a model, and what states say about it."""

import pytest
import torch

from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError
from mnemoscope.core.site import LOGITS, Edge, Site
from mnemoscope.interventions.graph import (
    EdgeState,
    lay_out_edges,
    lay_out_states,
    model_edges,
    parts_of_reader,
    reader_inputs,
    split_edge,
    writers,
)
from tests.support import foreign_model

EMBED, POS, INPUT = Site(kind="embed"), Site(kind="pos_embed"), Site(kind="resid_pre", layer=0)
H00, H10, H11 = (Site(kind="z", layer=layer, head=head) for layer, head in ((0, 0), (1, 0), (1, 1)))
MLP0, MLP1 = (Site(kind="mlp_out", layer=layer) for layer in (0, 1))


class TestEdge:
    def test_is_called_by_its_ends(self):
        assert str(Edge(writer=H00, reader=H10, through="q")) == "L0H0 → L1H0 q"
        assert str(Edge(writer=H00, reader=H10)) == "L0H0 → L1H0"
        assert str(Edge(writer=MLP0)) == "L0 MLP → logits"
        assert str(Edge(writer=INPUT, reader=MLP1)) == "input → L1 MLP"
        assert str(Edge(writer=H00, reader=Site(kind="k", layer=1, head=1), through="k")) == "L0H0 → L1KV1 k"
        assert str(Edge(writer=EMBED).at("source_pos")) == "embed → logits pos source_pos"

    def test_is_compared_by_value(self):
        assert Edge(writer=H00, reader=MLP0) == Edge(writer=Site(kind="z", layer=0, head=0), reader=MLP0)
        assert len({Edge(writer=H00), Edge(writer=H00), Edge(writer=H10)}) == 2

    @pytest.mark.parametrize(
        ("ends", "message"),
        [
            ({"writer": Site(kind="v", layer=0, head=0)}, "kind of an edge's writer must be one of"),
            ({"writer": Site(kind="z", layer=0)}, "one head .kind z with a head."),
            ({"writer": Site(kind="resid_pre", layer=1)}, "starts at resid_pre of layer 0 only"),
            ({"writer": Site(kind="mlp_out", layer=0, pos=3)}, "say positions in the edge"),
            ({"writer": MLP0, "reader": H00}, "L0 MLP writes after L0H0 has read"),
            ({"writer": H10, "reader": H11}, "L1H0 writes after L1H1 has read"),
            ({"writer": MLP0, "reader": MLP1, "through": "q"}, "only a head reads through q, k or v; L1 MLP"),
            ({"writer": MLP0, "through": "v"}, "only a head reads through q, k or v; logits"),
            ({"writer": H00, "reader": H10, "through": "z"}, "through must be one of: q, k, v"),
            ({"writer": H00, "reader": "resid_post"}, "must be one of: logits"),
            ({"writer": H00, "reader": Site(kind="k", layer=1, head=0)}, "kind k reads through='k'; got None"),
            ({"writer": H00, "reader": Site(kind="v", layer=1, head=0), "through": "k"}, "through='v'; got 'k'"),
            ({"writer": H00, "reader": Site(kind="v", layer=1), "through": "v"}, "one head .kind z with a head."),
        ],
    )
    @pytest.mark.usefixtures("as_installed")
    def test_that_cannot_be_is_not_built(self, ends, message):
        with pytest.raises(InputError, match=message):
            Edge(**ends)


class TestGraph:
    @pytest.mark.parametrize(
        ("changes", "n_together", "n_apart"),
        [
            ({}, 46, 61),  # 7 + 2 + 4 * 6 + 6 + 7 with one writer before the blocks, 15 readers
            ({"attn_only": True}, 6 + 3 * 6 + 5, 6 + 3 * 6 + 5 + 13),
            ({"n_layers": 1, "n_heads": 1, "attn_only": True}, 3 + 2, 3 + 2 + 4),
            ({"parallel_attn_mlp": True}, 46 - 4, 61 - 4),
            ({"positional_embedding_type": "rotary", "rotary_dim": 2, "d_head": 4}, 46, 46),
            # layers of 8 inputs of heads and an MLP: 8 + 5 with one writer before them, 48 + 10 with 6, and 11
            ({"n_heads": 4, "n_key_value_heads": 2}, 82, 82 + 2 * 9 + 1),
            ({"n_heads": 4, "n_key_value_heads": 2, "ungroup_grouped_query_attention": True}, 110, 110 + 2 * 13 + 1),
        ],
    )
    def test_has_as_many_edges_as_counted_by_hand(self, changes, n_together, n_apart):
        model = foreign_model(**changes)
        assert len(model_edges(model)) == len(set(model_edges(model))) == n_together
        assert len(model_edges(model, embeddings="apart")) == n_apart

    def test_of_four_layers_of_four_heads(self):
        model = foreign_model(n_layers=4, n_heads=4)
        before = [1, 6, 11, 16]  # writers before a layer
        assert len(model_edges(model)) == sum(12 * n + n + 4 for n in before) + 21

    def test_is_in_the_order_of_reading_and_writing(self):
        model = foreign_model()
        assert [str(site) for site in writers(model, embeddings="apart")][:4] == ["embed", "pos_embed", "L0H0", "L0H1"]
        assert reader_inputs(model)[:4] == [(H00, "q"), (H00, "k"), (H00, "v"), (Site(kind="z", layer=0, head=1), "q")]
        assert reader_inputs(model)[-2:] == [(MLP1, None), (LOGITS, None)]

    def test_heads_that_share_keys_and_values_read_them_together(self):
        model = foreign_model(n_heads=4, n_key_value_heads=2)
        ways = ["L0KV0 k", "L0KV0 v", "L0KV1 k", "L0KV1 v", "L0H0 q", "L0H1 q", "L0H2 q", "L0H3 q", "L0 MLP"]
        assert [Edge(writer=INPUT, reader=reader, through=way).input for reader, way in reader_inputs(model)][
            :9
        ] == ways
        assert parts_of_reader(model, Site(kind="v", layer=0, head=1)) == [
            Site(kind="z", layer=0, head=n) for n in (2, 3)
        ]
        assert parts_of_reader(model, H00) == [H00]

    def test_every_edge_is_made_of_single_ones(self):
        model = foreign_model()
        apart = set(model_edges(model, embeddings="apart"))
        parts = [part for edge in model_edges(model) for part in split_edge(model, edge)]
        assert len(parts) == len(set(parts)) == len(apart)
        assert set(parts) == apart
        assert len(split_edge(model, Edge(writer=INPUT, reader=H10))) == 6


class TestStates:
    def told(self, chosen, states, n_pos=5, **latents):
        model = foreign_model()
        tokens = torch.zeros(3, n_pos, dtype=torch.long)
        batch = Batch(inputs=tokens, targets=tokens, scored=tokens == 0, known=latents)
        found = lay_out_states(lay_out_edges(model, chosen), batch, torch.tensor(states))
        sources, readers = writers(model, embeddings="apart"), reader_inputs(model)
        return found, lambda reader, writer: (..., readers.index(reader), sources.index(writer))

    def test_edges_that_are_not_named_are_live(self):
        found, at = self.told([Edge(writer=H00, reader=H10, through="q")], [[EdgeState.PATCHED], [EdgeState.FROZEN]])
        assert found.uniform
        assert found.patched.sum() == 1
        assert found.patched[at((H10, "q"), H00)].flatten().tolist() == [True, False]
        assert found.live.sum() == 2 * (len(model_edges(foreign_model(), embeddings="apart")) - 1)
        assert found.changed.nonzero().flatten().tolist() == [reader_inputs(foreign_model()).index((H10, "q"))]

    def test_the_later_of_two_that_overlap_prevails_unless_it_says_nothing(self):
        chosen = [Edge(writer=INPUT, reader=MLP0), Edge(writer=POS, reader=MLP0)]
        found, at = self.told(chosen, [[EdgeState.PATCHED, EdgeState.LIVE], [EdgeState.PATCHED, EdgeState.UNSET]])
        assert found.patched[at((MLP0, None), EMBED)].flatten().tolist() == [True, True]
        assert found.patched[at((MLP0, None), POS)].flatten().tolist() == [False, True]
        assert found.live[at((MLP0, None), POS)].flatten().tolist() == [True, False]

    def test_positions_may_differ_between_prompts(self):
        edge = Edge(writer=EMBED, reader=LOGITS, pos="source")
        found, at = self.told([edge], [[EdgeState.PATCHED]], source=torch.tensor([0, 4, -1]))
        assert not found.uniform
        assert found.patched[at((LOGITS, None), EMBED)][0].nonzero().tolist() == [[0, 0], [1, 4]]
        assert found.live[at((LOGITS, None), EMBED)][0].sum() == 13

    def test_an_edge_that_the_model_has_not_is_refused(self):
        with pytest.raises(InputError, match="the model has no edge L5H0 → logits"):
            lay_out_edges(foreign_model(), [Edge(writer=Site(kind="z", layer=5, head=0))])
        parallel = foreign_model(parallel_attn_mlp=True)
        with pytest.raises(InputError, match="the model has no edge L0H0 → L0 MLP"):
            lay_out_edges(parallel, [Edge(writer=H00, reader=MLP0)])
