"""Arrays in a few numbers, and how far arrays of today are from arrays on record.

Of an array of n numbers x are kept its shape, its norm |x|, and sixteen sums Σ s x with signs s that a fixed generator
draws. If x changes by d, each sum changes by a number of mean square |d|², so that at least one of sixteen all but
certainly shows any change whose norm is above the tolerance: all sixteen fall below a twentieth of |d| with
probability 10⁻²². The sums of an array that is far larger than its change are compared relative to its norm. What is
not finite (masked scores are -inf) counts as zero in them and has a sum of its own, compared exactly.
"""

import hashlib
import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr

DATA = Path(__file__).parent / "data"
N_SUMS = 16

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True, kw_only=True, eq=False)
class Summary:
    """What is kept of an array."""

    shape: str
    odd: int
    norm: float
    sums: np.ndarray

    @property
    def size(self) -> int:
        """Numbers of the array."""
        return int(np.prod([int(n) for n in self.shape.split("x") if n], dtype=int))


@dataclass(frozen=True, kw_only=True)
class Tolerance:
    """How far a sum may be off: `relative` times the norm, and `absolute` for every number of the array."""

    relative: float
    absolute: float

    def of(self, summary: Summary) -> float:
        """The bound on the sums of one array: independent errors add up to the root of their number."""
        return self.relative * summary.norm + self.absolute * summary.size**0.5


@lru_cache(maxsize=4)
def _signs(size: int) -> np.ndarray:
    """Sixteen rows of signs; `RandomState` is frozen for good, unlike NumPy's newer generators."""
    bits = np.unpackbits(np.frombuffer(np.random.RandomState(size % 2**32).bytes(N_SUMS * size // 8 + 1), np.uint8))
    return bits[: N_SUMS * size].reshape(N_SUMS, size).astype(np.int8) * 2 - 1


def as_array(value: Any) -> np.ndarray:
    """A tensor, or anything that is like an array, in float64."""
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        value = value.double().numpy()
    return np.asarray(value, dtype=np.float64)


def summary(value: Any) -> Summary:
    """The summary of an array."""
    array = as_array(value)
    signs, flat = _signs(array.size), array.ravel()
    finite = np.isfinite(flat)
    code = np.where(finite, 0, np.where(np.isnan(flat), 1, np.where(flat > 0, 2, 3)))
    numbers = np.where(finite, flat, 0.0)
    sums = np.array([(row * numbers).sum() for row in signs])
    return Summary(
        shape="x".join(map(str, array.shape)),
        odd=int((signs[0] * code).sum()),
        norm=float(np.linalg.norm(numbers)),
        sums=sums,
    )


def of_dataset(result: xr.Dataset) -> dict[str, np.ndarray]:
    """The numbers of a result, by variable."""
    return {str(name): as_array(value.values) for name, value in result.items() if value.dtype.kind in "fiub"}


def summaries(arrays: Arrays) -> dict[str, Summary]:
    """Of each array its summary."""
    return {name: summary(array) for name, array in arrays.items()}


def write(part: str, found: Mapping[str, Summary]) -> Path:
    """Put the summaries of a part on record, in one compressed file."""
    DATA.mkdir(exist_ok=True)
    path = DATA / f"{part}.npz"
    np.savez_compressed(
        path,
        names=np.array("\n".join(found)),
        shapes=np.array("\n".join(each.shape for each in found.values())),
        odd=np.array([each.odd for each in found.values()], dtype=np.int64),
        norms=np.array([each.norm for each in found.values()]),
        sums=np.array([each.sums for each in found.values()]),
    )
    return path


@lru_cache
def read(part: str) -> dict[str, Summary]:
    """The summaries on record."""
    with np.load(DATA / f"{part}.npz") as file:
        names, shapes = (str(file[name]).split("\n") for name in ("names", "shapes"))
        rows = zip(names, shapes, file["odd"], file["norms"], file["sums"], strict=True)
        return {
            name: Summary(shape=shape, odd=int(odd), norm=float(norm), sums=sums)
            for name, shape, odd, norm, sums in rows
        }


def distance(now: Summary, then: Summary, tolerance: Tolerance) -> float:
    """How far an array is from the one on record, in tolerances: above 1 it differs."""
    if (now.shape, now.odd) != (then.shape, then.odd):
        return np.inf
    off = max(float(np.abs(now.sums - then.sums).max()), abs(now.norm - then.norm))
    bound = tolerance.of(then)
    return off / bound if bound else np.inf if off else 0.0


def differences(now: Mapping[str, Summary], then: Mapping[str, Summary], tolerance: Tolerance) -> list[str]:
    """Sentences on what is missing, new, or different, the largest difference first."""
    missing = [f"{name} is gone" for name in then if name not in now]
    new = [f"{name} is not on record" for name in now if name not in then]
    off = {name: distance(now[name], then[name], tolerance) for name in now if name in then}
    worst = sorted((name for name in off if not off[name] <= 1), key=lambda name: -off[name])
    return [*missing, *new, *(f"{name} is off by {off[name]:.3g} tolerances" for name in worst)]


def starting(prefix: str, found: Mapping[str, Summary]) -> dict[str, Summary]:
    """The summaries whose names start so."""
    return {name: each for name, each in found.items() if name.startswith(prefix)}


def digest(arrays: Iterable[np.ndarray]) -> str:
    """Sixteen hexadecimal digits of every bit of some arrays."""
    content = hashlib.sha256()
    for array in arrays:
        content.update(f"{array.dtype} {array.shape}".encode())
        content.update(np.ascontiguousarray(array).tobytes())
    return content.hexdigest()[:16]


def machine() -> dict[str, str]:
    """What bits depend on: processor, its instructions, and the builds of PyTorch and NumPy."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines() if Path("/proc/cpuinfo").exists() else []
    said = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in reversed(lines))}
    instructions = hashlib.sha256(said.get("flags", "").encode()).hexdigest()[:16]
    return {
        "processor": said.get("model name", platform.processor()),
        "instructions": f"{torch.backends.cpu.get_cpu_capability()} {instructions}",
        "torch": f"{torch.__version__} {hashlib.sha256(torch.__config__.show().encode()).hexdigest()[:16]}",
        "numpy": np.__version__,
    }
