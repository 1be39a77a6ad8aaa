"""`mnemoscope view`."""

from mnemoscope.analyses.attention import attention_patterns
from mnemoscope.analyses.examine import lookup_task
from mnemoscope.analyses.prediction import predict
from mnemoscope.cli.options import View
from mnemoscope.cli.output import console
from mnemoscope.models.files import write_atomically
from mnemoscope.models.run import open_run
from mnemoscope.viz.figures import prediction
from mnemoscope.viz.page import Page
from mnemoscope.viz.report import attention_view


def run(options: View) -> None:
    """Write a page with predictions and attention on one sequence."""
    opened = open_run(options.run)
    task = lookup_task(opened.spec.task)
    batch = task.parse(options.sequence)
    model = opened.model(options.step)
    page = Page(f"{opened.label}, seed {opened.spec.seed}", f"The sequence {options.sequence}")
    page.section("Predictions")
    page.figure(
        prediction(predict(model, task, batch)), "Model and Bayes reference; ✕ marks used values, a frame the target."
    )
    page.section("Attention")
    example = attention_patterns(model, task, batch).isel(example=0)
    attention_view(page, example, "Select a head to see it in full size; rows are queries, columns keys.")
    write_atomically(options.out, page.html().encode())
    console.print(f"wrote {options.out}", highlight=False)
