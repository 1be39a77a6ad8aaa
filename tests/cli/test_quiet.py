"""What libraries warn of does not reach who types a command; what this package says does."""

import os
import subprocess
import sys

import pytest

NOISY = """
import logging, sys, warnings
from mnemoscope.cli import main
from mnemoscope.cli.command import COMMANDS, Command
from mnemoscope.cli.options import CommandOptions

def noise(options):
    warnings.filterwarnings("always", category=RuntimeWarning)  # as statsmodels does
    warnings.warn("did not converge", RuntimeWarning)
    logging.warning("moved to device")
    logging.getLogger("transformer_lens").warning("centred")
    logging.getLogger("mnemoscope.core.guests").warning("goes on without a system")

COMMANDS.add("noise", Command(options=CommandOptions, run=noise))
main(["noise"])
"""


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ([], ["goes on without a system"]),
        (["-W", "default"], ["did not converge", "moved to device", "centred", "goes on without a system"]),
    ],
)
def test_only_what_this_package_says_is_shown(options, shown):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONWARNINGS"}
    command = [sys.executable, *options, "-c", NOISY]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    words = ["did not converge", "moved to device", "centred", "goes on without a system"]
    assert [word for word in words if word in done.stderr] == shown
    if not options:
        assert done.stderr == "goes on without a system\n"


def test_nothing_stays_changed():
    code = NOISY + "assert 'PYTHONWARNINGS' not in __import__('os').environ and not logging.root.handlers"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONWARNINGS"}
    subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, env=environment)
