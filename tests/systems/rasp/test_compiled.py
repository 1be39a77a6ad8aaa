"""The compiled programs: as Tracr has them, right on every sequence, and with circuits that path patching sees."""

import ast
from pathlib import Path

import pytest
import torch

import mnemoscope as ms
from mnemoscope import InputError
from mnemoscope.methods import KNOWN_CIRCUITS
from mnemoscope.systems.rasp import models
from mnemoscope.systems.rasp.circuits import known_circuit
from mnemoscope.systems.rasp.models import VARIANTS, compiled
from mnemoscope.systems.rasp.programs import PROGRAMS

FILES = Path(models.__file__).parent / "compiled"
IN_RASP = Path(__file__).with_name("in_rasp.py")
EXACT, NONE = 1e-4, 1e-3
"""Largest difference of logits that is rounding; largest share of the difference between prompts that is none."""
SEEN = 0.01
"""Smallest share that an edge of the circuit moves on some prompt."""
each_program = pytest.mark.parametrize("program", PROGRAMS)
every_variant = pytest.mark.parametrize("variant", VARIANTS)


@torch.no_grad()
def right(found) -> bool:
    every = found.task.enumerate(split="test")
    return bool((found.model()(every.inputs).argmax(-1) == every.targets)[every.scored].all())


@each_program
@torch.no_grad()
def test_outputs_are_those_of_tracr(program):
    found = compiled(program)
    outputs = found.model()(found.inputs)
    assert (outputs - found.outputs).abs().max() < EXACT
    definition = PROGRAMS[program]
    for shown, given in zip(found.inputs[:, 1:].tolist(), found.decoded.tolist(), strict=True):
        due = definition.answer([definition.tokens[token] for token in shown])
        assert all(
            answer is None or definition.outputs[number] == answer for answer, number in zip(due, given, strict=True)
        )


@each_program
def test_every_sequence_is_answered(program):
    assert right(compiled(program))


def test_files_are_small_and_hold_the_programs_as_they_are_written():
    texts = IN_RASP.read_text(encoding="utf-8")
    written = {
        node.name: ast.get_source_segment(texts, node)
        for node in ast.parse(texts).body
        if isinstance(node, ast.FunctionDef)
    }
    assert sorted(file.stem for file in FILES.iterdir()) == sorted(PROGRAMS)
    for program in PROGRAMS:
        assert (FILES / f"{program}.npz").stat().st_size < 2**15
        assert compiled(program).text.strip() == written[program]


@every_variant
@pytest.mark.parametrize("program", ["hist", "majority", "reverse"])
@torch.no_grad()
def test_a_variant_answers_as_the_program_does(program, variant):
    found = VARIANTS[variant](compiled(program), seed=3)
    assert right(found)
    if variant != "noised":
        assert (found.model()(found.inputs) - found.outputs).abs().max() < EXACT
    other = VARIANTS[variant](compiled(program), seed=4)
    assert not torch.equal(found.weights["embed.W_E"], other.weights["embed.W_E"])


def test_variants_leave_few_zeros():
    programs = {"compiled": compiled("hist"), **{name: make(compiled("hist")) for name, make in VARIANTS.items()}}
    zeros = {name: float((each.weights["embed.W_E"] == 0).float().mean()) for name, each in programs.items()}
    assert zeros["compiled"] > 0.8
    assert zeros["noised"] == 0
    assert zeros["rotated"] < 0.01
    assert zeros["padded"] < 0.6


def test_a_padded_program_names_its_heads_anew():
    found, seeds = compiled("majority"), range(6)
    circuits = {frozenset(models.padded(found, seed=seed).edges) for seed in seeds}
    assert len(circuits) > 1
    assert {len(circuit) for circuit in circuits} == {len(found.edges)}
    widths = [models.padded(found, seed=seed).model().cfg.n_heads for seed in seeds]
    assert set(widths) == {found.model().cfg.n_heads + models.N_HEADS}


def moved(known, n: int = 24) -> dict[str, float]:
    """For every edge the largest share of the difference between two prompts that path patching moves."""
    pairs = known.pairs(n, 0)
    values = ms.patch_edges(known.model, pairs).isel(metric=0)
    whole = abs(values.clean - values.corrupted)
    shares = [
        abs(values.value.sel(direction=direction) - base) / whole
        for direction, base in (("noising", values.clean), ("denoising", values.corrupted))
    ]
    largest = [share.max("prompt").values for share in shares]
    return {str(edge): float(max(pair)) for edge, *pair in zip(values.edge.values, *largest, strict=True)}


def check_circuit(known) -> None:
    found = moved(known)
    assert min(found[edge] for edge in known.edges) > SEEN, {edge: found[edge] for edge in known.edges}
    assert max(share for edge, share in found.items() if edge not in known.edges) < NONE


@pytest.mark.parametrize(("program", "variant"), [("hist", None), ("count", "padded"), ("first", "rotated")])
def test_path_patching_sees_the_circuit_and_nothing_else(program, variant):
    check_circuit(known_circuit(program, variant))


@pytest.mark.thorough
@pytest.mark.parametrize("variant", [None, "rotated", "padded"])
@each_program
def test_path_patching_sees_every_circuit_and_nothing_else(program, variant):
    check_circuit(known_circuit(program, variant))


@pytest.mark.thorough
@each_program
def test_every_variant_of_every_program_answers_as_it_does(program):
    assert all(right(make(compiled(program))) for make in VARIANTS.values())


@each_program
def test_constants_are_no_part_of_the_circuit(program):
    found = compiled(program)
    edges = {str(edge) for edge in ms.interventions.model_edges(found.model())}
    assert found.edges <= edges
    assert found.constants <= edges - found.edges


def test_there_are_more_than_sixty_known_circuits():
    names = [name for name in KNOWN_CIRCUITS.names() if name.startswith("rasp-")]
    assert len(names) == len(PROGRAMS) * (1 + len(VARIANTS)) > 60
    known = KNOWN_CIRCUITS.get("rasp-hist-padded")()
    assert known.family == KNOWN_CIRCUITS.get("rasp-hist")().family == "rasp-hist"
    assert "make_hist" in known.source
    pairs = known.pairs(7, 1)
    assert len(pairs) == 7
    assert (pairs.answer != pairs.foil)[pairs.scored].all()


def test_an_unknown_variant_is_refused():
    with pytest.raises(InputError, match="variant must be one of"):
        known_circuit("hist", "scaled")


def test_answers_that_are_no_tokens_are_measured():
    """Classes beyond the vocabulary: there are four tokens, and counts up to five."""
    known, task = known_circuit("length"), compiled("length").task
    assert len(task.classes) > task.d_vocab
    pairs = known.pairs(32, 0).read_last()
    assert int(pairs.answer[pairs.scored].max()) >= task.d_vocab
    batch = pairs.clean
    ms.patch(known.model, pairs, kind="z", over=("layer", "head"))
    ms.ablate(known.model, batch, skills=task.skills(batch), reference=batch)
    ms.analyses.attribute_edges(known.model, pairs)
    ms.logit_attribution(known.model, batch)
    ms.logit_lens(known.model, batch)
