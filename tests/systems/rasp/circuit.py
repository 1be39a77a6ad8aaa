"""The circuit of a compiled program, derived from the graph of the program and from its weights."""

import numpy as np
from tracr.compiler import nodes
from tracr.rasp import causal_eval, rasp
from tracr.rasp.rasp import Aggregate, Map, SelectorWidth, SequenceMap, tokens

N_EVALUATED = 400
"""Sequences on which s-ops are evaluated, to see which of them vary."""


# ---- the circuit from the graph of the program


def varying(compiled) -> set[str]:
    """S-ops whose values differ between sequences, at some place; with causal attention as the model has it."""
    evaluator = causal_eval.CausalEvaluator() if compiled.program.causal else rasp.DefaultRASPEvaluator()
    sops = {name: node[nodes.EXPR] for name, node in compiled.graph.nodes.items()}
    values: dict[str, set] = {name: set() for name, sop in sops.items() if isinstance(sop, rasp.SOp)}
    for shown in compiled.draw(N_EVALUATED):
        for name, each in values.items():
            try:
                each.add(tuple(evaluator.evaluate(sops[name], shown)))
            except ValueError:  # several letters have no mean
                continue
    return {name for name, each in values.items() if len(each) > 1}


def _depends(function, *values) -> list[bool]:
    """Whether a function of one or two arguments depends on each, given what the arguments can be."""
    table: dict[tuple, object] = {}
    grid = [(a, b) for a in values[0] for b in values[1]] if len(values) == 2 else [(a,) for a in values[0]]
    for arguments in grid:
        try:
            table[arguments] = function(*arguments)
        except (ArithmeticError, TypeError):
            table[arguments] = None
    changes = []
    for axis in range(len(values)):
        groups: dict[tuple, set] = {}
        for arguments, value in table.items():
            groups.setdefault(arguments[:axis] + arguments[axis + 1 :], set()).add(value)
        changes.append(any(len(group) > 1 for group in groups.values()))
    return changes


def circuit_of_graph(compiled) -> set[str]:
    """Edges on which what varies between sequences flows to the answer, by the program's own dependencies."""
    graph, places, varies = compiled.graph, compiled.places, varying(compiled)
    edges, seen = set(), set()

    def read(sop, reader: str) -> None:
        if sop.label in varies:
            edges.add(f"{places[sop.label][-1]} → {reader}")
            visit(sop)

    def values(sop) -> set:
        return graph.nodes[sop.label][nodes.VALUE_SET]

    def visit(sop) -> None:
        if sop.label in seen or sop.label not in varies:
            return
        seen.add(sop.label)
        parts = places[sop.label]
        if isinstance(sop, Aggregate | SelectorWidth):
            chosen = sop.selector
            by_key, by_query = _depends(chosen.predicate, values(chosen.keys), values(chosen.queries))
            if by_query:
                read(chosen.queries, f"{parts[0]} q")
            if by_key:
                read(chosen.keys, f"{parts[0]} k")
            if isinstance(sop, Aggregate):
                read(sop.sop, f"{parts[0]} v")
            else:
                edges.add(f"{parts[0]} → {parts[1]}")
        elif isinstance(sop, SequenceMap):
            depends = _depends(sop.f, values(sop.fst), values(sop.snd))
            for argument, matters in zip((sop.fst, sop.snd), depends, strict=True):
                if matters:
                    read(argument, parts[0])
        elif isinstance(sop, Map) and _depends(sop.f, values(sop.inner))[0]:
            read(sop.inner, parts[0])

    read(compiled.sink[nodes.EXPR], "logits")
    return edges


# ---- the circuit from the weights


class Part:
    """A head or an MLP: what it reads through each of its inputs, and what it writes, by direction."""

    def __init__(self, name: str, found: dict[str, np.ndarray], layer: int, head: int | None):
        self.name, self.head = name, head
        if head is None:
            self.reads = {"": found[f"blocks.{layer}.mlp.W_in"]}
            self.out = found[f"blocks.{layer}.mlp.W_out"]
        else:
            q, k, v, o = (found[f"blocks.{layer}.attn.W_{kind}"][head] for kind in "QKVO")
            self.reads = {" q": q @ k.T, " k": k @ q.T, " v": v @ o}
            self.out = v @ o


def circuit_of_weights(compiled, found: dict[str, np.ndarray], *, constants: bool) -> set[str]:
    """Edges on which the answer can depend, by directions that are written and read.

    Without `constants` an edge counts only if what is read can differ between sequences: tokens differ, while places,
    the one and BOS do not; a categorical variable is read where its values are told apart, a numerical one where its
    weight is not zero.
    """
    groups: dict[str, list[int]] = {}
    for i, direction in enumerate(compiled.basis):
        groups.setdefault(str(direction.name), []).append(i)
    config, everything = compiled.model.model_config, set(range(len(compiled.basis)))
    parts = []
    for layer in range(config.num_layers):
        parts += [Part(f"L{layer}H{head}", found, layer, head) for head in range(config.num_heads)]
        parts.append(Part(f"L{layer} MLP", found, layer, None))

    def told_apart(matrix: np.ndarray, carried: set[int], members: list[int]) -> np.ndarray:
        """The columns through which a variable is read."""
        rows = matrix[[i for i in members if i in carried]]
        if len(members) == 1 or constants:
            return np.abs(rows).sum(0) > 0
        return np.ptp(rows, 0) > 0 if len(rows) else np.zeros(matrix.shape[1], dtype=bool)

    def nonzero(matrix: np.ndarray) -> set[int]:
        return set(np.flatnonzero(np.abs(matrix).sum(0)).tolist())

    embedded = {i for i, direction in enumerate(compiled.basis) if direction.name == tokens.label}
    embedded -= {i for i in embedded if compiled.basis[i].value in compiled.special}
    both = np.concatenate((found["embed.W_E"], found["pos_embed.W_pos"]))
    written = {"input": nonzero(both) if constants else embedded}
    carried = everything if constants else set(embedded)
    neurons: dict[str, np.ndarray] = {}
    for part in parts:
        apart = {way: [told_apart(m, carried, g) for g in groups.values()] for way, m in part.reads.items()}
        if part.head is None:
            neurons[part.name] = np.any(apart[""], 0)
            written[part.name] = nonzero(part.out[neurons[part.name]])
        else:
            varies = any(np.any(way) for way in apart.values())
            written[part.name] = nonzero(part.out) if varies else set()
        carried |= written[part.name]

    edges, live = set(), nonzero(found["unembed.W_U"].T)
    before = list(written)

    def connect(reader: str, directions: set[int], until: int) -> None:
        edges.update(f"{name} → {reader}" for name in before[:until] if written[name] & directions)

    connect("logits", live, len(before))
    for place in reversed(range(len(parts))):
        part = parts[place]
        if not written[part.name] & live:
            continue
        reached: set[int] = set()
        for way, matrix in part.reads.items():
            if part.head is None:
                chosen = neurons[part.name] & (np.abs(part.out[:, sorted(live)]).sum(1) > 0)
                matrix = matrix * chosen
            members = [set(g) for g in groups.values() if told_apart(matrix, carried, g).any()]
            directions = set().union(*members) & (nonzero(matrix.T) if constants else carried)
            end = 1 + next(i for i, each in enumerate(parts) if each.name.split("H")[0] == part.name.split("H")[0])
            connect(f"{part.name}{way}", directions, place + 1 if part.head is None else end)
            reached |= directions
        live |= reached
    return edges
