"""One thread, models that are trained once for all processes of a session, type checks at run time, and the quick lane.

With TYPECHECK annotations and shapes of the package are checked at every call; EXAMPLES is how often hypothesis draws.
With QUICK tests that are marked `full` are left out, and of every other test CASES cases are run, drawn by SEED. With
REST it is all that QUICK leaves out with this SEED. With DRAW n cases of a test that is marked `drawn(n)`
are run; those of tests that are marked `drawn(n, of=its name)` form one group. SHARE is the share of the cases of every
other test that are run, at least one.

The package is imported inside the fixtures, and torch as well: pytest-xdist's controller reads this file too, the
processes that run the tests start after that, and TransformerLens takes ten seconds.
"""

import importlib
import os
import random
from collections import defaultdict
from importlib.util import find_spec
from pathlib import Path

import hypothesis
import pytest

pytest_plugins = ["pytester"]

# This backport takes the place of the standard library's finder; imported within a session of pytester it would be gone
# after it, and with it every distribution.
if find_spec("importlib_metadata"):
    importlib.import_module("importlib_metadata")
os.environ["MNEMOSCOPE_CACHE"] = ""  # tests convert models, and leave nothing in the user's cache
if os.environ.get("TYPECHECK"):
    import jaxtyping

    import tests.typecheck  # noqa: F401 (the hook names it)

    jaxtyping.install_import_hook("mnemoscope", "tests.typecheck.check")
EXAMPLES = int(os.environ.get("EXAMPLES", "10"))
hypothesis.settings.register_profile("fixed", derandomize=True, deadline=None, max_examples=EXAMPLES, database=None)
hypothesis.settings.load_profile("fixed")
QUICK, REST, DRAW = (bool(os.environ.get(name)) for name in ("QUICK", "REST", "DRAW"))
SHARE = float(os.environ.get("SHARE", "1"))
CASES = 1
SEED = int(os.environ.setdefault("SEED", str(random.randrange(10**6))))  # the processes of xdist draw the same sample


def pytest_report_header() -> str | None:
    if DRAW or SHARE < 1:
        return f"SEED={SEED} draws cases of tests; without DRAW and SHARE all are run"
    return f"quick lane: SEED={SEED} draws the cases of tests; make test-full runs all" if QUICK else None


def pytest_terminal_summary(terminalreporter) -> None:
    if QUICK:
        terminalreporter.write_line(f"quick lane: SEED={SEED} make test repeats this sample; make test-full runs all")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items) -> None:
    """Keep what is not marked `full`, and a sample of its cases, for the quick lane; for its rest all others.

    Of what is kept outside of the quick lane SHARE is run.
    """
    left_out = _leave_out(items) if QUICK or REST or DRAW else set()
    if SHARE < 1 and not QUICK:
        left_out |= _leave_out_by_share([item for item in items if item.nodeid not in left_out])
    if left_out:
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in left_out])
        items[:] = [item for item in items if item.nodeid not in left_out]


def _leave_out(items) -> set[str]:
    """The tests that the quick lane, its rest or a draw leaves out."""
    cases: dict[str, list] = defaultdict(list)
    for item in items:
        if DRAW or not item.get_closest_marker("full"):
            cases[_group(item)].append(item)
    kept: set[str] = set()
    for name, those in cases.items():
        n = _n_drawn(those[0], len(those))
        kept |= {item.nodeid for item in random.Random(f"{SEED} {name}").sample(those, min(n, len(those)))}
    return {item.nodeid for item in items if (item.nodeid in kept) == REST}


def _leave_out_by_share(items) -> set[str]:
    """The cases beyond SHARE of every test whose cases no mark counts."""
    cases: dict[str, list[str]] = defaultdict(list)
    for item in items:
        if not (item.get_closest_marker("every_case") or (DRAW and item.get_closest_marker("drawn"))):
            cases[item.nodeid.partition("[")[0]].append(item.nodeid)
    draws = {name: random.Random(f"{SEED} share {name}") for name in cases}
    return {each for name, those in cases.items() for each in draws[name].sample(those, int(len(those) * (1 - SHARE)))}


def _group(item) -> str:
    """Name of the test that an item is a case of, or of the group of tests from which cases are drawn together."""
    found = item.get_closest_marker("drawn") if DRAW else None
    return (found and found.kwargs.get("of")) or item.nodeid.partition("[")[0]


def _n_drawn(item, n_cases: int) -> int:
    """Number of cases of a test that are run."""
    found = item.get_closest_marker("drawn" if DRAW else "sampled")
    if found:
        return found.args[0]
    return n_cases if DRAW or item.get_closest_marker("every_case") else CASES


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def common(tmp_path_factory) -> Path:
    """A directory that the processes of the session share."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(scope="session", autouse=True)
def converted_once(request, common):
    """Where the packaged language model is run, it is converted once: the conversion takes most of the minutes."""
    if any(item.get_closest_marker("lm") for item in request.session.items):
        os.environ["MNEMOSCOPE_CACHE"] = str(common / "cache")


@pytest.fixture(scope="session")
def trained_once(common):
    """A function of a name and a specification that trains a run in the directory of that name.

    The first process of the session trains it, the others read it: a test that writes into it fails at the end.
    """
    from filelock import FileLock

    from mnemoscope.training.loop import train

    place = common / "trained"
    place.mkdir(exist_ok=True)

    trained = {}

    def run(name: str, spec):
        with FileLock(place / f"{name.replace('/', ' ')}.lock"):
            found = train(spec, place / name)
        trained.setdefault(found.path, _times(found.path))
        return found

    yield run
    changed = [path for path, times in trained.items() if _times(path) != times]
    assert not changed, f"shared runs were written into: {changed}"


def _times(path: Path) -> dict[Path, int]:
    """When each file of a run was last changed, save for the lock."""
    return {file: file.stat().st_mtime_ns for file in path.rglob("*") if not file.name.startswith(".")}


@pytest.fixture(scope="session")
def tiny(trained_once):
    """A run of 60 steps on sequences with repeats: two heads, an MLP, not much learned."""
    from tests.support import small_spec

    return trained_once("tiny/run", small_spec("v3"))


@pytest.fixture(scope="session")
def four_values(trained_once):
    """As `tiny`, but with four values: a report enumerates fewer sequences."""
    from tests.support import small_spec

    return trained_once("four-values", small_spec("v3", changes={"task.n_values": 4}))


@pytest.fixture(scope="session")
def learned(trained_once):
    """A v1 that has learned elimination (about 3 s)."""
    from tests.support import LONGER, small_spec

    return trained_once("learned/run", small_spec("v1", changes={**LONGER, "recipe.n_steps": 800}))


@pytest.fixture(scope="session")
def learned_v3(trained_once):
    """A v3 under the quick recipe (about 15 s): tests that use it are slow."""
    from tests.support import LONGER, small_spec

    return trained_once("learned_v3/run", small_spec("v3", changes={**LONGER, "recipe.n_steps": 3000}))


@pytest.fixture
def planted():
    """The hand-set elimination model, anew for every test."""
    from mnemoscope.systems.tiny_recall.constructed import elimination_only

    return elimination_only()


@pytest.fixture
def pretrained(tmp_path, monkeypatch):
    """What `HookedTransformer.from_pretrained("gpt2")` gives where `gpt2` is a small local model; no network.

    Where TransformerLens no longer has it, the same model loaded and processed by ours.
    """
    import torch
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    from mnemoscope.models.language.conversion import language_model
    from mnemoscope.models.lens import HAS_HOOKED_TRANSFORMER, HookedTransformer
    from tests.support import perturbed

    monkeypatch.chdir(tmp_path)
    words = Tokenizer(WordLevel({str(i): i for i in range(11)}, unk_token="0"))
    PreTrainedTokenizerFast(tokenizer_object=words, bos_token="0", eos_token="0").save_pretrained("gpt2")
    config = GPT2Config(vocab_size=11, n_positions=16, n_ctx=16, n_embd=8, n_layer=2, n_head=2)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        perturbed(GPT2LMHeadModel(config)).save_pretrained("gpt2")
    if HAS_HOOKED_TRANSFORMER:
        return HookedTransformer.from_pretrained("gpt2", device="cpu")
    model = language_model("gpt2")
    model.process_weights_()
    return model


@pytest.fixture
def as_installed():
    """No type checks at run time, as for a user: the package's own validation answers."""
    import jaxtyping

    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
