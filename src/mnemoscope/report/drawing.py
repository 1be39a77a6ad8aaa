"""Figures as files: SVG, PDF or PNG.

`kaleido <https://github.com/plotly/kaleido>`_ draws them in a Chrome or Chromium on the machine, without the network.
"""

import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import plotly.graph_objects as go

from mnemoscope.core.errors import InputError
from mnemoscope.report.printing import PER_INCH, for_print

Format = Literal["svg", "pdf", "png"]
DPI = 300
"""Dots per inch of a PNG."""


def draw(figures: Mapping[str, Any], formats: Sequence[Format]) -> Iterator[tuple[str, bytes]]:
    """Figures from `for_print` as files: each name with its ending, and the bytes.

    Raises InputError where kaleido is not installed, there is no browser, or it draws nothing.
    """
    kaleido = _kaleido()
    with TemporaryDirectory(prefix="mnemoscope-figures-") as place:
        wanted = [
            {
                "fig": figure.to_dict(),
                "path": str(Path(place) / f"{i}.{ending}"),
                "opts": {
                    "format": ending,
                    "width": figure.layout.width,
                    "height": figure.layout.height,
                    "scale": DPI / PER_INCH if ending == "png" else 1,
                },
            }
            for i, figure in enumerate(figures.values())
            for ending in formats
        ]
        try:  # formulas are not drawn, so that nothing is asked of the network
            kaleido.write_fig_from_object_sync(wanted, kopts={"mathjax": False}, cancel_on_error=True)
        except kaleido.errors.ChromeNotFoundError:
            raise InputError(
                "figures as files need Chrome or Chromium, and none is found: install one, name its program in "
                "BROWSER_PATH, or run plotly_get_chrome"
            ) from None
        except Exception as error:  # of the browser, or of the pipes to it
            reason = " ".join(" ".join(map(str, error.args)).split()) or type(error).__name__
            raise InputError(f"the browser that draws figures as files failed: {reason}") from error
        for i, name in enumerate(figures):
            for ending in formats:
                content = (Path(place) / f"{i}.{ending}").read_bytes()
                yield f"{name}.{ending}", _with_resolution(content) if ending == "png" else content


def check_drawing() -> None:
    """Draw a point, so that what is missing is known before the work and not after it; raises as `draw` does."""
    dict(draw({"point": for_print(go.Figure(go.Scatter(y=[0])))}, ("svg",)))


def _kaleido() -> Any:
    try:
        import kaleido
        import kaleido.errors
    except ImportError:
        raise InputError("figures as files need kaleido: pip install 'mnemoscope[figures]'") from None
    return kaleido


def _with_resolution(png: bytes) -> bytes:
    """The picture with its dots per metre, so that LaTeX and word processors set it in its size."""
    per_metre = round(DPI / 0.0254)
    chunk = b"pHYs" + struct.pack(">IIB", per_metre, per_metre, 1)
    header = 8 + 25  # the signature, and the first part, which says how large the picture is
    return png[:header] + struct.pack(">I", 9) + chunk + struct.pack(">I", zlib.crc32(chunk)) + png[header:]
