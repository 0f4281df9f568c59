"""Advice on a stack as text: what is expected, how sure, and which scale would hold it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["advice_text", "ranking_cells"]

LONG = 64
"""Characters of a formula above which text leaves it to JSON."""
RANKING = ("placement", "ratio", "one stack", "growth", "updates", "as L grows")


def advice_text(row: Mapping[str, Any]) -> str:
    """Return a row of `derive.laws.advise.advice_row` as text.

    Parameters
    ----------
    row : mapping
        The row of one placement.
    """
    head = (
        f"{row['placement']}, {row['norm']}, {row['sublayer']}, init {row['init']}: "
        f"{row['layers']} blocks of width {row['width']}, {row['tokens']} token"
        + ("" if row["tokens"] == 1 else "s")
    )
    if row["refused"] is not None:
        return f"{head}\n  none: {row['refused']}"
    return "\n".join(
        [
            head,
            *_columns(list(_expected(row))),
            *_scales(row),
            *(
                f"published: {one['scalar']} = {one['value']}: {one['source']} [{one['strength']}]"
                for one in row["published"]
            ),
        ]
    )


def _columns(pairs: list[tuple[str, str]]) -> list[str]:
    names = max(len(name) for name, _ in pairs)
    return [f"  {name:<{names}}  {value}" for name, value in pairs]


def _expected(row: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    gradient, growth, update, limit = (row[k] for k in ("gradient", "growth", "update", "limit"))
    yield "E|g_0|^2/E|g_L|^2", _valued(gradient["ratio"], gradient)
    spread = gradient["spread"]
    if spread is None:
        yield "", "of one stack: not known here; --monte-carlo measures it"
    else:
        yield (
            "",
            f"of one stack: {spread['low']:.4g} to {spread['high']:.4g}, 95 %, log-normal with "
            f"deviation {spread['log_std']:.3g} [{spread['strength']}]",
        )
    yield "E|x_L|^2/E|x_0|^2", _valued(growth["ratio"], growth)
    yield (
        "",
        f"largest entry about {growth['largest_entry']:.3g}; float16 holds "
        f"{growth['float16_margin']:.3g} times as much, bfloat16 {growth['bfloat16_margin']:.3g}",
    )
    weights = row["weights"]
    if weights["ratio"] is not None:
        yield (
            "weight gradients",
            f"{weights['ratio']:.4g} = first over last, squared [{weights['strength']}]",
        )
    amplified = update["amplification"]
    told = "not known here" if amplified is None else f"{amplified:.4g} [{update['strength']}]"
    yield "update amplification", told
    yield "as L grows", _limit_text(limit)
    if row["measured"] is not None:
        yield from _measured(row["measured"])


def _valued(value: float, part: Mapping[str, Any]) -> str:
    formula = part["formula"]
    known = formula is None or len(formula) > LONG or formula == f"{value:.4g}"
    shown = "" if known else f" = {formula}"
    return f"{value:.4g}{shown} [{part['strength']}]"


def _limit_text(limit: Mapping[str, Any]) -> str:
    kind, rate, power = limit["kind"], limit["rate"], limit["power"]
    if kind == "open":
        return "no rule says what the ratio does"
    words = {
        "exponential": "log|g_0|/|g_L| = {rate:.4g} L",
        "stretched": "its logarithm like L^{power:.3g}; exponent 0",
        "power": "like L^{power:.4g}; exponent 0",
        "logarithmic": "like (log L)^{power:.4g}; exponent 0",
        "bounded": "bounded; exponent 0",
    }[kind].format(rate=rate, power=power)
    if kind == "exponential" and limit["jensen_gap"] is not None:
        words += f"; of one stack {limit['jensen_gap']:.2g} a block less"
    return f"{words} [{limit['strength']}]"


def _measured(found: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, key in (("ratio", "gradient_ratio"), ("growth", "growth")):
        low, high = found[key]["ci"]
        yield (
            f"{name}, measured",
            f"{found[key]['mean']:.4g} [{low:.4g}, {high:.4g}], {found['seeds']} stacks of width "
            f"{found['width']}",
        )
    yield "", f"the law is {'inside' if found['ok'] else 'outside'} these intervals"


def _scales(row: Mapping[str, Any]) -> Iterator[str]:
    target, bound = row["target"], row["bound"]
    told = {
        "gradient": f"to hold the gradient ratio between 1/{target:g} and {target:g}:",
        "update": f"to hold the update amplification at {bound:g} or below:",
    }
    for condition, words in told.items():
        edges = [edge for edge in row["edges"] if edge["condition"] == condition]
        if not edges:
            continue
        if all(edge["verdict"] == "holds" for edge in edges):
            yield f"{words} nothing to do"
            continue
        yield words
        yield from _columns([(edge["knob"], _edge_text(edge)) for edge in edges])


def _edge_text(edge: Mapping[str, Any]) -> str:
    if edge["verdict"] != "scale":
        return {"no effect": "no effect, whatever its scale", "out of reach": "out of reach"}.get(
            edge["verdict"], edge["verdict"]
        )
    parts = [f"times {edge['scale']:.4g}"]
    if edge["formula"] is not None and len(edge["formula"]) <= LONG:
        parts.append(f"= {edge['formula']}")
    if edge["power"] is not None:
        parts.append(f"~ L^{round(edge['power'], 2) + 0.0:.2f}")
    return f"{' '.join(parts)} [{edge['strength']}]"


def ranking_cells(rows: Sequence[Mapping[str, Any]]) -> tuple[Sequence[str], list[list[str]]]:
    """Return header and cells of a table of several placements, those without a law left out."""
    cells = []
    for row in rows:
        if row["refused"] is not None:
            continue
        spread, limit = row["gradient"]["spread"], row["limit"]
        amplified = row["update"]["amplification"]
        cells.append(
            [
                row["placement"],
                f"{row['gradient']['ratio']:.4g}",
                "" if spread is None else f"{spread['low']:.3g} to {spread['high']:.3g}",
                f"{row['growth']['ratio']:.4g}",
                "" if amplified is None else f"{amplified:.4g}",
                limit["kind"]
                if limit["power"] is None
                else f"{limit['kind']} {limit['power']:.3g}",
            ]
        )
    return RANKING, cells
