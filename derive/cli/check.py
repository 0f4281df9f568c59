"""`derive check`: closed forms against autodiff of real layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from derive.cli.options import SEED
from derive.cli.output import json_text, progress, table_text
from derive.errors import MissingPackageError, UnknownNameError

__all__ = ["check"]


@click.command()
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

    What cannot be built is a row with the reason; in JSON its "ok" is null.

    torch-post, torch-pre, bert, gpt2 and llama are built at the given size; the other layers have a
    tiny size of their own.
    """
    rows = _checks(systems, [layers], tokens=tokens, width=width, seed=seed)
    if as_json:
        click.echo(json_text(rows))
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
            if r["ok"] is not None
        ]
        click.echo(table_text(header, table))
        for r in rows:
            if r["ok"] is None:
                click.echo(f"not checked: {r['system']}: {r['note']}")
    if any(r["ok"] is False for r in rows):
        raise SystemExit(1)


def _checks(systems: Sequence[str], depths: Sequence[int], **sizes: Any) -> list[dict[str, Any]]:
    from derive import crosscheck
    from derive.backends import SYSTEMS
    from derive.backends.zoo import NOT_BUILT, ZOO

    known = (*SYSTEMS, *ZOO)
    names = known if not systems or "all" in systems else systems
    unknown = [s for s in systems if s not in (*known, "all")]
    if unknown:
        raise UnknownNameError(
            f"system: expected all or some of {', '.join(known)}, got {unknown[0]!r}"
        )
    jobs = [(name, layers) for layers in depths for name in names]
    rows = []
    for name, layers in progress(jobs, "check"):
        try:
            rows.append(crosscheck.check(name, layers=layers, **sizes).as_dict())
        except MissingPackageError as error:
            if name in systems:
                raise
            rows.append(crosscheck.not_checked(name, str(error)))
    if names is known:
        rows += [crosscheck.not_checked(name, reason) for name, reason in NOT_BUILT.items()]
    return rows
