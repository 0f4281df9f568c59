r"""What HTML pages share: the template environment, formulas as MathML, sentences with formulas."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from derive.render.extras import load
from derive.render.mathml import to_mathml

__all__ = ["aligned_math", "environment", "inline_math", "lines_math", "mixed"]


@lru_cache(maxsize=1)
def environment() -> Any:
    """Return the environment of the templates; everything that is put in is escaped."""
    jinja2 = load("jinja2", "report")
    return jinja2.Environment(
        loader=jinja2.PackageLoader("derive.render", "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )


@lru_cache(maxsize=4096)
def inline_math(formula: str, display: bool = False) -> Any:
    """Return a formula as MathML, within a line or on one of its own."""
    return load("markupsafe", "report").Markup(to_mathml(formula, display))


def aligned_math(pairs: Iterable[tuple[str, str]]) -> Any:
    """Return equations below each other, aligned at their signs."""
    return lines_math(f"{left} &= {right}" for left, right in pairs)


def lines_math(rows: Iterable[str]) -> Any:
    """Return rows of an alignment."""
    joined = r" \\ ".join(rows)
    return inline_math(rf"\begin{{align*}}{joined}\end{{align*}}", True)


def mixed(sentence: str) -> list[tuple[str, Any]]:
    """Return plain words, each followed by a formula, from a sentence with ``$...$`` in it."""
    parts = sentence.split("$")
    parts += [""] if len(parts) % 2 else []
    pairs = zip(parts[::2], parts[1::2], strict=True)
    return [(words, inline_math(formula) if formula else "") for words, formula in pairs]
