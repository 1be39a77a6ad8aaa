from .analysis import Display as Display
from .analysis import Results as Results
from .analysis import analysis_command as analysis_command
from .analysis import present as present
from .command import COMMANDS as COMMANDS
from .command import Command as Command
from .options import AnalysisOptions as AnalysisOptions
from .options import CommandOptions as CommandOptions
from .options import JobOptions as JobOptions
from .options import ResultOptions as ResultOptions
from .options import RunOptions as RunOptions

def main(arguments: list[str] | tuple[str, ...] | None = None) -> None: ...
