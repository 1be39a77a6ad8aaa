from .analysis import Results as Results
from .analysis import Shown as Shown
from .analysis import analysis_command as analysis_command
from .analysis import present as present
from .command import COMMANDS as COMMANDS
from .command import Command as Command
from .options import AnalysisOptions as AnalysisOptions
from .options import Jobs as Jobs
from .options import OfRuns as OfRuns
from .options import Options as Options
from .options import WritesResults as WritesResults

def main(arguments: list[str] | tuple[str, ...] | None = None) -> None: ...
