"""A small registry: entries of every outcome, kind and standing."""

from mnemoscope.claims.entry import (
    Configuration,
    Control,
    Criterion,
    Dated,
    Entry,
    Gate,
    Paper,
    PartFinding,
    Registration,
    Replication,
    Rival,
    Source,
    Verdict,
)

PAPER = Paper(
    key="doe-2023",
    title="Birth of a Transformer & its <memories>",
    authors=("Jane Doe", "Richard Roe", "Max Muster"),
    year=2023,
    doi="10.1000/xyz_1",
    arxiv="2306.00802",
)
OTHER = Paper(key="roe-2021", title="A circuit", authors=("Roe, Richard",), year=2021, url="javascript:alert(1)")
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def entry(
    short_id: str = "T1", system: str = "tiny-recall", package: str = "mnemo", version: int = 1, **changes
) -> Entry:
    """An entry that holds what every claim has; `changes` are its other fields."""
    fields = {
        "statement": f"Head 1 of {short_id} attends to the previous token.",
        "source": Source(text="Doe et al. 2023, section 4", paper=PAPER, place="Figure 3"),
        "kind": "attention pattern",
        "methods": ("attention reading", "ablation"),
        "configurations": (Configuration(name="v3", preset="v3", recipe="published", digest="ab" * 8),),
        "replicate": "seed",
        "n_replicates": 16,
        "seeds": tuple(range(16)),
        "criteria": (
            Criterion(
                name="effect",
                words="attention to the previous token",
                quantifier="most",
                margin=0.5,
                direction="above",
                unit="share",
            ),
        ),
        "registration": Registration(
            digest="d1" * 8,
            question="q1" * 8,
            code={"measure": "c1" * 8},
            registered=Dated(date="2026-11-20T10:00:00+00:00", commit=COMMIT),
            runs=Dated(date="2026-11-21"),
            standing="before its runs",
        ),
    }
    return Entry(id=f"{package}:{system}/{short_id}@{version}", system=system, **{**fields, **changes})


def verdict(outcome="SUPPORTED", n_clear: int = 16, n: int = 16, **changes) -> Verdict:
    """A verdict on the published recipe."""
    fields = {
        "recipe": "published",
        "judged": Dated(date="2026-11-22", commit=COMMIT),
        "report": "experiments/2026-tiny",
    }
    return Verdict(outcome=outcome, n_clear=n_clear, n=n, **{**fields, **changes})


def registry() -> list[Entry]:
    """Eight entries of two packages, four systems and two papers."""
    found = PartFinding(
        name="effect", share=1.0, share_interval=(0.79, 1.0), effect=0.9, effect_interval=(0.8, 1.0), sd=0.1
    )
    in_full = verdict(
        n_failed=2,
        share=1.0,
        share_interval=(0.79, 1.0),
        effect=0.9,
        effect_interval=(0.8, 1.0),
        unit="share",
        p=0.0001,
        error_rate=0.025,
        sd=0.1,
        deciding="effect",
        parts=(found,),
        rivals={"T1-rival": "REFUTED"},
        confirmed=True,
    )
    earlier = verdict("MIXED", 8, superseded="the gate asked for too little", version=1)
    below = Criterion(name="loss without it", quantifier="every", margin=0.2, direction="below", unit="nats")
    return [
        entry(
            version=2,
            headline=True,
            verdicts=(earlier, in_full),
            gate=Gate(statement="has learned recall", at_least=0.99),
            controls=(Control(name="planted", kind="positive", n=4), Control(name="untrained", kind="negative", n=4)),
            rivals=(Rival(id="T1-rival", statement="It attends to itself.", criteria=(below,)),),
            factors={"kind": ("zero", "mean")},
            margins="Half of the attention.",
            procedure="Mean attention over prompts.",
            limits="Attention is correlational.",
            replications=(
                Replication(
                    by="another hand",
                    code="replications/t1.py",
                    outcome="SUPPORTED",
                    n_clear=16,
                    n=16,
                    tolerance="every effect within 1e-6",
                    agrees=True,
                    date="2026-11-25",
                ),
            ),
        ),
        entry(
            "T2",
            kind="ablation",
            verdicts=(verdict("REFUTED", 0, effect=-9.0, effect_interval=(None, -8.0), sd=0.5),),
        ),
        entry(
            "T10", kind="ablation", joined="any", criteria=(*entry().criteria, below), verdicts=(verdict("MIXED", 9),)
        ),
        entry("T3", statement='<script>alert("x")</script> & {braces}', verdicts=(verdict("INCONCLUSIVE", 5, 9),)),
        entry(
            "B1",
            "birth",
            kind="order of learning",
            source=Source(text="Roe 2021", paper=OTHER),
            verdicts=(verdict("NOT_APPLICABLE", 0, 0),),
        ),
        entry(
            "M1",
            "memory-theory",
            kind="capacity",
            replicate="draw",
            configurations=(),
            source=Source(text="our own question"),
            verdicts=(verdict(recipe="", n=32, n_clear=31),),
        ),
        entry(
            "G1",
            "language-models",
            replicate="question",
            configurations=(),
            verdicts=(verdict("REFUTED", 0, 42, recipe="", asked_of="SmolLM2-135M"),),
        ),
        entry("X1", "bracket-lab", package="acme"),
    ]
