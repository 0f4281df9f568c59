"""`derive show`: one derivation."""

from __future__ import annotations

import click

import derive
from derive.blocks.build import SUBLAYERS
from derive.cli.options import norm_option
from derive.cli.output import json_text

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
        click.echo(json_text(payload))
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
