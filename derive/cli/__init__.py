"""The command line: parses, calls the library, prints.

Errors are one line on stderr and exit status 2; a check that fails gives exit status 1.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

import derive
from derive.cli.advise import advise
from derive.cli.bench import bench
from derive.cli.catalogue import catalogue, list_
from derive.cli.check import check
from derive.cli.claims import book, claims, verify
from derive.cli.coverage import coverage
from derive.cli.depth import depth
from derive.cli.gallery import gallery
from derive.cli.law import law
from derive.cli.literature import literature
from derive.cli.lyapunov import lyapunov
from derive.cli.paths import paths
from derive.cli.precision import precision
from derive.cli.report import report
from derive.cli.show import show
from derive.cli.spectrum import spectrum
from derive.errors import DeriveError

__all__ = ["cli", "main"]


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(derive.__version__, prog_name="derive")
def cli() -> None:
    """Closed-form Jacobians of residual blocks by where the normalisation sits."""


for _command in (
    show,
    depth,
    gallery,
    law,
    coverage,
    literature,
    advise,
    lyapunov,
    spectrum,
    paths,
    precision,
    check,
    claims,
    verify,
    book,
    list_,
    catalogue,
    report,
    bench,
):
    cli.add_command(_command)


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line; errors are one line and exit status 2."""
    try:
        status = cli.main(args=args, prog_name="derive", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        sys.exit(0)
    except click.ClickException as error:
        _fail(error.format_message())
    except DeriveError as error:
        _fail(str(error))
    except MemoryError as error:
        _fail(f"not enough memory: {error}")
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(0)
        _fail(f"{error.filename or 'file'}: {error.strerror or error}")
    except (click.Abort, KeyboardInterrupt):
        click.echo("derive: interrupted", err=True)
        sys.exit(130)
    else:
        sys.exit(status if isinstance(status, int) else 0)


def _fail(message: str) -> None:
    click.echo("derive: " + " ".join(message.split()), err=True)
    sys.exit(2)
