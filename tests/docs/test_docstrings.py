"""Every public function and class has an example in its docstring, and the example prints what the docstring says."""

import doctest
import functools
import inspect

import pytest

import mnemoscope as ms
from tests.doc_examples import examples_of, public_objects, shared_names

OBJECTS = public_objects()
LANGUAGE = ("ms.language_model", "ms.prompt_pairs", "ms.prompts")
"""Their examples use the packaged language model."""
PACKAGED = functools.cache(ms.language_model)
MARKS = {**dict.fromkeys(LANGUAGE, pytest.mark.lm), "ms.run_trials": pytest.mark.full}


def test_every_public_name_has_an_example():
    assert len(OBJECTS) > 150
    assert [name for name, item in OBJECTS.items() if not examples_of(item)] == []


@pytest.mark.parametrize("name", [pytest.param(name, marks=MARKS.get(name, ())) for name in sorted(OBJECTS)])
@pytest.mark.usefixtures("as_installed")
def test_the_example_gives_what_stands_below_it(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ms, "language_model", PACKAGED)  # loaded once
    examples = examples_of(OBJECTS[name])
    assert inspect.isclass(OBJECTS[name]) or any(f"{name}(" in example.source for example in examples)
    printed: list[str] = []
    test = doctest.DocTest(examples, shared_names(), name, None, None, None)
    failed = doctest.DocTestRunner(verbose=False).run(test, out=printed.append).failed
    assert not failed, "".join(printed)
