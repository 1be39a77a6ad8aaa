"""Put on record what the package gives now: `make golden`, or `python -m tests.golden.record [PART ...]`.

By hand only, and never to make a failing test pass that nobody has explained. Parts are named `names`,
`forward`, `gradients`, `analyses`, `bits`, `trainings` and `verdicts`; none: all of them.
"""

import json
import sys
from collections.abc import Callable

import torch

import mnemoscope as ms
from tests.golden import analyses, forward, names, trainings, verdicts
from tests.golden.summary import DATA, Arrays, machine, summaries, write


def _summarised(part: str, found: list[Arrays]) -> None:
    write(part, {name: each for arrays in found for name, each in summaries(arrays).items()})


def _json(part: str, content: object) -> None:
    (DATA / f"{part}.json").write_text(json.dumps(content, indent=1) + "\n")


def _analyses() -> None:
    _summarised("analyses", [analyses.arrays(name, do) for name, plan in analyses.PLAN.items() for do in plan])


def _verdicts() -> None:
    _summarised("verdicts", [verdicts.arrays(id, verdicts.ruling(id)) for id in verdicts.CLAIMS])


def _bits() -> None:
    digests = {
        "forward": {name: forward.bits(name) for name in forward.NAMES},
        "trainings": {name: trainings.bits(name) for name in trainings.BITS},
    }
    _json("bits", {"machine": machine(), **digests})


PARTS: dict[str, Callable[[], None]] = {
    "names": lambda: _json("names", names.public_names()),
    "forward": lambda: _summarised("forward", [forward.of_activations(name) for name in forward.NAMES]),
    "gradients": lambda: _summarised("gradients", [forward.of_gradients(name) for name in forward.NAMES]),
    "analyses": _analyses,
    "bits": _bits,
    "trainings": lambda: _summarised("trainings", [trainings.arrays(name) for name in ms.PRESETS.names()]),
    "verdicts": _verdicts,
}


def main(parts: list[str]) -> None:
    """Write the files of some parts anew, or of all."""
    if unknown := sorted(set(parts) - set(PARTS)):
        raise SystemExit(f"parts are {', '.join(PARTS)}; got {', '.join(unknown)}")
    torch.set_num_threads(1)
    DATA.mkdir(exist_ok=True)
    for part in parts or PARTS:
        print(f"recording {part} ...", flush=True)
        PARTS[part]()


if __name__ == "__main__":
    main(sys.argv[1:])
