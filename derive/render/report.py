r"""One page that holds derivations, depth results and checks: self-contained HTML, or LaTeX."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from derive.blocks.placements import PLACEMENTS
from derive.calculus.derivation import Derivation
from derive.calculus.printing import latex, text
from derive.errors import DeriveError
from derive.render.assumptions import activations, assumptions
from derive.render.chains import chains, defined, output_of
from derive.render.extras import load
from derive.render.latex import (
    derivation_latex,
    derivative_latex,
    document_tex,
    escaped,
    rule_parts,
)
from derive.render.page import aligned_math, environment, inline_math, lines_math, mixed
from derive.render.paths import BlockName, mixing_blocks, named_token_block, paths

__all__ = ["report_html", "report_tex"]

_SOURCES = (
    "Magnus and Neudecker, Matrix Differential Calculus, chapter 5 (first identification theorem)",
    "Ba, Kiros and Hinton, Layer Normalization, 2016, arXiv:1607.06450",
    "Zhang and Sennrich, Root Mean Square Layer Normalization, 2019, arXiv:1910.07467",
    *(p.source for p in PLACEMENTS.values()),
)
_TITLE = "Jacobians of residual blocks by normalisation placement"


def report_html(
    derivations: Iterable[tuple[str, Derivation]],
    depth_rows: Sequence[Mapping[str, Any]] = (),
    checks: Sequence[Mapping[str, Any]] = (),
    stack_checks: Sequence[Mapping[str, Any]] = (),
    figures: Iterable[tuple[str, Any]] = (),
    meta: Mapping[str, Any] | None = None,
) -> str:
    r"""Return one self-contained HTML page: no script, no network.

    Parameters
    ----------
    derivations : iterable of (title, Derivation)
        One section each: block, Jacobian, definitions, assumptions, foldable steps.
    depth_rows : sequence of mappings
        As for `derive.render.plots.depth_figure`; a table, and a figure if `figures` is empty.
    checks, stack_checks : sequence of mappings
        Each with ``system``, ``placement``, ``norm``, ``max_rel_error``, ``dtype``, ``ok`` and
        optionally ``layers``: the closed form against autodiff of a real block, and of a stack.
    figures : iterable of (caption, figure)
        Matplotlib figures, or texts that start with ``<svg``.
    meta : mapping, optional
        ``title`` and ``sources`` are used; everything else (version, date, seeds ...) is listed.

    Raises
    ------
    MissingExtraError
        If jinja2 or latex2mathml is not installed, or matplotlib where a figure is drawn.
    DeriveError
        If a figure is neither a Matplotlib figure nor an ``svg`` element.
    """
    meta = dict(meta or {})
    drawn = [(caption, _drawing(figure)) for caption, figure in figures]
    if depth_rows and not drawn:
        from derive.render.plots import depth_figure

        caption = "End-to-end Jacobian norm by depth, and gradient norm by layer."
        drawn = [(caption, _drawing(depth_figure(depth_rows)))]
    sections = [_section(k, title, D) for k, (title, D) in enumerate(derivations, 1)]
    return str(
        environment()
        .get_template("report.html.j2")
        .render(
            title=str(meta.pop("title", _TITLE)),
            sources=list(meta.pop("sources", _SOURCES)),
            meta=meta,
            summary=_summary(len(sections), depth_rows, checks, stack_checks),
            sections=sections,
            depth=[_depth_row(row) for row in depth_rows],
            figures=drawn,
            tables=[
                ("Single blocks", [_check_row(row) for row in checks]),
                ("Stacks", [_check_row(row) for row in stack_checks]),
            ],
        )
    )


def report_tex(
    derivations: Iterable[tuple[str, Derivation]],
    depth_rows: Sequence[Mapping[str, Any]] = (),
    checks: Sequence[Mapping[str, Any]] = (),
    stack_checks: Sequence[Mapping[str, Any]] = (),
    figures: Iterable[tuple[str, str | Path]] = (),
    meta: Mapping[str, Any] | None = None,
) -> str:
    r"""Return the report as one LaTeX document.

    Parameters
    ----------
    derivations, depth_rows, checks, stack_checks, meta
        As for `report_html`.
    figures : iterable of (caption, path)
        Files for ``\includegraphics``, relative to the document.

    Raises
    ------
    DeriveError
        If a figure is not given by its path.
    """
    meta = dict(meta or {})
    title, sources = str(meta.pop("title", _TITLE)), meta.pop("sources", _SOURCES)
    derivations = list(derivations)
    facts = [f"{name}: {value}" for name, value in meta.items()]
    stated = _summary(len(derivations), depth_rows, checks, stack_checks)
    sections: list[tuple[str, str, str]] = [
        ("Summary", _itemize([escaped(line) for line in [*stated, *facts]]), "")
    ]
    sections += [(name, derivation_latex(D), "") for name, D in derivations]
    pictures = [_includegraphics(caption, path) for caption, path in figures]
    if depth_rows or pictures:
        rows = [_depth_row(row) for row in depth_rows]
        sections.append(("Depth", "\n".join([*pictures, _depth_tex(rows)]), _DEPTH_TEXT))
    for heading, found in (("Checks of blocks", checks), ("Checks of stacks", stack_checks)):
        if found:
            body = _checks_tex([_check_row(row) for row in found])
            sections.append((heading, body, _CHECK_TEXT))
    sections.append(("Sources", _itemize([escaped(str(s)) for s in sources]), ""))
    return document_tex(title, sections)


_DEPTH_TEXT = (
    "Spectral norm of the Jacobian of the output of the stack with respect to its input, and norms "
    "of the gradient of the loss with respect to the state at each layer."
)
_CHECK_TEXT = (
    "Largest deviation of the closed form from autodiff of the framework's own module, relative to "
    "the largest entry."
)


# --- what both formats show ------------------------------------------------------------------


def _summary(
    count: int,
    depth_rows: Sequence[Mapping[str, Any]],
    checks: Sequence[Mapping[str, Any]],
    stack_checks: Sequence[Mapping[str, Any]],
) -> list[str]:
    lines = [f"{count} closed-form Jacobian{'' if count == 1 else 's'}, derived step by step"]
    if depth_rows:
        deepest = max(row["layers"] for row in depth_rows)
        lines.append(f"{len(depth_rows)} stacks of up to {deepest} blocks")
    for what, found in (("blocks", checks), ("stacks", stack_checks)):
        if found:
            passed = sum(bool(row["ok"]) for row in found)
            worst = max(float(row["max_rel_error"]) for row in found)
            lines.append(
                f"{passed} of {len(found)} checks of {what} against autodiff passed; "
                f"largest relative error {worst:.1e}"
            )
    return lines


def _check_row(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "system": str(row["system"]),
        "placement": str(row["placement"]),
        "norm": str(row["norm"]),
        "layers": str(row.get("layers", "")),
        "error": f"{float(row['max_rel_error']):.1e}",
        "dtype": str(row["dtype"]),
        "ok": bool(row["ok"]),
    }


def _depth_row(row: Mapping[str, Any]) -> dict[str, Any]:
    grads = [float(g) for g in row.get("log_grad_norms", ())]
    return {
        "placement": str(row["placement"]),
        "layers": str(row["layers"]),
        "width": str(row.get("width", "")),
        "norm": _from_log(float(row["log_norm"])),
        "first": _from_log(grads[0]) if grads else ("", None),
        "last": _from_log(grads[-1]) if grads else ("", None),
    }


def _from_log(value: float) -> tuple[str, int | None]:
    """Mantissa and power of ten of exp(value); no power where it is not needed."""
    if value == -math.inf:
        return ("0", None)
    if not math.isfinite(value):
        return (str(value), None)
    decimal = value / math.log(10)
    if -3 <= decimal < 4:
        return (f"{math.exp(value):.3g}", None)
    exponent = math.floor(decimal)
    mantissa = f"{10 ** (decimal - exponent):.2f}"
    return ("1.00", exponent + 1) if mantissa == "10.00" else (mantissa, exponent)


# --- HTML ------------------------------------------------------------------------------------


def _section(number: int, title: str, D: Derivation) -> dict[str, Any]:
    y = output_of(D)
    result = [(latex(y), latex(D.block)), (derivative_latex(y, D.state), latex(D.jacobian))]
    if D.mixes_tokens:
        by_token = latex(named_token_block(D))
        result.append((derivative_latex(y, D.state, "i", "j"), by_token))
    where = [(latex(name), latex(value)) for name, value in defined(D)]
    where += [(name, latex(formula)) for _, name, formula in activations(D)]
    return {
        "id": f"derivation-{number}",
        "title": title,
        "result": aligned_math(result),
        "where": aligned_math(where),
        "blocks": [_block(node) for node in mixing_blocks(D)],
        "assumptions": [mixed(a.latex) for a in assumptions(D)],
        "chains": _chains(D),
        "count": len(D.steps),
        "text": text(D.jacobian),
    }


def _block(node: Any) -> Any:
    rows = []
    for k, (term, label) in enumerate(paths(node)):
        left = latex(BlockName(node.label, *node.args[2:])) + " &=" if k == 0 else "& {}+"
        rows.append(f"{left} {latex(term)}" + (rf" && \text{{({label})}}" if label else ""))
    return lines_math(rows)


def _chains(D: Derivation) -> list[dict[str, Any]]:
    found, number = [], 0
    for chain in chains(D):
        rows = []
        closing = [chain.reads_off] if chain.reads_off else []
        for k, step in enumerate([*chain.steps, *closing]):
            number += 1
            if step.rule == "read off":
                formula = f"{derivative_latex(chain.of, D.state)} = {latex(D.jacobian)}"
            else:
                formula = (latex(step.before) if k == 0 else "") + f" = {latex(step.after)}"
            rows.append(
                {
                    "number": number,
                    "formula": inline_math(formula, True),
                    "rule": [(w, inline_math(f) if f else "") for w, f in rule_parts(D, step.rule)],
                    "why": step.why,
                }
            )
        found.append({"of": inline_math(latex(chain.of)), "rows": rows})
    return found


def _drawing(figure: Any) -> Any:
    markup = load("markupsafe", "report").Markup
    if isinstance(figure, str) and figure.lstrip().startswith("<svg"):
        return markup(figure)
    if hasattr(figure, "savefig"):
        from derive.render.plots import svg

        return markup(svg(figure))
    raise DeriveError(
        f"figures: expected a Matplotlib figure or an <svg> text, got {type(figure).__name__}"
    )


# --- LaTeX -----------------------------------------------------------------------------------


def _itemize(lines: Iterable[str]) -> str:
    items = "\n".join(rf"\item {line}" for line in lines)
    return f"\\begin{{itemize}}\n{items}\n\\end{{itemize}}"


def _includegraphics(caption: str, path: str | Path) -> str:
    if not isinstance(path, str | Path) or str(path).lstrip().startswith("<"):
        raise DeriveError(f"figures: expected the path of a file, got {type(path).__name__}")
    return "\n".join(
        [
            r"\begin{center}",
            rf"\includegraphics[width=\linewidth]{{\detokenize{{{Path(path).as_posix()}}}}}",
            rf"\par\small {escaped(caption)}",
            r"\end{center}",
        ]
    )


def _number_tex(value: tuple[str, int | None]) -> str:
    mantissa, power = value
    return rf"${mantissa}\times10^{{{power}}}$" if power is not None else escaped(mantissa)


def _tabular(columns: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Tables of at most 40 rows each, because a table does not break over pages."""
    rows, tables = list(rows), []
    for start in range(0, len(rows), 40):
        body = [" & ".join(cells) + r" \\" for cells in rows[start : start + 40]]
        lines = [rf"\begin{{tabular}}{{{columns}}}", r"\hline", " & ".join(head) + r" \\"]
        lines += [r"\hline\rule{0pt}{2.6ex}%", *body, r"\hline", r"\end{tabular}"]
        tables.append("\\begin{center}\n\\small\n" + "\n".join(lines) + "\n\\end{center}")
    return "\n".join(tables)


def _depth_tex(rows: Iterable[Mapping[str, Any]]) -> str:
    head = ["placement", "$L$", "$d$", r"$\lVert\partial x_L/\partial x_0\rVert_2$"]
    head += [r"$\lVert\partial\mathcal{L}/\partial x_0\rVert_2$"]
    head += [r"$\lVert\partial\mathcal{L}/\partial x_L\rVert_2$"]
    cells = [
        [
            escaped(row["placement"]),
            escaped(row["layers"]),
            escaped(row["width"]),
            *(_number_tex(row[key]) for key in ("norm", "first", "last")),
        ]
        for row in rows
    ]
    return _tabular("lrrrrr", head, cells)


def _checks_tex(rows: Iterable[Mapping[str, Any]]) -> str:
    head = ["system", "placement", "norm", "layers", "dtype", "relative error", "result"]
    keys = ("placement", "norm", "layers", "dtype", "error")
    cells = [
        [
            r"\raggedright " + _breakable(escaped(row["system"])),
            *(escaped(row[key]) for key in keys),
            "passed" if row["ok"] else r"\textbf{failed}",
        ]
        for row in rows
    ]
    return _tabular(r"p{0.3\linewidth}llrlrl", head, cells)


def _breakable(name: str) -> str:
    """Let a long name break after its dots and underscores."""
    return re.sub(r"(\\_|\.)(?=[A-Za-z])", r"\1\\allowbreak{}", name)
