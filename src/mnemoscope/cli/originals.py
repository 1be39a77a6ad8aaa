"""`--original FILE`: a published model beside the seeds of an analysis, number by number."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import mnemoscope as ms
from mnemoscope.core.errors import InputError
from mnemoscope.records.record import Display, MeasuredRuns, Record, render_results


def originals_by_label(groups: Mapping[str, Sequence[ms.Run]], files: Sequence[Path]) -> dict[str, list[Path]]:
    """The files with an original of each configuration; refuses a file that is none of any, before all is measured."""
    found: dict[str, list[Path]] = {label: [] for label in groups}
    if not files:
        return found  # a command without originals does not wait for the imports
    from mnemoscope.models.originals import fitting_spec, read_original

    for file in files:
        config = read_original(file)[0]
        fitting = [label for label, runs in groups.items() if fitting_spec(config, runs[0].spec)]
        if not fitting:
            raise InputError(
                f"--original {file} must have the inputs, outputs, layers and heads of the runs; none of "
                f"{', '.join(groups)} has; name runs of its preset"
            )
        if alone := [label for label in fitting if len(groups[label]) < 2]:
            raise InputError(f"--original needs at least two seeds to compare with; got one of {', '.join(alone)}")
        for label in fitting:
            found[label].append(file)
    return found


def with_originals(
    record: Record, label: str, shown: Display, files: Sequence[Path], measured: MeasuredRuns
) -> Display:
    """The display with a table for every original; the finding says where its tables share no number with the seeds."""
    beside = {file: _table_beside_seeds(record, label, shown.tables, file, measured) for file in files}
    none = [
        f"The tables of {record.name} have no number that the original {file.stem} and several seeds share."
        for file, table in beside.items()
        if not table.rows
    ]
    tables = [*shown.tables, *(table for table in beside.values() if table.rows)]
    return dataclasses.replace(shown, tables=tables, finding=" ".join(filter(None, [shown.finding, *none])))


def _table_beside_seeds(
    record: Record, label: str, tables: Sequence[ms.report.Table], file: Path, measured: MeasuredRuns
) -> ms.report.Table:
    """Measure the original in a file as the runs were, and place every number of their tables among the seeds."""
    from mnemoscope.models.originals import original_run
    from mnemoscope.report.originals import original_table

    options = dataclasses.replace(measured.options, step=None)  # the original has one checkpoint
    with TemporaryDirectory() as folder:
        run = original_run(file, measured.runs[0].spec, Path(folder) / "run")
        alone = record.combine(label, [run], [record.measure_with_gate(options)(run)], options)
        return original_table(file.stem, tables, render_results(record, alone).tables)
