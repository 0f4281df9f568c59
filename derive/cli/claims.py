"""`derive claims`, `derive verify` and `derive book`: what is claimed, and whether it stands."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from derive.cli.output import json_text, table_text
from derive.errors import DomainError, UnknownNameError

if TYPE_CHECKING:
    from derive.proof import Theorem, Verified

__all__ = ["book", "claims", "verify"]

WORKERS = click.option(
    "--workers",
    type=click.IntRange(1),
    default=lambda: min(8, os.cpu_count() or 1),
    show_default="cores, up to 8",
    help="Processes.",
)
NO_CACHE = click.option("--no-cache", is_flag=True, help="Neither use nor keep known results.")


@click.command()
@click.argument("ids", nargs=-1, metavar="[ID ...]")
@click.option("--area", help="Only claims of this area.")
@click.option("--source", help="Only claims from this source: its key, or words of its authors.")
@click.option("--verdict", help="Only claims with this verdict.")
@click.option("--proof", is_flag=True, help="Show the proof, step by step.")
@click.option(
    "--format",
    "form",
    type=click.Choice(("text", "tex", "html")),
    default="text",
    show_default=True,
    help="Of a proof.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--strengths", is_flag=True, help="Print how many claims rest on what.")
def claims(
    ids: tuple[str, ...],
    area: str | None,
    source: str | None,
    verdict: str | None,
    proof: bool,
    form: str,
    as_json: bool,
    strengths: bool,
) -> None:
    """List claims with verdict, strength and source, or show those named by ID."""
    found = _chosen(ids, area, source, verdict)
    if strengths:
        from derive.render.book import strengths_markdown

        click.echo(strengths_markdown(found))
    elif as_json:
        click.echo(json_text([theorem.as_dict() for theorem in found]))
    elif proof or form != "text":
        _show_proofs(found, form)
    elif ids:
        from derive.render.proof import proof_text

        click.echo("\n\n".join(proof_text(theorem, steps=False) for theorem in found))
    else:
        rows = [[t.id, str(t.verdict), t.label, t.area, _first_source(t)] for t in found]
        click.echo(table_text(("id", "verdict", "strength", "area", "source"), rows))


@click.command()
@click.argument("ids", nargs=-1, metavar="[ID | FILE ...]")
@WORKERS
@NO_CACHE
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def verify(ids: tuple[str, ...], workers: int, no_cache: bool, as_json: bool) -> int:
    """Check claims from scratch: all, those named by ID, or one that a FILE states.

    The exit status is 1 if a verdict does not stand.
    """
    files = [Path(name) for name in ids if name.endswith(".toml")]
    named = [name for name in ids if not name.endswith(".toml")]
    rows: list[dict[str, Any]] = []
    if files:
        from derive.claims import decide, read_claim

        for file in files:
            decision = decide(read_claim(file))
            rows.append(decision.as_dict())
            if not as_json:
                click.echo(str(decision))
    if named or not files:
        rows += _verified_rows(_chosen(named), workers, no_cache, as_json)
    if as_json:
        click.echo(json_text(rows))
    return int(any(row["holds"] is False for row in rows))


@click.command()
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    help="Folder; made if it is missing.",
)
@click.option("--area", help="Only claims of this area.")
@WORKERS
@NO_CACHE
def book(out: Path, area: str | None, workers: int, no_cache: bool) -> int:
    """Write all claims with their proofs as claims.tex and claims.html.

    The exit status is 1 if a verdict does not stand; the book is written all the same.
    """
    from derive.render.book import book_html, book_tex

    found = _chosen((), area)
    results = {one.theorem.id: one for one in _results(found, workers, no_cache)}
    out.mkdir(parents=True, exist_ok=True)
    for name, make in (("claims.tex", book_tex), ("claims.html", book_html)):
        (out / name).write_text(make(found, results), encoding="utf-8")
        click.echo(out / name)
    return int(any(one.holds is False for one in results.values()))


def _chosen(
    ids: Sequence[str],
    area: str | None = None,
    source: str | None = None,
    verdict: str | None = None,
) -> list[Theorem]:
    from derive.proof import collected, find

    found = find(ids) if ids else list(collected().values())
    for option, value, known in (
        ("--area", area, sorted({t.area for t in found})),
        ("--verdict", verdict, sorted({str(t.verdict) for t in found})),
    ):
        if value is not None and value not in known:
            raise UnknownNameError(f"{option}: expected one of {', '.join(known)}, got {value!r}")
    kept = [
        t
        for t in found
        if (area is None or t.area == area)
        and (verdict is None or str(t.verdict) == verdict)
        and (source is None or any(_is_from(cite.source, source) for cite in t.sources))
    ]
    if source is not None and not kept:
        keys = sorted({cite.source.key for t in found for cite in t.sources})
        raise UnknownNameError(f"--source: expected one of {', '.join(keys)}, got {source!r}")
    if not kept:
        raise DomainError("claims: no claim has this area and this verdict")
    return kept


def _is_from(source: Any, words: str) -> bool:
    return words == source.key or words.lower() in source.authors.lower()


def _first_source(theorem: Theorem) -> str:
    return theorem.sources[0].source.key if theorem.sources else "own"


def _show_proofs(found: Sequence[Theorem], form: str) -> None:
    from derive.proof import Cache, verify
    from derive.render.proof import proof_html, proof_latex, proof_text

    results = {one.theorem.id: one for one in verify(found, cache=Cache())}
    if form == "html":
        if len(found) == 1:
            click.echo(proof_html(found[0], results[found[0].id]))
        else:
            from derive.render.book import book_html

            click.echo(book_html(found, results))
        return
    show = proof_latex if form == "tex" else proof_text
    click.echo("\n\n".join(show(t, results[t.id]) for t in found))


def _results(found: Sequence[Theorem], workers: int, no_cache: bool) -> list[Verified]:
    import sys

    from tqdm import tqdm

    from derive.proof import Cache, verify

    cache = None if no_cache else Cache()
    order = {theorem.id: k for k, theorem in enumerate(found)}
    running = verify(found, workers=workers, cache=cache)
    bar = tqdm(running, total=len(found), desc="verify", file=sys.stderr, disable=None, leave=False)
    return sorted(bar, key=lambda one: order[one.theorem.id])


def _verified_rows(
    found: Sequence[Theorem], workers: int, no_cache: bool, as_json: bool
) -> list[dict[str, Any]]:
    results = _results(found, workers, no_cache)
    if not as_json:
        words = {True: "stands", False: "FAILS", None: "not checked"}
        rows = [
            [
                r.theorem.id,
                str(r.theorem.verdict),
                r.theorem.label,
                words[r.holds],
                f"{r.seconds:.2f}" + (" (known)" if r.cached else ""),
            ]
            for r in results
        ]
        click.echo(table_text(("id", "verdict", "strength", "", "seconds"), rows))
        for r in results:
            for line in _reasons(r):
                click.echo(line)
        count = {word: sum(r.holds is key for r in results) for key, word in words.items()}
        click.echo(
            f"{count['stands']} of {len(results)} verdicts stand, {count['FAILS']} fail, "
            f"{count['not checked']} were not checked"
        )
    return [
        {
            "id": r.theorem.id,
            "verdict": str(r.theorem.verdict),
            "strength": r.theorem.label,
            "holds": r.holds,
            "seconds": r.seconds,
            "cached": r.cached,
            "certificates": [
                {
                    "kind": s.certificate.kind,
                    "holds": None if s.missing else s.certificate.holds,
                    "detail": s.certificate.detail,
                }
                for s in r.steps
            ],
        }
        for r in results
    ]


def _reasons(result: Verified) -> list[str]:
    lines = [f"{result.theorem.id}: {result.problem}"] if result.problem else []
    for number, step in enumerate(result.steps, 1):
        if not step.certificate.holds:
            why = step.missing or f"{step.certificate.claim}; {step.certificate.detail}"
            lines.append(f"{result.theorem.id}, step {number}: {why}")
    return lines
