"""Compiles the RASP programs of mnemoscope.systems.rasp with Tracr: `PYTHON tests/systems/rasp/compile.py [NAME ...]`.

PYTHON is the interpreter of an environment of its own with `pip install tracr-pypi`; mnemoscope is not needed there.
Every program takes about a quarter of a minute. Results lie in src/mnemoscope/systems/rasp/compiled, a file a program.

The circuit is derived twice: from the graph of the program, which says what every s-op depends on and in which head
or MLP it lies, and from the weights, by the named directions of the residual stream that parts write and read. A
program whose two circuits differ is refused.
"""

import importlib.util
import inspect
import json
import sys
from itertools import chain
from pathlib import Path
from types import ModuleType

import in_rasp
import jax.numpy as jnp
import numpy as np
from circuit import circuit_of_graph, circuit_of_weights
from tracr.compiler import (
    assemble,
    basis_inference,
    craft_graph_to_model,
    craft_model_to_transformer,
    expr_to_craft_graph,
    nodes,
    rasp_to_graph,
)
from tracr.craft import bases, transformers
from tracr.rasp.rasp import indices, tokens

ROOT = Path(__file__).parents[3]
GUEST = ROOT / "src" / "mnemoscope" / "systems" / "rasp"
N_REFERENCE = 8
"""Sequences whose outputs are kept, as Tracr gives them."""
PAD = "compiler_pad"


def load_programs() -> ModuleType:
    """The module with the answers in plain Python, by its path: its package imports mnemoscope."""
    spec = importlib.util.spec_from_file_location("rasp_programs", GUEST / "programs.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


programs = load_programs()
BOS = programs.BOS


# ---- compilation, step by step as compile_rasp_to_model does it, since it does not give the graph away


class Compiled:
    """A program, its graph, and where each of its s-ops lies."""

    special = (BOS, PAD)

    def __init__(self, name: str):
        self.program = programs.PROGRAMS[name]
        self.text = inspect.getsource(getattr(in_rasp, name))
        extracted = rasp_to_graph.extract_rasp_graph(getattr(in_rasp, name)())
        self.graph, self.sink = extracted.graph, extracted.sink
        n_shown = self.program.n_shown
        basis_inference.infer_bases(self.graph, self.sink, set(self.program.tokens), n_shown)
        expr_to_craft_graph.add_craft_components_to_rasp_graph(
            self.graph, bos_dir=bases.BasisDirection(tokens.label, BOS), causal=self.program.causal
        )
        craft = craft_graph_to_model.craft_graph_to_model(self.graph, extracted.sources)
        self.model = craft_model_to_transformer.craft_model_to_transformer(
            craft_model=craft,
            graph=self.graph,
            sink=self.sink,
            max_seq_len=n_shown,
            compiler_bos=BOS,
            compiler_pad=PAD,
            causal=self.program.causal,
        )
        self.places = self._places(craft, extracted.sources)
        spaces = [
            bases.VectorSpaceWithBasis.from_values(tokens.label, {*self.program.tokens, BOS, PAD}),
            bases.VectorSpaceWithBasis.from_values(indices.label, range(n_shown)),
            bases.VectorSpaceWithBasis(self.sink[nodes.OUTPUT_BASIS]),
        ]
        self.basis = bases.join_vector_spaces(craft.residual_space, *spaces).basis
        assert [str(each) for each in self.basis] == self.model.residual_labels

    def _places(self, craft, sources) -> dict[str, list[str]]:
        """The parts that compute each s-op, in order: a head, an MLP, or a head and its MLP."""
        layers = craft_graph_to_model._allocate_modules_to_layers(self.graph, sources)
        names = assemble._get_model_config_and_module_names(craft)[1]
        filled = sorted({*chain.from_iterable((n, n + 1) if self._is_pair(s) else (n,) for s, n in layers.items())})
        module = dict(zip(filled, names, strict=True))
        heads: dict[int, int] = {}
        places = {tokens.label: ["input"], indices.label: ["input"]}
        for sop, number in layers.items():
            parts = []
            for n in (number, number + 1) if self._is_pair(sop) else (number,):
                layer = int(module[n].split("_")[1].split("/")[0])
                if module[n].endswith("mlp"):
                    parts.append(f"L{layer} MLP")
                else:
                    parts.append(f"L{layer}H{heads.setdefault(n, 0)}")
                    heads[n] += 1
            places[sop] = parts
        return places

    def _is_pair(self, sop: str) -> bool:
        return isinstance(self.graph.nodes[sop][nodes.MODEL_BLOCK], transformers.SeriesWithResiduals)

    def encode(self, shown) -> list[int]:
        return [len(self.program.tokens), *map(self.program.tokens.index, shown)]

    def draw(self, n: int) -> list[list]:
        """Random sequences."""
        random = np.random.default_rng(0)
        size, alphabet = self.program.n_shown, list(self.program.tokens)
        drawn = [random.choice(len(alphabet), size, replace=not self.program.distinct) for _ in range(n)]
        return [[alphabet[i] for i in each] for each in drawn]


# ---- weights under TransformerLens's names, tokens and classes in the order of mnemoscope


def weights(compiled: Compiled) -> dict[str, np.ndarray]:
    model, program, config = compiled.model, compiled.program, compiled.model.model_config
    params = {name: {kind: np.asarray(value) for kind, value in each.items()} for name, each in model.params.items()}
    order = [model.input_encoder.encoding_map[token] for token in (*program.tokens, BOS)]
    places = {direction: i for i, direction in enumerate(compiled.basis)}
    out = {direction.value: places[direction] for direction in compiled.sink[nodes.OUTPUT_BASIS]}
    assert set(out) == set(program.outputs), (sorted(map(str, out)), program.outputs)
    found = {
        "embed.W_E": params["token_embed"]["embeddings"][order],
        "pos_embed.W_pos": params["pos_embed"]["embeddings"],
        "unembed.W_U": np.eye(len(places), dtype=np.float32)[:, [out[value] for value in program.outputs]],
    }
    heads, width = config.num_heads, config.key_size
    for layer in range(config.num_layers):
        for kind, letter in {"query": "Q", "key": "K", "value": "V"}.items():
            packed = params[f"transformer/layer_{layer}/attn/{kind}"]["w"].reshape(-1, heads, width)
            found[f"blocks.{layer}.attn.W_{letter}"] = packed.swapaxes(0, 1)
        packed = params[f"transformer/layer_{layer}/attn/linear"]["w"]
        found[f"blocks.{layer}.attn.W_O"] = packed.reshape(heads, width, -1)
        for number, end in enumerate(("in", "out"), 1):
            found[f"blocks.{layer}.mlp.W_{end}"] = params[f"transformer/layer_{layer}/mlp/linear_{number}"]["w"]
    biases = [value for each in params.values() for kind, value in each.items() if kind == "b"]
    assert not any(value.any() for value in biases)
    return {name: np.ascontiguousarray(value, dtype=np.float32) for name, value in found.items()}


def reference(compiled: Compiled) -> dict[str, np.ndarray]:
    """Inputs, the outputs of Tracr's own model on them, and what Tracr decodes from these."""
    program, model = compiled.program, compiled.model
    shown = compiled.draw(N_REFERENCE)
    encoded = jnp.array([model.input_encoder.encode([BOS, *each]) for each in shown])
    run = model.forward(model.params, encoded)
    columns = [compiled.basis.index(bases.BasisDirection(compiled.sink[nodes.ID], value)) for value in program.outputs]
    decoded = [model.output_encoder.decode(row[1:].tolist()) for row in run.unembedded_output]
    return {
        "inputs": np.array([compiled.encode(each) for each in shown]),
        "outputs": np.asarray(run.transformer_output.output)[..., columns],
        "decoded": np.array([[program.outputs.index(value) for value in row] for row in decoded]),
    }


def compile_program(name: str) -> None:
    """Compile a program, derive its circuit twice, and write its file."""
    compiled = Compiled(name)
    program = compiled.program
    found, kept = weights(compiled), reference(compiled)
    for shown, decoded in zip(compiled.draw(N_REFERENCE), kept["decoded"], strict=True):
        for value, number in zip(program.answer(shown), decoded, strict=True):
            assert value is None or program.outputs[number] == value, (name, shown, program.answer(shown), decoded)
    circuit, by_weights = circuit_of_graph(compiled), circuit_of_weights(compiled, found, constants=False)
    if circuit != by_weights:
        raise ValueError(f"{name}: only by the graph {circuit - by_weights}, only by weights {by_weights - circuit}")
    config = compiled.model.model_config
    about = {
        "text": compiled.text,
        "tokens": [*map(str, program.tokens), BOS],
        "outputs": [str(value) for value in program.outputs],
        "directions": [str(direction) for direction in compiled.basis],
        "edges": sorted(circuit),
        "constants": sorted(circuit_of_weights(compiled, found, constants=True) - circuit),
        "places": {sop: parts for sop, parts in compiled.places.items() if sop in compiled.graph},
        "n_heads": config.num_heads,
        "n_layers": config.num_layers,
        "causal": program.causal,
    }
    file = GUEST / "compiled" / f"{name}.npz"
    np.savez_compressed(file, about=np.array(json.dumps(about)), **found, **kept)
    sizes = f"{config.num_layers} layers, {config.num_heads} heads, {len(compiled.basis)} wide"
    print(f"{name}: {sizes}, {len(circuit)} edges, {len(about['constants'])} constants, {file.stat().st_size} bytes")


if __name__ == "__main__":
    for chosen in sys.argv[1:] or programs.PROGRAMS:
        compile_program(chosen)
