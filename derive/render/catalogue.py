r"""The catalogue of placements, norms, sublayers and systems as one page and one document.

Both are generated from the tables that everything else is derived from.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import sympy as sp

from derive.blocks.catalogue import (
    CORRECTIONS,
    DEEPNORM,
    catalogue,
    norm_derivation,
    placement_derivation,
    stream_derivations,
    sublayer_derivation,
)
from derive.blocks.placements import (
    MIXES,
    PLACEMENTS,
    STREAMS,
    WITHOUT_EQUATION,
    Placement,
    StreamPlacement,
)
from derive.calculus.derivation import Derivation
from derive.calculus.printing import latex, text
from derive.render.latex import derivation_latex, document_tex, escaped
from derive.render.paths import BlockName, mixing_blocks, paths
from derive.render.streams import streams_latex
from derive.symbols import latex_name

__all__ = ["catalogue_markdown", "catalogue_tex"]

_ROOM = "\n\\vspace{0pt plus 0.25\\textheight}\\pagebreak[2]\\vspace{0pt plus -0.25\\textheight}\n"
"""A page may end here a quarter short, so that a heading is not parted from its formulas."""

# --- Markdown --------------------------------------------------------------------------------


def catalogue_markdown() -> str:
    """Return the catalogue as Markdown, its formulas as text that the command line prints too."""
    return "\n".join(_page()).rstrip() + "\n"


def _page() -> Iterator[str]:
    yield "# Catalogue"
    yield ""
    yield (
        "Every placement, norm, sublayer and system that the package knows. This page is generated "
        "by `derive catalogue` from the tables that the derivations start from; the Jacobians in "
        "it are derived, and the same rows come from `derive list placements|norms|sublayers|"
        "systems`, with `--json` for programs."
    )
    yield ""
    yield (
        "Columns, numerator layout: `dy = J dx`. `N` is the norm, `F` the feed-forward or any "
        "sublayer, `A` self-attention, `C` cross-attention, `DF(u)` the Jacobian of `F` at `u`; "
        "an apostrophe transposes."
    )
    yield from _corrections()
    yield from _placements()
    yield from _norms()
    yield from _sublayers()
    yield from _systems()


def _corrections() -> Iterator[str]:
    yield from _heading(2, "What common tables get wrong")
    header = ("system", "common table", "what it is", "evidence")
    rows = [[c["system"], c["common"], c["fact"], c["evidence"]] for c in CORRECTIONS]
    yield from _table(header, rows)
    yield from _heading(3, "The constants of DeepNorm")
    yield from _table(("stack", "alpha", "beta"), [list(row.values()) for row in DEEPNORM])
    yield ""
    yield (
        "beta scales the initial weights of the feed-forward, value and output projections, not "
        "those of query and key."
    )


def _placements() -> Iterator[str]:
    rows = catalogue("placements")
    yield from _heading(2, "Placements")
    yield (
        "An equation with `A` is a whole layer; one with `F` alone is a block, and a layer is two "
        "of them, first with attention as `F`. The Jacobians are those with LayerNorm, or with the "
        "norm that belongs to the placement. `L` is the number of blocks of a stack and `l` the "
        "number of a block, from 1; `derive depth` takes the scalars at the start of training."
    )
    yield ""
    header = ("placement", "equation", "what becomes of the residual path")
    yield from _table(
        header, [[f"`{r['name']}`", _code(r["equation"], r), r["residual"]] for r in rows]
    )
    for row in rows:
        yield from _heading(3, row["name"])
        if row["kind"] == "mix":
            yield f"{row['equation']}. {row['source']}."
            continue
        yield from _fenced(_formulas(row, row["jacobian"].split("; "), "block"))
        yield from _facts({"Residual path": row["residual"], **_origin(row)})
    yield from _heading(3, "Proposals that are not in the table")
    yield from _facts(WITHOUT_EQUATION)


def _norms() -> Iterator[str]:
    yield from _heading(2, "Norms")
    yield (
        "At the state itself. That LayerNorm is RMSNorm of the centred vector, and what differs "
        "between the two Jacobians (rank, null spaces, the direction of the mean), is proved in "
        "`layernorm-is-centred-rmsnorm`, `norms-are-alike` and the theorems on spectra and null "
        "vectors (`derive claims --area norms`)."
    )
    for row in catalogue("norms"):
        yield from _heading(3, row["name"])
        yield from _fenced(_formulas(row, [f"dN/dx = {row['jacobian']}"], "N(x)"))
        yield from _facts({"Note": row["note"], "Source": row["source"]})


def _sublayers() -> Iterator[str]:
    rows = catalogue("sublayers")
    yield from _heading(2, "Sublayers")
    yield (
        "At the state itself. Where tokens are mixed, the block from token `j` to token `i` is the "
        "sum of the paths through value, key and query."
    )
    for row in rows:
        if row["kind"] == "activation":
            continue
        yield from _heading(3, row["name"])
        D = sublayer_derivation(row["name"])
        parts = _path_lines(D) or [f"dF/dx = {row['jacobian']}"]
        yield from _fenced(_formulas(row, parts, "F(x)"))
        yield from _facts({"Note": row["note"], "Source": row["source"]})
    yield from _heading(3, "Activations")
    header = ("activation", "formula", "derivative")
    functions = [r for r in rows if r["kind"] == "activation"]
    yield from _table(
        header, [[f"`{r['name']}`", f"`{r['equation']}`", f"`{r['jacobian']}`"] for r in functions]
    )


def _systems() -> Iterator[str]:
    yield from _heading(2, "Systems")
    yield (
        "A number is compared with the named class of an installed package where the last column "
        "says so, by a test; everything else is recalled: written down from memory of the source, "
        "not compared with it here."
    )
    yield ""
    rows = catalogue("systems")
    header = (
        "system", "layers", "width", "heads", "kv heads", "hidden", "norm", "eps", "placement",
        "feed-forward", "final norm", "year", "verified",
    )  # fmt: skip
    yield from _table(header, [_system(r) for r in rows])
    yield ""
    for row in rows:
        notes = f" {row['notes']}." if row["notes"] else ""
        yield (
            f"- `{row['name']}`: {row['attention']}. Initialised with {row['init']}.{notes} "
            f"{row['source']}."
        )


def _system(row: Mapping[str, Any]) -> list[str]:
    depth = f"{row['depth']} + {row['decoder_depth']}" if row["decoder_depth"] else row["depth"]
    cells = [f"`{row['name']}`", depth, row["width"], row["heads"], row["kv_heads"]]
    eps = "?" if row["eps"] is None else f"{row['eps']:g}"
    cells += [row["hidden"], row["norm"], eps, row["placement"], row["feed_forward"]]
    cells += ["yes" if row["final_norm"] else "no", row["year"], row["verified"]]
    return [str(c) for c in cells]


def _heading(level: int, words: str) -> Iterator[str]:
    yield ""
    yield f"{'#' * level} {words}"
    yield ""


def _fenced(lines: Iterable[str]) -> Iterator[str]:
    yield "```text"
    yield from lines
    yield "```"
    yield ""


def _formulas(row: Mapping[str, Any], jacobian: Iterable[str], left: str) -> Iterator[str]:
    """Return the equation, the Jacobian and what their names stand for."""
    if row.get("kind") == "streams":
        yield from row["equation"].split("; ")
    else:
        *named, result = row["equation"].split("; ")
        yield from named
        yield f"{'y' if left == 'block' else left} = {result}"
    yield ""
    for line in jacobian:
        yield line if " = " in line or line.startswith("  ") else f"dy/dx = {line}"
    definitions = {k: v for k, v in row["where"].items() if f"{k} =" not in row["equation"]}
    if definitions:
        yield ""
        yield "where"
        yield from (f"  {name} = {value}" for name, value in definitions.items())


def _path_lines(D: Derivation) -> list[str]:
    """Return the token-to-token block of attention, one path a line."""
    lines: list[str] = []
    for node in mixing_blocks(D):
        lines.append(f"{text(BlockName(node.label, *node.args[2:]))} =")
        for k, (term, name) in enumerate(paths(node)):
            body = text(term)
            sign = "-" if body.startswith("-") else "+" if k else " "
            lines.append(f"  {sign} {body.removeprefix('-')}" + (f"    [{name}]" if name else ""))
    return lines


def _facts(facts: Mapping[str, str]) -> Iterator[str]:
    for name, value in facts.items():
        if value:
            yield f"- {name}: {value}."


def _origin(row: Mapping[str, Any]) -> dict[str, str]:
    start = ", ".join(f"{name} = {value}" for name, value in row.get("scalars", {}).items())
    return {"At the start of training": start, "Source": row["source"], "Used by": row["used_by"]}


def _code(equation: str, row: Mapping[str, Any]) -> str:
    return equation if row["kind"] == "mix" else f"`{equation}`"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(header)} |"
    yield f"|{'---|' * len(header)}"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"


# --- LaTeX -----------------------------------------------------------------------------------


def catalogue_tex() -> str:
    r"""Return the catalogue as one LaTeX document.

    One section for each placement, then the norms, then the sublayers; attention shows its value,
    key and query paths.
    """
    sections = [
        *(_placement_section(name) for name in PLACEMENTS),
        *(_stream_section(name) for name in STREAMS),
        *(_mix_section(name) for name in MIXES),
        *(_norm_section(row) for row in catalogue("norms")),
        *(_sublayer_section(row) for row in catalogue("sublayers") if row["kind"] != "activation"),
    ]
    return document_tex("Placements, norms and sublayers, with their Jacobians", sections)


def _placement_section(name: str) -> tuple[str, str]:
    entry = PLACEMENTS[name]
    shown = derivation_latex(placement_derivation(name), steps=False)
    return f"Placement: {name}", shown + _paragraphs(_facts_of(entry), entry.scalars)


def _facts_of(entry: Placement | StreamPlacement) -> dict[str, str]:
    return {
        "Residual path": entry.residual,
        "Source": entry.source,
        "Used by": entry.used_by,
    }


def _stream_section(name: str) -> tuple[str, str]:
    entry = STREAMS[name]
    shown = streams_latex(stream_derivations(name)) + _paragraphs(_facts_of(entry), entry.scalars)
    return f"Placement with streams: {name}", shown


def _mix_section(name: str) -> tuple[str, str]:
    mix = MIXES[name]
    return f"Placement by layer: {name}", _paragraphs(
        {"Layers": mix.equation, "Source": mix.source}
    )


def _norm_section(row: Mapping[str, Any]) -> tuple[str, str]:
    shown = derivation_latex(norm_derivation(row["name"]), steps=False)
    facts = {"Note": row["note"], "Source": row["source"]}
    return f"Norm: {row['name']}", shown + _paragraphs(facts)


def _sublayer_section(row: Mapping[str, Any]) -> tuple[str, str]:
    shown = derivation_latex(sublayer_derivation(row["name"]), steps=False)
    facts = {"Note": row["note"], "Source": row["source"]}
    return f"Sublayer: {row['name']}", shown + _paragraphs(facts)


def _paragraphs(facts: Mapping[str, str], scalars: Mapping[str, sp.Expr] | None = None) -> str:
    lines = [rf"\noindent\textit{{{name}.}} {_prose(v)}.\par" for name, v in facts.items() if v]
    start = [rf"${latex_name(name)} = {latex(value)}$" for name, value in (scalars or {}).items()]
    if start:
        lines.append(rf"\noindent\textit{{At the start of training.}} {', '.join(start)}.\par")
    return "\n\\smallskip\n" + "\n".join(lines) + _ROOM


_MATHS = {
    "1'diag(gain)^-1 J = 0": r"\mathbf{1}^{\top} \operatorname{diag}(\gamma)^{-1} J = 0",
    "L^(-1/(2m-2))": r"L^{-1/(2m-2)}",
    "1/sqrt(L)": r"1/\sqrt{L}",
    "1/sqrt(N)": r"1/\sqrt{N}",
    "J_N diag(omega)": r"J_{N} \operatorname{diag}(\omega)",
    "S = c tanh(S0/c)": r"S = c \tanh(S_{0}/c)",
    "j <= i": r"j \le i",
    "R[i]": "R_{i}",
    "alpha J_N": r"\alpha J_{N}",
    "1 + w": "1 + w",
    "1/(1 - p)": "1/(1 - p)",
    "alpha = L": r"\alpha = L",
    "alpha = 0": r"\alpha = 0",
    "beta = 1/sqrt(layer)": r"\beta = 1/\sqrt{l}",
    "J_N": "J_{N}",
    "J = I": "J = I",
    "alpha": r"\alpha",
    "omega": r"\omega",
}
_FORMULA = re.compile("|".join(rf"(?<!\w){re.escape(words)}(?!\w)" for words in _MATHS))


def _prose(words: str) -> str:
    """Escape text, its formulas set as such."""
    out, at = [], 0
    for match in _FORMULA.finditer(words):
        out += [escaped(words[at : match.start()]), f"${_MATHS[match[0]]}$"]
        at = match.end()
    return "".join([*out, escaped(words[at:])])
