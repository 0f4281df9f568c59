r"""The main job: derivations, depth curves and checks, gathered and written as one report."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import derive
from derive import crosscheck
from derive.backends import SYSTEMS
from derive.blocks.attention import Attention
from derive.blocks.build import block, layer, state
from derive.blocks.sublayers import GatedFFN
from derive.calculus.derivation import Derivation, derivation
from derive.depth import depth_rows
from derive.render import plots
from derive.render.report import report_html, report_tex

__all__ = ["Written", "report_derivations", "write_report"]

PLACED = ("post", "pre")
NORMS = ("layernorm", "rmsnorm")
SUBLAYERS = ("abstract", "ffn", "gated", "causal-attention")
STACK = 12
"""Layers of the stacks that are checked besides single layers."""

Progress = Callable[[Sequence[Any], str], Iterable[Any]]


@dataclass(frozen=True)
class Written:
    """What was written, and whether every check passed."""

    paths: tuple[Path, ...]
    ok: bool


def report_derivations() -> list[tuple[str, Derivation]]:
    """Return the derivations of the report with their titles.

    Every placement with every norm and sublayer, then two whole layers: the post-norm LayerNorm
    layer of 2017 and the pre-norm RMSNorm layer with rotary attention and a gated FFN.
    """
    x = state()
    found = [
        (f"{placement}-norm, {norm}, {sublayer}", derivation(block(placement, norm, sublayer), x))
        for placement in PLACED
        for norm in NORMS
        for sublayer in SUBLAYERS
    ]
    modern = layer("pre", "rmsnorm", Attention(causal=True, rotary=True), GatedFFN("silu"))
    found.append(("a whole post-norm layer (2017)", derivation(layer("post"), x)))
    found.append(("a whole pre-norm layer (rotary, gated)", derivation(modern, x)))
    return found


def write_report(
    out: Path,
    *,
    depths: Sequence[int] = (6, 12, 24, 48),
    width: int = 64,
    seed: int = 0,
    progress: Progress = lambda items, what: items,
) -> Written:
    """Derive, evaluate over depth, check against real blocks, and write the report.

    Parameters
    ----------
    out : Path
        Folder; made if it is missing.
    depths : sequence of int
        Numbers of layers of the depth curves.
    width : int
        Features of the depth curves.
    seed : int
        Seed of weights and inputs.
    progress : callable
        Wraps a sequence and its name, to show progress.

    Returns
    -------
    Written
        The paths of ``index.html``, ``report.tex``, ``depth.svg`` and ``depth.pdf``.

    Raises
    ------
    MissingExtraError
        If torch, transformers, matplotlib, jinja2 or latex2mathml is missing.
    OSError
        If the folder cannot be written.
    """
    out.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    jobs = [(placement, norm, depth) for norm in NORMS for placement in PLACED for depth in depths]
    for placement, norm, depth in progress(jobs, "depth"):
        (row,) = depth_rows(placement, [depth], norm=norm, width=width, seed=seed)
        rows.append({**row, "placement": f"{placement}, {norm}"})
    checks, stack_checks = (
        [
            crosscheck.check(system, layers=layers, seed=seed).as_dict()
            for system in progress(SYSTEMS, f"check {layers} layer{'s' * (layers > 1)}")
        ]
        for layers in (1, STACK)
    )
    figure = plots.depth_figure(rows)
    content: dict[str, Any] = {
        "derivations": list(progress(report_derivations(), "derive")),
        "depth_rows": rows,
        "checks": checks,
        "stack_checks": stack_checks,
        "meta": {
            "version": derive.__version__,
            "date": datetime.date.today().isoformat(),
            "seed": seed,
            "width": width,
            "depth sublayer": "ffn (gelu), hidden width 4 d, one token",
        },
    }
    paths = [out / "index.html", out / "report.tex"]
    caption = "What depth does to the end-to-end Jacobian and to the gradient"
    drawn = [plots.save(figure, out / name) for name in ("depth.svg", "depth.pdf")]
    paths[0].write_text(report_html(figures=[(caption, figure)], **content), encoding="utf-8")
    paths[1].write_text(report_tex(figures=[(caption, "depth.pdf")], **content), encoding="utf-8")
    paths += drawn
    return Written(tuple(paths), all(r["ok"] for r in (*checks, *stack_checks)))
