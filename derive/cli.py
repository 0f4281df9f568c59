"""The command line: parses, calls the library, prints.

Errors are one line on stderr and exit status 2; a check that fails gives exit status 1.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click

import derive
from derive.blocks.build import SUBLAYERS
from derive.errors import DeriveError, DomainError

__all__ = ["main"]

FORMATS = ("text", "latex", "tex", "json")


def _progress(items: Sequence[Any], what: str) -> Iterable[Any]:
    """Iterate with a bar on stderr, on a terminal only."""
    from tqdm import tqdm

    return tqdm(items, desc=what, file=sys.stderr, disable=None, leave=False)


def _json(value: Any) -> str:
    """JSON text; what is not finite becomes null."""
    return json.dumps(_finite(value), indent=2, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _depths(text: str) -> list[int]:
    """Return the numbers of layers in ``6,12,24``."""
    try:
        depths = [int(part) for part in text.split(",")]
    except ValueError:
        raise DomainError(f"--layers: expected integers such as 6,12,24, got {text!r}") from None
    if min(depths) < 0:
        raise DomainError(f"--layers: expected integers >= 0, got {text!r}")
    return depths


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(r[k]) for r in (header, *rows)) for k in range(len(header))]
    lines = ["  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)) for r in (header, *rows)]
    return "\n".join(line.rstrip() for line in lines)


norm_option = click.option(
    "--norm", "norm_name", default="layernorm", show_default=True, help="layernorm or rmsnorm."
)
SEED = click.IntRange(min=0)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(derive.__version__, prog_name="derive")
def cli() -> None:
    """Closed-form Jacobians of residual blocks by where the normalisation sits."""


@cli.command()
@click.argument("block")
@norm_option
@click.option(
    "--sublayer",
    default="abstract",
    show_default=True,
    help=f"{', '.join(SUBLAYERS)}; an activation may follow, as in ffn:relu.",
)
@click.option("--layer", is_flag=True, help="The whole layer: an attention and an FFN block.")
@click.option("--steps", is_flag=True, help="Show every step with the name of its rule.")
@click.option("--certify", is_flag=True, help="Certify the result and show the certificates.")
@click.option("--format", "format_", type=click.Choice(FORMATS), default="text", show_default=True)
def show(
    block: str,
    norm_name: str,
    sublayer: str,
    layer: bool,
    steps: bool,
    certify: bool,
    format_: str,
) -> None:
    """Derive the Jacobian of a BLOCK: a placement (post, pre) or "x + N(F(N(x)))"."""
    from derive.render.json import derivation_json
    from derive.render.latex import derivation_latex, derivation_tex
    from derive.render.text import derivation_text

    x = derive.state("x")
    if layer:
        feed_forward = None if sublayer == "abstract" else derive.sublayer(sublayer)
        expr = derive.layer(block, norm_name, feed_forward=feed_forward, x=x)
    else:
        expr = derive.block(block, norm_name, sublayer, x)
    found = derive.derivation(expr, x)
    certificates = found.check() if certify else ()
    if format_ == "json":
        payload = derivation_json(found)
        if certify:
            payload["certificates"] = [
                {"kind": c.kind, "claim": c.claim, "holds": c.holds} for c in certificates
            ]
        click.echo(_json(payload))
    elif format_ == "text":
        click.echo(derivation_text(found, steps=steps))
        for certificate in certificates:
            click.echo(str(certificate))
    elif format_ == "latex":
        click.echo(derivation_latex(found))
    else:
        click.echo(derivation_tex(found))
    if not all(c.holds for c in certificates):
        raise SystemExit(1)


@cli.command()
@click.argument("placements", nargs=-1, required=True)
@click.option("--layers", default="6,12,24,48", show_default=True, help="Depths, comma-separated.")
@click.option("--width", default=64, show_default=True, help="Features d.")
@click.option("--tokens", default=4, show_default=True, help="Tokens n.")
@click.option("--heads", default=4, show_default=True, help="Attention heads.")
@click.option(
    "--hidden", type=click.IntRange(min=1), help="Hidden width f of the FFN; 4 d by default."
)
@click.option("--groups", default=1, show_default=True, help="Groups of a groupnorm.")
@click.option(
    "--value",
    "values",
    multiple=True,
    metavar="NAME=NUMBER",
    help="Value of a scalar such as alpha; repeat for more.",
)
@click.option(
    "--std",
    type=click.FloatRange(min=0),
    default=1.0,
    show_default=True,
    help="Matrices are N(0, std^2 / fan-in).",
)
@click.option(
    "--seed", type=SEED, default=0, show_default=True, help="Seed of weights, input, cotangent."
)
@norm_option
@click.option("--sublayer", default="ffn", show_default=True, help="As for show.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), help="Write a figure.")
def depth(
    placements: tuple[str, ...],
    layers: str,
    norm_name: str,
    sublayer: str,
    as_json: bool,
    plot: Path | None,
    values: tuple[str, ...],
    **sizes: Any,
) -> None:
    """Evaluate stacks of the PLACEMENTS (or equations) over depth, at random weights."""
    if plot is not None:
        _check_figure(plot)
    sizes["values"] = _values(values)
    rows = _depth_rows(placements, _depths(layers), norm_name, sublayer, sizes)
    if plot is not None:
        from derive.render import plots

        plots.save(plots.depth_figure(rows), plot)
    if as_json:
        click.echo(_json(rows))
        return
    table = [
        [
            r["placement"],
            str(r["layers"]),
            f"{r['log_norm']:.4g}",
            f"{r['log_grad_norms'][0]:.4g}",
            f"{r['branch_norm_sum']:.4g}",
            f"{r['log_first_order_remainder']:.4g}",
        ]
        for r in rows
    ]
    header = ("placement", "L", "log|dx_L/dx_0|", "log|g_0|", "sum |A_l|", "log remainder bound")
    click.echo(_table(header, table))
    click.echo(
        f"width {sizes['width']}, tokens {sizes['tokens']}, norm {norm_name}, sublayer {sublayer}, "
        f"seed {sizes['seed']}; 2-norms, natural logs; |g_L| = 1; "
        "remainder of I + sum A_l: exp(a) - 1 - a with a = sum |A_l|, A_l = J_l - I"
    )


def _values(pairs: Sequence[str]) -> dict[str, float]:
    """Return the numbers in ``alpha=2.2``."""
    found = {}
    for pair in pairs:
        name, _, number = (part.strip() for part in pair.partition("="))
        try:
            found[name] = float(number)
        except ValueError:
            raise DomainError(f"--value: expected NAME=NUMBER, got {pair!r}") from None
        if not name or not math.isfinite(found[name]):
            raise DomainError(f"--value: expected NAME=NUMBER, got {pair!r}")
    return found


def _check_figure(path: Path) -> None:
    """Refuse a figure that cannot be written, before anything is computed."""
    from derive.render.extras import load
    from derive.render.plots import FORMATS

    load("matplotlib", "plot")
    if path.suffix.lower().removeprefix(".") not in FORMATS:
        raise DomainError(
            f"--plot: expected a name that ends in {', '.join('.' + f for f in FORMATS)}, "
            f"got {str(path)!r}"
        )
    target = path if path.exists() else path.parent
    if not os.access(target, os.W_OK):
        raise DomainError(f"--plot: cannot write {str(path)!r}")


def _depth_rows(
    placements: Sequence[str],
    depths: Sequence[int],
    norm_name: str,
    sublayer: str,
    sizes: dict[str, Any],
) -> list[dict[str, Any]]:
    from derive.depth import depth_rows

    x = derive.state("x")
    blocks = {name: derive.block(name, norm_name, sublayer, x) for name in placements}
    jobs = [(name, depth_) for name in blocks for depth_ in depths]
    rows: list[dict[str, Any]] = []
    for name, depth_ in _progress(jobs, "depth"):
        rows += depth_rows(blocks[name], x, [depth_], placement=name, **sizes)
    return rows


@cli.command()
@click.argument("systems", nargs=-1)
@click.option("--layers", default=1, show_default=True, help="Layers in a row.")
@click.option("--tokens", default=4, show_default=True)
@click.option("--width", default=16, show_default=True)
@click.option("--seed", type=SEED, default=0, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def check(
    systems: tuple[str, ...], layers: int, tokens: int, width: int, seed: int, as_json: bool
) -> None:
    """Check the closed form against autodiff of real SYSTEMS (all of them by default).

    torch-post, torch-pre, bert, gpt2 and llama are built at the given size; the other layers have a
    tiny size of their own.
    """
    from derive.backends.zoo import NOT_BUILT

    rows = _checks(systems, [layers], tokens=tokens, width=width, seed=seed)
    if as_json:
        click.echo(_json(rows))
    else:
        header = ("system", "placement", "norm", "layers", "max rel error", "dtype", "ok")
        table = [
            [
                r["system"],
                r["placement"],
                r["norm"],
                str(r["layers"]),
                f"{r['max_rel_error']:.2e}",
                r["dtype"],
                "ok" if r["ok"] else "FAILS",
            ]
            for r in rows
        ]
        click.echo(_table(header, table))
        if not systems or "all" in systems:
            for name, reason in NOT_BUILT.items():
                click.echo(f"not checked: {name}: {reason}")
    if not all(r["ok"] for r in rows):
        raise SystemExit(1)


def _checks(systems: Sequence[str], depths: Sequence[int], **sizes: Any) -> list[dict[str, Any]]:
    from derive import crosscheck
    from derive.backends import SYSTEMS
    from derive.backends.zoo import ZOO

    known = (*SYSTEMS, *ZOO)
    names = known if not systems or "all" in systems else systems
    unknown = [s for s in systems if s not in (*known, "all")]
    if unknown:
        raise derive.errors.UnknownNameError(
            f"system: expected all or some of {', '.join(known)}, got {unknown[0]!r}"
        )
    jobs = [(name, layers) for layers in depths for name in names]
    return [
        crosscheck.check(name, layers=layers, **sizes).as_dict()
        for name, layers in _progress(jobs, "check")
    ]


TABLES = ("placements", "norms", "sublayers", "systems")
COLUMNS = {
    "placements": ("name", "kind", "equation", "residual"),
    "norms": ("name", "equation", "jacobian"),
    "sublayers": ("name", "kind", "equation", "note"),
    "systems": ("name", "depth", "width", "heads", "norm", "placement", "year", "verified"),
}


@cli.command("list")
@click.argument("table", type=click.Choice(TABLES))
@click.option("--json", "as_json", is_flag=True, help="Print every column as JSON.")
def list_(table: str, as_json: bool) -> None:
    """List the placements, norms, sublayers or systems of the catalogue."""
    from derive.blocks.catalogue import catalogue as rows_of

    rows = rows_of(table)
    if as_json:
        click.echo(_json(rows))
    else:
        columns = COLUMNS[table]
        click.echo(_table(columns, [[str(row[c]) for c in columns] for row in rows]))


@cli.command()
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Write Markdown.")
@click.option("--tex", type=click.Path(dir_okay=False, path_type=Path), help="Write LaTeX.")
def catalogue(out: Path | None, tex: Path | None) -> None:
    """Write the catalogue as Markdown (to the terminal by default) or as LaTeX."""
    from derive.render.catalogue import catalogue_markdown, catalogue_tex

    if out is None and tex is None:
        click.echo(catalogue_markdown(), nl=False)
    for path, make in ((out, catalogue_markdown), (tex, catalogue_tex)):
        if path is not None:
            path.write_text(make(), encoding="utf-8")
            click.echo(path)


@cli.command()
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("report"),
    show_default=True,
    help="Folder to write into.",
)
@click.option("--layers", default="6,12,24,48", show_default=True, help="Depths, comma-separated.")
@click.option("--width", default=64, show_default=True)
@click.option("--seed", type=SEED, default=0, show_default=True)
def report(out: Path, layers: str, width: int, seed: int) -> None:
    """Write derivations, depth curves and checks as one HTML page and one .tex."""
    from derive.report import write_report

    written = write_report(out, depths=_depths(layers), width=width, seed=seed, progress=_progress)
    for path in written.paths:
        click.echo(path)
    if not written.ok:
        click.echo("a check failed; see the table of checks", err=True)
        raise SystemExit(1)


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


if __name__ == "__main__":
    main()
