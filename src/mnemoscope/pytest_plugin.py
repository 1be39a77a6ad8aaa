"""Claims about models as unit tests, `pytest --mnemoscope-runs DIR`; laws as tests, `--mnemoscope-hookcheck MODEL`.

A test marked with `pytest.mark.claim` becomes one item per seed of the runs found there. An item whose model does not
do what is claimed *deviates* and does not fail; all items together give a verdict, printed at the end of the session.
The measurements of an item travel in its `user_properties`, so that they arrive from other processes and in JUnit XML.

Every session of every user of the package loads the plugin, so it imports nothing heavy unless it is used. Without its
options it only skips marked tests.
"""

from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from mnemoscope.claims.ruling import Ruling
    from mnemoscope.claims.testing.cases import SeedItem
    from mnemoscope.core.protocols import HookedModel
    from mnemoscope.hookcheck.law import Law
    from mnemoscope.interventions.subject import TestSubject
    from mnemoscope.models.run import Run
    from mnemoscope.models.subjects import Subject

MARKER = (
    "claim(statement, *, quantifier='most', gate=None, at_least=0.99, preset=None, expect=None): the test states a "
    "claim about every model of --mnemoscope-runs; together they give a verdict (mnemoscope)"
)
NEEDS_RUNS = "a claim about trained models: give their runs with --mnemoscope-runs DIR"
LETTERS = {"deviates": "d", "not learned": "n"}
COLOURS = {"SUPPORTED": "green", "REFUTED": "yellow"}

_GROUPS = pytest.StashKey["dict[str, list[Run]]"]()
_ITEM = pytest.StashKey["SeedItem"]()
_PARAMETER = "_seed_item"


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--mnemoscope-runs`, `--mnemoscope-json` and `--mnemoscope-hookcheck`."""
    group = parser.getgroup("mnemoscope", "claims about trained models (mnemoscope)")
    group.addoption(
        "--mnemoscope-runs",
        action="append",
        default=[],
        metavar="DIR",
        help="run directory, or a directory that holds some; may be given several times",
    )
    group.addoption("--mnemoscope-json", metavar="FILE", help="write the verdicts on the claims to this file")
    group.addoption(
        "--mnemoscope-hookcheck",
        action="append",
        default=[],
        metavar="MODEL",
        help="check this model against the laws of hooked models, one test a law: what `mnemoscope hookcheck` takes, "
        "such as FILE.py:FUNCTION; may be given several times",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Check what can be checked without reading a run."""
    config.addinivalue_line("markers", MARKER)
    places, out = config.getoption("mnemoscope_runs") or [], config.getoption("mnemoscope_json")
    for place in places:
        _check_json_path(place)
    if out and not Path(out).absolute().parent.is_dir():
        raise pytest.UsageError(f"--mnemoscope-json: the directory of {out} does not exist; make it first")
    if (places or out) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(VerdictCollector(out), "mnemoscope-verdicts")


def _check_json_path(place: str) -> None:
    if place.partition(":")[0] == "zoo":
        return
    if not Path(place).is_dir():
        raise pytest.UsageError(f"--mnemoscope-runs: there is no directory {place}")
    if next(Path(place).rglob("run.json"), None) is None:
        raise pytest.UsageError(f"--mnemoscope-runs: {place} is no run directory and holds none; train some first")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One item per seed for tests of claims."""
    marker = metafunc.definition.get_closest_marker("claim")
    places = metafunc.config.getoption("mnemoscope_runs")
    if marker is None or not places:
        return
    from mnemoscope.claims.testing.cases import SeedItem, choose_runs, read_marker, runs_by_configuration
    from mnemoscope.core.errors import InputError

    function = metafunc.function
    try:
        marked = read_marker(marker.args, marker.kwargs, name=function.__name__, doc=function.__doc__)
        if _GROUPS not in metafunc.config.stash:
            metafunc.config.stash[_GROUPS] = runs_by_configuration(places)
        runs = choose_runs(metafunc.config.stash[_GROUPS], marked.preset)
    except InputError as error:
        raise pytest.Collector.CollectError(f"{metafunc.definition.nodeid}: {error}") from None
    items = [SeedItem(marked=marked, run=run, runs=runs) for run in runs]
    if _PARAMETER not in metafunc.fixturenames:
        metafunc.fixturenames.append(_PARAMETER)
    metafunc.parametrize(_PARAMETER, items, indirect=True, ids=[item.name for item in items], scope="function")


def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Laws of models become tests, and claims without runs are skipped."""
    for model in config.getoption("mnemoscope_hookcheck") or []:
        items += _law_items(session, model)
    if config.getoption("mnemoscope_runs"):
        return
    for item in items:
        if item.get_closest_marker("claim"):
            item.add_marker(pytest.mark.skip(reason=NEEDS_RUNS))


def _law_items(session: pytest.Session, model: str) -> "list[LawItem]":
    """One test for each law about a model."""
    from mnemoscope.core.errors import InputError
    from mnemoscope.hookcheck.laws import LAWS
    from mnemoscope.hookcheck.named import open_model
    from mnemoscope.interventions.subject import make_subject

    try:
        subject = make_subject(open_model(model))
    except InputError as error:
        raise pytest.UsageError(f"--mnemoscope-hookcheck: {error}") from None
    return [LawItem.from_parent(session, name=f"{model}::{name}", law=LAWS[name], subject=subject) for name in LAWS]


class LawItem(pytest.Item):
    """A test that a model keeps a law; it is skipped where the law does not apply."""

    def __init__(self, *, law: "Law", subject: "TestSubject", **options: Any):
        super().__init__(**options)
        self.law, self.subject = law, subject

    def runtest(self) -> None:
        """Fail in one line where the law is broken."""
        from mnemoscope.hookcheck.check import find

        finding = find(self.law, self.subject)
        if finding.outcome == "broken":
            pytest.fail(finding.describe(self.law), pytrace=False)
        if finding.outcome != "holds":
            pytest.skip(f"{finding.outcome}: {finding.reason}")

    def reportinfo(self) -> tuple[Path, None, str]:
        """The law in place of a line of a file."""
        return self.path, None, self.name


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Record which claim and seed the item is about, before anything can go wrong."""
    call = getattr(item, "callspec", None)
    if call is not None and _PARAMETER in call.params:
        seed = item.stash[_ITEM] = replace(call.params[_PARAMETER])  # with a model that nobody has changed
        item.user_properties += seed.claim_properties(item.nodeid)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A model that does not pass the gate is not measured."""
    seed = pyfuncitem.stash.get(_ITEM, None)
    return None if seed is None or seed.learned else True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Put the item's model on trial, and keep what was measured if nothing went wrong."""
    seed = item.stash.get(_ITEM, None)
    if seed is None:
        return (yield)
    from mnemoscope.claims.testing.cases import collect_effects

    with collect_effects(lambda: seed.subject) as effects:
        result = yield
    item.user_properties += seed.measured_properties(effects)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Bad input to a claim is one line; the model is let go at the end."""
    report = yield
    if _ITEM in item.stash:
        from mnemoscope.core.errors import InputError

        if call.excinfo is not None and isinstance(call.excinfo.value, InputError):
            report.longrepr = str(call.excinfo.value)
        if call.when == "teardown":
            del item.stash[_ITEM]
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_report_teststatus(report: Any) -> tuple[str, str, tuple[str, dict[str, bool]]] | None:
    """Seeds that deviate, and models that do not pass the gate, are outcomes of their own."""
    if report.when != "call" or not report.passed:
        return None
    outcome = _properties(report).get("claim_outcome")
    return (outcome, LETTERS[outcome], (outcome.upper(), {"yellow": True})) if outcome in LETTERS else None


def _properties(report: pytest.TestReport) -> dict[str, Any]:
    """The report's properties that are about a claim."""
    return {name: value for name, value in report.user_properties if str(name).startswith("claim")}


class VerdictCollector:
    """Collects what items measured, where the reports of all processes arrive, and judges when all have come."""

    def __init__(self, out: str | None):
        self.out = out
        self.seeds: dict[str, dict[int, dict[str, Any]]] = {}
        self.rulings: list[Ruling] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep an item's properties, which are complete at its end."""
        found = _properties(report)
        if report.when == "teardown" and "claim" in found:
            self.seeds.setdefault(found["claim"], {})[found["claim_seed"]] = found

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Judge; before JUnit XML is written."""
        from mnemoscope.claims.ruling import write_rulings
        from mnemoscope.claims.testing.cases import is_unexpected, rule_on_seeds

        self.rulings = [rule_on_seeds(list(seeds.values())) for _, seeds in sorted(self.seeds.items())]
        if self.out:
            write_rulings(self.rulings, Path(self.out))
        for plugin in session.config.pluginmanager.get_plugins():
            if hasattr(plugin, "add_global_property"):  # the writer of JUnit XML
                for ruling in self.rulings:
                    plugin.add_global_property(ruling.claim.id, f"{ruling.verdict.outcome}: {ruling.verdict.reason}")
        if session.exitstatus == pytest.ExitCode.OK and any(
            is_unexpected(each, self._first_properties(each)) for each in self.rulings
        ):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _first_properties(self, ruling: "Ruling") -> dict[str, Any]:
        """The properties of one seed, which say the configuration and the expected outcome."""
        return next(iter(self.seeds[ruling.claim.id].values()))

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """One line per claim."""
        if not self.rulings:
            return
        from mnemoscope.claims.testing.cases import is_unexpected, summary_line

        terminalreporter.section("claims")
        for ruling in self.rulings:
            outcome, first = ruling.verdict.outcome, self._first_properties(ruling)
            colour = "red" if is_unexpected(ruling, first) else COLOURS.get(outcome)
            terminalreporter.write(f"{outcome:<14} ", **({colour: True} if colour else {}))
            terminalreporter.write(f"{summary_line(ruling, first)}\n")


@pytest.fixture
def _seed_item(request: pytest.FixtureRequest) -> "SeedItem":
    if _ITEM not in request.node.stash:
        pytest.fail(
            "the fixtures run, runs, model and subject of mnemoscope are for tests marked with @pytest.mark.claim",
            pytrace=False,
        )
    return request.node.stash[_ITEM]


@pytest.fixture
def run(_seed_item: "SeedItem") -> "Run":
    """The run of the seed on trial (mnemoscope)."""
    return _seed_item.run


@pytest.fixture
def runs(_seed_item: "SeedItem") -> "list[Run]":
    """The runs of all seeds of the configuration on trial (mnemoscope)."""
    return _seed_item.runs


@pytest.fixture
def subject(_seed_item: "SeedItem") -> "Subject":
    """The model on trial with its task and its seed (mnemoscope)."""
    return _seed_item.subject


@pytest.fixture
def model(_seed_item: "SeedItem") -> "HookedModel":
    """The model on trial, after its last step (mnemoscope)."""
    return _seed_item.subject.model
