"""An entry that is as it should be, to be changed in one field at a time."""

from typing import Any

from mnemoscope.claims.entry import Entry

CONTENT: dict[str, Any] = {
    "id": "mnemo:toy/T1@1",
    "statement": "it does",
    "source": {"text": "made up"},
    "system": "toy",
    "kind": "ablation",
    "replicate": "seed",
    "n_replicates": 16,
    "criteria": [{"name": "effect", "quantifier": "most", "margin": 0.5, "direction": "above", "bounds": [-1, 1]}],
    "controls": [
        {"name": "planted", "kind": "positive", "n": 4},
        {"name": "untrained", "kind": "negative", "n": 4},
    ],
    "registration": {
        "digest": "0",
        "question": "q",
        "code": {},
        "registered": {"date": "2026-01-01T00:00:00+00:00"},
        "runs": {"date": "2026-01-02T00:00:00+00:00"},
        "standing": "before its runs",
    },
    "verdicts": [
        {
            "outcome": "SUPPORTED",
            "n_clear": 15,
            "n": 16,
            "share": 0.9375,
            "effect": 0.8,
            "effect_interval": [0.7, 0.9],
            "sd": 0.2,
            "deciding": "effect",
            "question": "q",
            "confirmed": True,
        }
    ],
}


def make_entry(**changes: Any) -> Entry:
    """The entry with some fields changed; those of its verdict and criterion by `verdict` and `criterion`."""
    content = {**CONTENT, **changes}
    for name, list_name in (("verdict", "verdicts"), ("criterion", "criteria")):
        if name in changes:
            content[list_name] = [{**CONTENT[list_name][0], **content.pop(name)}]
    return Entry.model_validate(content)
