"""`derive show`: one derivation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

import derive
from derive.blocks.build import SUBLAYERS
from derive.cli.options import norm_option
from derive.cli.output import json_text
from derive.errors import DomainError

__all__ = ["show"]

FORMATS = ("text", "latex", "tex", "json")


@click.command()
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
    from derive.blocks.placements import MIXES, STREAMS, canonical
    from derive.render.json import derivation_json
    from derive.render.latex import derivation_latex, derivation_tex
    from derive.render.text import derivation_text

    if canonical(block) in MIXES:
        raise DomainError(
            f"BLOCK: {block} is a stack that changes its placement with depth "
            f"({MIXES[canonical(block)].equation}); expected one block, such as one of these"
        )
    if canonical(block) in STREAMS:
        _show_streams(block, norm_name, sublayer, layer, steps, certify, format_)
        return
    x = derive.state("x")
    if layer:
        feed_forward = None if sublayer == "abstract" else derive.sublayer(sublayer)
        expr = derive.layer(block, norm_name, feed_forward=feed_forward, x=x)
    else:
        expr = derive.block(block, norm_name, sublayer, x)
    found = derive.derivation(expr, x)
    certificates = list(found.check()) if certify else []
    shown = {
        "json": lambda: derivation_json(found),
        "text": lambda: derivation_text(found, steps=steps),
        "latex": lambda: derivation_latex(found),
        "tex": lambda: derivation_tex(found),
    }
    _print(shown[format_](), certificates, format_, certify)


def _show_streams(
    name: str,
    norm_name: str,
    sublayer: str,
    layer: bool,
    steps: bool,
    certify: bool,
    format_: str,
) -> None:
    """Show the block matrix of a placement with several streams."""
    from derive.blocks.build import streams
    from derive.render.latex import document_tex
    from derive.render.streams import streams_json, streams_latex, streams_text

    if layer:
        raise DomainError(f"--layer: expected a placement with one stream, got {name}")
    found = streams(name, norm_name, sublayer)
    certificates = [c for D in found.values() for c in D.check()] if certify else []
    shown = {
        "json": lambda: streams_json(found),
        "text": lambda: streams_text(found, steps=steps),
        "latex": lambda: streams_latex(found),
        "tex": lambda: document_tex(f"Jacobian of {name}", [("", streams_latex(found))]),
    }
    _print(shown[format_](), certificates, format_, certify)


def _print(shown: Any, certificates: Sequence[Any], format_: str, certify: bool) -> None:
    """Print what is shown, with the certificates in JSON and text, and fail if one does."""
    if format_ == "json":
        if certify:
            shown["certificates"] = [
                {"kind": c.kind, "claim": c.claim, "holds": c.holds} for c in certificates
            ]
        shown = json_text(shown)
    click.echo(shown)
    if format_ == "text":
        for certificate in certificates:
            click.echo(str(certificate))
    if not all(c.holds for c in certificates):
        raise SystemExit(1)
