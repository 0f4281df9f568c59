"""The command line run in this process, and the rows that it prints as JSON."""

import json

import pytest

from derive.cli import main


def run(capsys, *args):
    """Return exit status, stdout and stderr."""
    with pytest.raises(SystemExit) as exit_:
        main(args)
    captured = capsys.readouterr()
    return exit_.value.code, captured.out, captured.err


def rows_of(capsys, *args):
    """Return the rows of a command that succeeds; NaN and Infinity are no JSON."""
    code, out, err = run(capsys, *args, "--json")
    assert (code, err) == (0, "")
    return json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} in JSON"))
