"""`mnemoscope view`."""

from mnemoscope.cli.output import console
from mnemoscope.cli.run_options import View
from mnemoscope.models.files import write_atomically
from mnemoscope.models.run import open_run
from mnemoscope.viz.guesses import on_one_line
from mnemoscope.viz.page import Page, attention_view
from mnemoscope.viz.reporting import report_of


def run(options: View) -> None:
    """Write a page with predictions and attention on one sequence."""
    opened = open_run(options.run)
    task = opened.spec.task
    entry = report_of(task)
    batch = entry.parse(task, options.sequence)
    model = opened.model(options.step)
    page = Page(f"{opened.label}, seed {opened.spec.seed}", f"The sequence {on_one_line(options.sequence)}")
    page.section("Predictions")
    page.figure(entry.prediction_figure(entry.predict(model, task, batch)), entry.prediction_caption)
    page.section("Attention")
    example = entry.patterns(model, task, batch).isel(example=0)
    attention_view(page, example, "Select a head to see it in full size; rows are queries, columns keys.")
    write_atomically(options.out, page.html().encode())
    console.print(f"wrote {options.out}", highlight=False)
