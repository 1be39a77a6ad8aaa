"""Arguments of another kind than expected are refused in one sentence with the way out, not by an error from inside."""

import ast
import inspect

import pytest

import mnemoscope as ms
from tests.analyses.test_run_or_model import own_call, parameters_of
from tests.doc_examples import public_objects, shared_names

RUN = ms.open_run("zoo:v3-quick/seed-16")
BATCH = RUN.spec.task.sample(8, split="test", generator=ms.generator(0, "wrong arguments"))
SKILLS = RUN.spec.task.skills(BATCH)
TOKENS = BATCH.inputs

pytestmark = pytest.mark.usefixtures("as_installed")


def ablate(batch=BATCH, skills=SKILLS, reference=BATCH, kinds=("mean",)):
    return ms.ablate(RUN, batch, skills=skills, reference=reference, kinds=kinds)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ablate(batch=TOKENS), "batch must be an ms.Batch; got a Tensor: task.sample makes one"),
        (lambda: ablate(reference=TOKENS), "reference must be an ms.Batch; got a Tensor"),
        (lambda: ablate(skills=["recall"]), "skills must map names to masks .*; got a list: task.skills"),
        (lambda: ablate(skills=None), "skills must map names to masks .*; got a NoneType"),
        (lambda: ablate(skills={"all": BATCH.scored[0]}), r"skill all must have the shape \(batch, pos\)"),
        (lambda: ablate(kinds="mean"), r"kinds must be a list, such as \['mean'\]; got 'mean'"),
        (lambda: ms.attention(RUN, [1, 2, 3]), "sequences must be texts, tokens as a tensor"),
        (lambda: ms.attention(RUN.model(), TOKENS, symbols=["a"]), "symbols must name tokens 0 to 5, .*; got 1"),
        (lambda: ms.explore("zoo:v3-quick/seed-16"), "open it with ms.open_run"),
        (lambda: ms.explore([RUN, "v3"]), "explore takes one model or several runs; got 'v3'"),
        (lambda: ms.Configuration(preset="v1", changes="n_steps"), "the changes of a configuration must be pairs"),
    ],
)
def test_it_is_refused_in_one_sentence(call, message):
    with pytest.raises(ms.InputError, match=message) as refusal:
        call()
    assert "\n" not in str(refusal.value)


TAKE_BATCHES = {
    name: batches
    for name, item in public_objects().items()
    if name != "ms.analyses.check_fits" and inspect.isfunction(item) and (batches := parameters_of(item, ms.Batch))
}


@pytest.mark.parametrize("name", sorted(TAKE_BATCHES))
def test_tokens_in_place_of_a_batch_are_refused_by_every_function(name):
    """Whoever comes from another library gives tokens."""
    item, names = public_objects()[name], shared_names()
    call = own_call(name, names)
    placed = dict(zip(inspect.signature(item).parameters, map(ast.unparse, call.args), strict=False))
    placed |= {word.arg: ast.unparse(word.value) for word in call.keywords if word.arg}
    given = {argument: eval(text, names) for argument, text in placed.items()}
    argument = next(argument for argument in TAKE_BATCHES[name] if argument in given)
    with pytest.raises(ms.InputError, match=f"^{argument} must be an ms.Batch; got a Tensor"):
        item(**{**given, argument: given[argument].inputs})


def test_changes_of_a_configuration_may_be_a_mapping():
    """`ms.preset` takes a mapping; here one was accepted and failed much later."""
    changes = {"recipe.n_steps": 300}
    given, pairs = (ms.Configuration(preset="v1", changes=each) for each in (changes, tuple(changes.items())))
    assert given == pairs
    assert hash(given) == hash(pairs)
    assert given.spec(0).recipe.n_steps == 300
