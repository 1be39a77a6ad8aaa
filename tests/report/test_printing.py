import shutil
import struct
import sys
import types
import zlib

import numpy as np
import plotly.graph_objects as go
import pytest
import xarray as xr
from plotly.subplots import make_subplots

from mnemoscope.core.errors import InputError
from mnemoscope.report.figures import PALETTE, bars_with_dots, heatmaps
from mnemoscope.report.printing import check_drawing, draw, for_print

INCH = 96
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def curves(*names, **line):
    return go.Figure([go.Scatter(y=[1, 2], name=name, mode="lines", line=line) for name in names])


def linear(colour):
    share = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)


def lab(rgb):
    """CIE L*a*b* of linear sRGB."""
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    x, y, z = np.cbrt(to_xyz @ np.clip(rgb, 0, 1) / np.array([0.9505, 1, 1.089]))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


BLINDNESS = {  # of Machado, Oliveira and Fernandes (2009), complete, on linear sRGB
    "protanopia": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "deuteranopia": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "tritanopia": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
}


def test_two_curves_differ_in_grey_and_to_the_colour_blind():
    first, second = (linear(colour) for colour in PALETTE[:2])
    assert abs(lab(first)[0] - lab(second)[0]) > 20
    for colour in (first, second):
        luminance = colour @ [0.2126, 0.7152, 0.0722]
        assert 1.05 / (luminance + 0.05) > 3  # contrast to white paper
    for matrix in BLINDNESS.values():
        assert np.linalg.norm(lab(np.array(matrix) @ first) - lab(np.array(matrix) @ second)) > 40


def test_a_column_or_both():
    assert for_print(curves("a")).layout.width == 3.25 * INCH
    beside = make_subplots(1, 2)
    beside.add_scatter(y=[1], row=1, col=2)
    assert for_print(beside).layout.width == 6.75 * INCH
    assert for_print(beside, width=5.5).layout.width == 5.5 * INCH
    with pytest.raises(InputError, match="positive number of inches"):
        for_print(beside, width=0)


def test_text_is_of_eight_points_and_the_figure_of_the_page_stays_as_it_is():
    figure = curves("a").update_layout(height=900, title="of the figure", font_size=13)
    before = figure.to_dict()
    printed = for_print(figure)
    assert printed.layout.font.size == pytest.approx(8 * INCH / 72)
    assert printed.layout.height <= printed.layout.width
    assert figure.to_dict() == before


def test_curves_differ_in_dashes_and_keep_those_that_they_have():
    figure = curves("model", "other").add_traces(curves("chance", dash="dash").data)
    dashes = {trace.name: trace.line.dash for trace in for_print(figure).data}
    assert dashes["chance"] == "dash"
    assert len(set(dashes.values())) == 3
    assert dashes["model"] == "solid"


def test_a_curve_is_drawn_alike_in_all_panels():
    figure = make_subplots(1, 2)
    for column, names in ((1, ("a", "b")), (2, ("b", "c"))):
        figure.add_traces(curves(*names).data, rows=1, cols=column)
    dashes = [(trace.name, trace.line.dash) for trace in for_print(figure).data]
    assert len(set(dashes)) == 3
    assert dashes[1] == dashes[2]


def test_bars_and_dots_differ_too():
    cells = [xr.DataArray([0.1, 0.2], dims="seed")]
    traces = [
        trace
        for name in ("elimination", "recall")
        for trace in bars_with_dots(cells, [0.0], name=name, colour="#111111", width=0.3, legend=True)
    ]
    printed = for_print(go.Figure(traces)).data
    assert printed[0].marker.pattern.shape != printed[2].marker.pattern.shape
    assert printed[1].marker.symbol != printed[3].marker.symbol


def test_names_of_rows_have_room_between_panels_and_titles_stay_above_these():
    values = xr.DataArray(np.ones((2, 3)), dims=("role", "key"), coords={"key": [0, 1, 2]})
    roles = {"one": ["first role", "second role"], "two": ["a long name of a role", "role"]}
    figure = heatmaps({title: values.assign_coords(role=names) for title, names in roles.items()})
    printed = for_print(figure)
    (_, end), (start, last) = printed.layout.xaxis.domain, printed.layout.xaxis2.domain
    assert (start - end) * 0.8 * printed.layout.width > 21 * 5
    assert last == pytest.approx(1)
    titles = {note.text: note.x for note in printed.layout.annotations}
    assert titles["two"] == pytest.approx((start + last) / 2)


def test_numbers_fit_their_cells_or_are_left_out():
    def printed(n):
        values = xr.DataArray(np.ones((1, n)), dims=("role", "key"), coords={"role": ["x"], "key": range(n)})
        return for_print(heatmaps({"one": values}), width=3.25 if n < 16 else 1).data[0]

    assert printed(3).textfont.size == pytest.approx(8 * INCH / 72)
    assert printed(12).textfont.size < 8 * INCH / 72
    assert not printed(16).texttemplate


def test_what_is_missing_is_said(monkeypatch):
    class NoBrowserError(Exception):
        pass

    def write(figures, **settings):
        raise NoBrowserError

    errors = types.SimpleNamespace(ChromeNotFoundError=NoBrowserError)
    fake = types.SimpleNamespace(write_fig_from_object_sync=write, errors=errors)
    monkeypatch.setitem(sys.modules, "kaleido", fake)
    monkeypatch.setitem(sys.modules, "kaleido.errors", errors)
    with pytest.raises(InputError, match=r"need Chrome or Chromium, and none is found"):
        check_drawing()
    errors.ChromeNotFoundError = KeyError
    with pytest.raises(InputError, match=r"the browser that draws figures as files failed: NoBrowserError"):
        check_drawing()
    monkeypatch.setitem(sys.modules, "kaleido", None)
    with pytest.raises(InputError, match=r"need kaleido: pip install 'mnemoscope\[figures\]'"):
        check_drawing()


@pytest.mark.thorough
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: no figure was drawn")
def test_files_have_the_size_of_a_column():
    pytest.importorskip("kaleido")
    figure = for_print(curves("a", "b"))
    files = dict(draw({"x": figure}, ("svg", "pdf", "png")))
    assert set(files) == {"x.svg", "x.pdf", "x.png"}
    assert b'width="312"' in files["x.svg"][:200]
    box = files["x.pdf"].split(b"/MediaBox [0 0 ")[1].split(b" ")[0]
    assert float(box) == pytest.approx(3.25 * 72, abs=1)
    png = files["x.png"]
    assert struct.unpack(">I", png[16:20])[0] == 3.25 * 300
    assert png[37:41] == b"pHYs"
    assert struct.unpack(">II", png[41:49]) == (11811, 11811)
    assert struct.unpack(">I", png[50:54])[0] == zlib.crc32(png[37:50])
