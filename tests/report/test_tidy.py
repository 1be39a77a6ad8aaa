import csv
import math

import pytest
import xarray as xr

from mnemoscope.report.tables import Number, Table, interval, latex_text, mean_with_range, single_number, table_files

SEEDS = xr.DataArray([1.0, 0.123456789, math.nan], dims="seed", coords={"seed": [3, 4, 7]})


def table(*rows, header=("part", "accuracy", "seeds", "why"), n_text=1):
    return Table(name="t", title="a title", header=header, rows=rows, n_text=n_text)


def read(files, name):
    return list(csv.DictReader(files[name].splitlines()))


def test_numbers_are_not_rounded_and_have_their_replicates():
    files = dict(table_files(table(["head", mean_with_range(SEEDS, ".2f"), "2", "too [low]"])))
    assert set(files) == {"t.csv", "t-tidy.csv", "t-seeds.csv"}
    assert read(files, "t.csv") == [{"part": "head", "accuracy": "0.56 [0.12, 1.00]", "seeds": "2", "why": "too [low]"}]
    accuracy, seeds = read(files, "t-tidy.csv")
    assert (accuracy["part"], accuracy["why"], accuracy["column"]) == ("head", "too [low]", "accuracy")
    assert float(accuracy["mean"]) == pytest.approx((1 + 0.123456789) / 2, rel=1e-15)
    assert [accuracy[end] for end in ("low", "high", "interval", "n")] == ["0.123456789", "1.0", "range", "2"]
    assert (seeds["column"], seeds["mean"], seeds["n"]) == ("seeds", "2", "")
    each = read(files, "t-seeds.csv")
    assert [(row["seed"], row["value"]) for row in each] == [("3", "1.0"), ("4", "0.123456789"), ("7", "")]


def test_draws_are_not_called_seeds_and_what_has_no_label_is_left_out():
    draws = xr.DataArray([1.0, 2.0], dims="draw", coords={"draw": [0, 1]})
    files = dict(
        table_files(
            table(["a", mean_with_range(draws)], ["b", mean_with_range(draws.drop_vars("draw"))], header=("x", "y"))
        )
    )
    assert [(row["x"], row["draw"]) for row in read(files, "t-seeds.csv")] == [("a", "0"), ("a", "1")]
    assert [row["x"] for row in read(files, "t-tidy.csv")] == ["a", "b"]


def test_nothing_but_words_is_one_file():
    assert [name for name, _ in table_files(table(["head", "double: 3"], header=("part", "outcome")))] == ["t.csv"]


def test_what_stands_behind_a_number_leaves_it_a_number():
    cell = interval(0.5, 0.25, 0.75, n=4) + " on 50%"
    assert cell == "0.500 [0.250, 0.750] on 50%"
    assert isinstance(cell, Number)
    assert (cell.mean, cell.low, cell.high, cell.interval, cell.n) == (0.5, 0.25, 0.75, "95 %", 4)


def test_latex_escapes_and_aligns():
    rows = [["[z_1] & 5%", single_number(-0.25, ".2f"), "–", "~x^2\\{}"]]
    text = latex_text(table(*rows, header=("a", "b", "c", "d")))
    assert text.splitlines() == [
        "% a title",
        r"% \usepackage{booktabs}",
        r"\begin{tabular}{lrll}",
        r"\toprule",
        r"a & b & c & d \\",
        r"\midrule",
        r"{[}z\_1] \& 5\% & $-$0.25 & -- & \textasciitilde{}x\textasciicircum{}2\textbackslash{}\{\} \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]


def test_latex_sets_long_texts_in_lines_and_leaves_bars_out():
    said = "a statement that is longer than a column " * 3
    text = latex_text(table(["T1", said, "███··"], header=("id", "statement", ""), n_text=2))
    assert r"\begin{tabular}{lp{0.60\linewidth}}" in text
    assert said.strip() in text
    assert "█" not in text
