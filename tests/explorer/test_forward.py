"""The page's forward pass beside TransformerLens's: logits and patterns under every kind of intervention."""

import base64
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import torch

import mnemoscope as ms
from mnemoscope.core.dictionary_places import model_dictionaries
from mnemoscope.core.patterns import fixed
from mnemoscope.core.protocols import masked_token
from mnemoscope.core.site import ATTENTION, BY_HEAD, BY_NEURON, EMBEDDINGS, KINDS, MLP, OF_DICTIONARY
from mnemoscope.explorer.packing import Packer, page_configuration
from mnemoscope.interventions.run import intervene
from tests.dictionaries import N_FEATURES, random_dictionary
from tests.explorer.chromium import computed, needs_chromium
from tests.support import foreign_model, random_model

N_CASES = 200
N_REFERENCE = 8
CLASSES = [0, 1, 2, 1, 0, 2, 1, 1]
"""Of the reference sequences."""
LENGTHS = [12, 8, 7, 6, 12, 9, 4, 12]
"""Of the same without padding, which counts in no mean."""
TURNS = ("zero", "mean", "patch", "scale", "pattern", "value", "knockout", "edge", "resample", "class", "read")
HARNESS = """
const { tensors, run, cases } = content;
const model = opener(tensors)(run, 0);
const bytes = (floats) => btoa(Array.from(new Uint8Array(floats.buffer), (byte) => String.fromCharCode(byte)).join(""));
return cases.map(({ tokens, other, row, edits }) => {
  const sources = sourcesOf(run, model, tokens.length, forward(model, other).cache, row);
  const { logits, cache } = forward(model, tokens, edits, sources);
  const last = cache.get(`blocks.${run.cfg.n_layers - 1}.attn.hook_pattern`);
  return { logits: bytes(logits.data), pattern: bytes(last.data) };
});
"""


@dataclass
class Draws:
    """Random sequences and interventions of a model, as Python and the page have them."""

    model: Any
    n_pos: int
    seed: int = 0
    draw: np.random.Generator = field(init=False)

    def __post_init__(self):
        self.draw = np.random.default_rng(self.seed)
        self.cfg = self.model.cfg

    @property
    def absent_embeddings(self) -> tuple[str, ...]:
        return ("pos_embed",) if self.cfg.positional_embedding_type == "rotary" else ()

    def tokens(self, n: int = 1) -> torch.Tensor:
        return torch.from_numpy(self.draw.integers(0, self.cfg.d_vocab, (n, self.n_pos)))

    def below(self, n: int) -> int:
        return int(self.draw.integers(n))

    def perhaps(self, n: int) -> int | None:
        return self.below(n) if self.draw.random() < 0.7 else None

    def site(self, kinds) -> dict[str, Any]:
        """Fields of a site that the model has."""
        absent = {*self.absent_embeddings, *((*MLP, "resid_mid") if self.cfg.attn_only else ())}
        kind = self.draw.choice([kind for kind in kinds if kind not in absent])
        found: dict[str, Any] = {"kind": str(kind), "pos": self.perhaps(self.n_pos)}
        own = model_dictionaries(self.model)
        if kind in OF_DICTIONARY:
            found["layer"] = int(self.draw.choice(list(own)))
        elif kind not in EMBEDDINGS:
            found["layer"] = self.below(self.cfg.n_layers)
        if kind in BY_HEAD:
            found["head"] = self.perhaps(self.cfg.n_heads)
        if kind in BY_NEURON:
            found["neuron"] = self.perhaps(own[found["layer"]].n_features if kind == "feature" else self.cfg.d_mlp)
        if kind in ATTENTION:
            found["key"] = self.perhaps(self.n_pos)
        return {name: value for name, value in found.items() if value is not None}

    def edge(self) -> dict[str, Any]:
        """Fields of an edge that the model has."""
        layer = self.below(self.cfg.n_layers)
        readers = ["logits", {"kind": "z", "layer": layer, "head": self.below(self.cfg.n_heads)}]
        if not self.cfg.attn_only:
            readers.append({"kind": "mlp_out", "layer": layer})
        reader = readers[self.below(len(readers))]
        depth = 2 * self.cfg.n_layers if reader == "logits" else 2 * layer + (reader["kind"] == "mlp_out")
        writers: list[dict[str, Any]] = [{"kind": kind} for kind in EMBEDDINGS if kind not in self.absent_embeddings]
        for block in range(self.cfg.n_layers):
            if 2 * block < depth:
                writers += [{"kind": "z", "layer": block, "head": head} for head in range(self.cfg.n_heads)]
            if 2 * block + 1 < depth and not self.cfg.attn_only:
                writers.append({"kind": "mlp_out", "layer": block})
        found: dict[str, Any] = {"writer": writers[self.below(len(writers))], "reader": reader}
        if reader != "logits" and reader["kind"] == "z" and self.draw.random() < 0.7:
            found["through"] = "qkv"[self.below(3)]
        if self.draw.random() < 0.5:
            found["pos"] = self.below(self.n_pos)
        return found

    def case(self, number: int, sources: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
        """One intervention for the page and for Python; their kinds take turns."""
        turns = [turn for turn in TURNS if turn != "edge" or not model_dictionaries(self.model)]
        kind, turn = turns[number % len(turns)], number // len(turns)
        if kind == "edge":
            edge = self.edge()
            how = ("zero", "mean", "patch", "resample", "class")[turn % 5]
            return self._edit(how, sources, edge=edge), [self._placed(how, _edge(edge), sources)]
        if kind == "read":
            how = ("patch", "resample", "class")[turn % 3]
            site: dict[str, Any] = self.site(["q", "k", "v"]) | {"head": self.below(self.cfg.n_heads)}
            return self._edit(how, sources, site=site), [self._placed(how, ms.Site(**site), sources)]
        if kind == "pattern":
            site = {
                "kind": "pattern",
                "layer": self.below(self.cfg.n_layers),
                "head": self.below(self.cfg.n_heads),
            }
            query = self.below(self.n_pos)
            weights = torch.full((self.n_pos, self.n_pos), torch.nan)
            weights[query] = torch.zeros(self.n_pos).index_fill(0, torch.tensor([self.below(query + 1)]), 1)
            edit = {"kind": "pattern", "site": site, "rows": {query: weights[query].tolist()}}
            return edit, [ms.SetPattern(site=ms.Site(**site), mechanism=fixed(f"drawn {number}", weights))]
        if kind == "knockout" and not getattr(self.model.blocks[0].attn, "linear", False):
            site = self.site(["scores"]) | {"pos": self.n_pos - 1, "key": self.below(self.n_pos - 1)}
            return {"kind": kind, "site": site}, [ms.Knockout(site=ms.Site(**site))]
        if kind in ("value", "knockout"):
            site = self.site(["z", "q", "mlp_out", "resid_pre"])
            width = self.cfg.d_head if site["kind"] in "qz" else self.cfg.d_model
            values = torch.from_numpy(self.draw.normal(size=width)).float()
            direction = ms.Named(name="values", value=values)
            there = ms.Site(**site)
            edit = {"kind": "value", "site": site, "values": values.tolist()}
            return edit, [ms.Zero(site=there), ms.Add(site=there, direction=direction)]
        split = model_dictionaries(self.model) and turn % 2
        kinds = OF_DICTIONARY if split else [kind for kind in KINDS if kind not in ("result", "scores", *OF_DICTIONARY)]
        site = self.site(kinds)
        return self._edit(kind, sources, site=site), [self._placed(kind, ms.Site(**site), sources)]

    @staticmethod
    def _edit(kind, sources, **place) -> dict[str, Any]:
        """As the page has it."""
        if kind == "class":
            return {"kind": "mean", "within": ["kind", sources["class"]], **place}
        return {"kind": kind, "factor": 1.5, **place}

    @staticmethod
    def _placed(kind, site, sources):
        match kind:
            case "zero":
                return ms.Zero(site=site)
            case "mean":
                return ms.Mean(site=site, source=sources["reference"])
            case "class":
                return ms.Mean(site=site, source=sources["reference"], over="kind")
            case "resample":
                return ms.Resample(site=site, source=sources["drawn"])
            case "patch":
                return ms.Patch(site=site, source=sources["other"])
        return ms.Scale(site=site, factor=1.5)


def _split(model, *kinds, error: bool = True):
    """The model with a dictionary in every layer; a kind is what it reads, what it writes, and its activation."""
    found = []
    for layer, (reads, writes, activation) in enumerate(kinds):
        draws = torch.Generator().manual_seed(layer)
        fields: dict[str, Any] = {"k": 3} if activation in ("topk", "groupmax") else {}
        if activation == "jumprelu":
            fields["threshold"] = torch.rand(N_FEATURES, generator=draws)
        if reads == writes:
            fields["centre"] = torch.randn(model.cfg.d_model, generator=draws)
        else:
            fields["skip"] = torch.randn(model.cfg.d_model, model.cfg.d_model, generator=draws) / 4
        found.append(random_dictionary(model, writes, layer=layer, reads=reads, activation=activation, **fields))
    return ms.with_dictionaries(model, found, error=error)


TRANSCODER = ("mlp_in", "mlp_out", "topk")


def _edge(fields) -> ms.Edge:
    ends = {end: ms.Site(**fields[end]) if fields[end] != "logits" else "logits" for end in ("writer", "reader")}
    return ms.Edge(**{**fields, **ends})


def _batch(tokens, classes=(0,)) -> ms.Batch:
    known = {"kind": torch.tensor(classes)}
    return ms.Batch(inputs=tokens, targets=tokens, scored=torch.ones_like(tokens, dtype=torch.bool), known=known)


def _padded(model, batch):
    """The batch with padding in some rows, unless the model would read it."""
    masked = masked_token(model)
    if model.cfg.attention_dir == "bidirectional" and masked is None:
        return batch
    padded = replace(batch, lengths=torch.tensor(LENGTHS).clamp(max=batch.inputs.shape[1]))
    return padded if masked is None else replace(padded, inputs=batch.inputs.where(padded.real, masked))


MODELS = {
    "v1": lambda: ms.find_runs("zoo:v1-quick")[0].model(),
    "v3": lambda: ms.find_runs("zoo:v3-quick")[0].model(),
    "v3 without normalisation": lambda: ms.find_runs("zoo:v3-no-norm-published")[0].model(),
    "birth, two layers": lambda: ms.find_runs("zoo:birth-2-layers-quick")[0].model(),
    "associative memories": lambda: ms.find_runs("zoo:memories-all-quick")[0].model(),
    "noisy recall": lambda: ms.find_runs("zoo:noisy-recall-quick")[0].model(),
    "facts, linear attention": lambda: ms.find_runs("zoo:facts-linear-quick")[0].model(),
    "facts, softmax": lambda: ms.find_runs("zoo:facts-softmax-quick")[0].model(),
    "bidirectional, attention only": lambda: foreign_model(attention_dir="bidirectional", attn_only=True),
    "RMS and gelu_new": lambda: foreign_model(normalization_type="RMS"),
    "LNPre and gelu": lambda: foreign_model(normalization_type="LNPre", act_fn="gelu"),
    "small": lambda: random_model(n_layers=2),
    "masked and mixed": lambda: random_model(
        n_layers=2, masked=2, attention_mix=0.6, attention_dir="bidirectional", d_vocab=6
    ),
    "masked, causal": lambda: random_model(n_layers=2, masked=0),
    "vectors of distances": lambda: random_model(n_layers=2, position_kind="relative"),
    "rotary": lambda: random_model(n_layers=2, position_kind="rotary"),
    "rotary, neighbours": lambda: foreign_model(
        positional_embedding_type="rotary", d_head=4, rotary_dim=2, rotary_adjacent_pairs=True
    ),
    "features": lambda: _split(random_model(n_layers=2), TRANSCODER, ("resid_post", "resid_post", "jumprelu")),
    "features, no normalisation": lambda: _split(
        random_model(n_layers=2, normalization="none"), ("attn_out", "mlp_out", "groupmax"), TRANSCODER
    ),
    "features of RMS": lambda: _split(foreign_model(normalization_type="RMS"), TRANSCODER),
    "features, attention only": lambda: _split(
        foreign_model(attn_only=True), ("resid_pre", "resid_pre", "relu"), ("attn_out", "attn_out", "topk")
    ),
    "features without their error": lambda: _split(
        random_model(n_layers=2), ("resid_mid", "mlp_out", "relu"), TRANSCODER, error=False
    ),
}


QUICK = ("small", "masked and mixed", "features")


@pytest.mark.drawn(4)
@needs_chromium
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in QUICK else pytest.mark.thorough) for name in MODELS],
)
def test_the_page_computes_what_transformer_lens_computes(name, tmp_path):
    model = MODELS[name]()
    draws = Draws(model, n_pos=min(model.cfg.n_ctx, 12))
    reference = ms.Named(name="reference", value=_padded(model, _batch(draws.tokens(N_REFERENCE), CLASSES)))
    cases, wanted = [], []
    for number in range(N_CASES):
        row, of = draws.below(N_REFERENCE), draws.below(3)
        batch, other = _batch(draws.tokens(), [of]), ms.Named(name="other", value=_batch(draws.tokens()))
        drawn = ms.Named(name="drawn", value=replace(reference.value, lengths=None).select(slice(row, row + 1)))
        bidirectional = model.cfg.attention_dir == "bidirectional"
        edit, interventions = draws.case(number, {"reference": reference, "other": other, "drawn": drawn, "class": of})
        if number % 5 == 0 or (bidirectional and edit["kind"] == "pattern"):
            edit, interventions = None, []
        cases.append(
            {
                "tokens": batch.inputs[0].tolist(),
                "other": other.value.inputs[0].tolist(),
                "row": row,
                "edits": [] if edit is None else [edit],
            }
        )
        with torch.no_grad(), intervene(model, batch, interventions):
            logits, cache = model.run_with_cache(batch.inputs)
        wanted.append((logits[0], cache[f"blocks.{model.cfg.n_layers - 1}.attn.hook_pattern"][0]))

    packer = Packer()
    run = {
        "cfg": page_configuration(model),
        "checkpoints": [packer.checkpoint(model)],
        "dictionaries": [asdict(one) for one in packer.dictionaries(model)],
        "reference": reference.value.inputs.tolist(),
        "lengths": reference.value.known_lengths.tolist(),
        "classes": {"kind": CLASSES},
    }
    content = {"tensors": packer.tensors, "run": run, "cases": cases}
    answers = computed(("weights", "means"), HARNESS, content, tmp_path)
    for case, answer, (logits, pattern) in zip(cases, answers, wanted, strict=True):
        for found, expected in ((answer["logits"], logits), (answer["pattern"], pattern)):
            floats = np.frombuffer(base64.b64decode(found), "<f4").reshape(expected.shape)
            np.testing.assert_allclose(floats, expected.numpy(), rtol=1e-5, atol=1e-4, err_msg=str(case["edits"]))
