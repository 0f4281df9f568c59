"""How sums and products print: factored, with their scalars in front, transposes as primes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sympy as sp

from derive.calculus.let import ScalarLet
from derive.calculus.tensor import Product, Sum, Transposed, is_scalar, split_coefficient

__all__ = ["atom_text", "grouped_latex", "product_latex", "product_text", "sum_latex", "sum_text"]


def _is_group(expr: sp.Basic) -> bool:
    from derive.calculus.tokens import IndexSum

    return isinstance(expr, Sum | Product | IndexSum)


def atom_text(expr: sp.Basic, printer: Any) -> str:
    """Text of a factor, in parentheses where it is a sum or a product."""
    body = printer._print(expr)
    return f"({body})" if _is_group(expr) else body


def grouped_latex(expr: sp.Basic, printer: Any) -> str:
    """LaTeX of an operand of a superscript: grouped where it is composite or has one already."""
    body = printer._print(expr)
    if _is_group(expr) or "^" in body:
        return rf"\left({body}\right)"
    return body


def _scalar_text(expr: sp.Expr, printer: Any) -> str:
    body = printer._print(expr)
    root = expr.is_Pow and expr.exp == sp.Rational(1, 2)
    atomic = root or expr.is_Atom or isinstance(expr, ScalarLet | sp.Function) or body.replace("_", "").isalnum()
    return body if atomic else f"({body})"


def _scalar_latex(expr: sp.Expr, printer: Any) -> str:
    body = printer._print(expr)
    return rf"\left({body}\right)" if expr.is_Add or expr.is_negative else body


def _factors_text(factors: tuple[sp.Basic, ...], printer: Any) -> str:
    parts: list[str] = []
    previous: sp.Basic | None = None
    for factor in factors:
        if is_scalar(factor):
            text = _scalar_text(factor, printer)
        elif factor.is_Identity:
            text = "I"
        elif isinstance(factor, Transposed):
            text = printer._print(factor)
        else:
            text = atom_text(factor, printer)
        outer = (
            isinstance(factor, Transposed)
            and previous is not None
            and not is_scalar(previous)
            and previous.shape[1] == 1
            and not _is_group(previous)
        )
        glue = "" if text == "1'" and outer else " "
        parts.append(glue + text if parts else text)
        previous = factor
    return "".join(parts)


def _factors_latex(factors: tuple[sp.Basic, ...], printer: Any) -> str:
    parts = []
    for factor in factors:
        if is_scalar(factor):
            parts.append(_scalar_latex(factor, printer))
        elif factor.is_Identity:
            parts.append("I")
        elif isinstance(factor, Transposed):
            parts.append(printer._print(factor))
        elif isinstance(factor, Sum):
            parts.append(rf"\left({printer._print(factor)}\right)")
        elif _is_group(factor):
            parts.append(rf"\Bigl({printer._print(factor)}\Bigr)" if len(factors) > 1 else printer._print(factor))
        else:
            parts.append(printer._print(factor))
    return r" \, ".join(parts)


def product_text(expr: Product, printer: Any) -> str:
    """Text of a product: ``(1/s) diag(gain) (I - 11'/d)``."""
    head, rest = split_coefficient(expr)
    if head == -1:
        return "-" + _term_text(sp.S.One, rest, printer)
    return _factors_text(expr.args, printer)


def product_latex(expr: Product, printer: Any) -> str:
    """LaTeX of a product."""
    head, rest = split_coefficient(expr)
    if head == -1:
        return "- " + _term_latex(sp.S.One, rest, printer)
    return _factors_latex(expr.args, printer)


def _term_text(coefficient: sp.Expr, word: sp.Basic, printer: Any) -> str:
    factors = word.args if isinstance(word, Product) else (word,)
    body = _factors_text(factors, printer)
    numerator, denominator = coefficient.as_numer_denom()
    if numerator != 1:
        body = f"{_scalar_text(numerator, printer)} {body}"
    if denominator != 1:
        body = f"{body}/{_scalar_text(denominator, printer)}"
    return body


def _term_latex(coefficient: sp.Expr, word: sp.Basic, printer: Any) -> str:
    factors = word.args if isinstance(word, Product) else (word,)
    body = _factors_latex(factors, printer)
    return body if coefficient == 1 else rf"{_scalar_latex(coefficient, printer)} \, {body}"


def _signed(
    expr: Sum, printer: Any, render: Callable[[sp.Expr, sp.Basic, Any], str]
) -> str:
    out = ""
    for k, term in enumerate(expr.args):
        coefficient, word = split_coefficient(term)
        negative = coefficient.could_extract_minus_sign()
        body = render(-coefficient if negative else coefficient, word, printer)
        if k == 0:
            out = f"-{body}" if negative else body
        else:
            out += f" - {body}" if negative else f" + {body}"
    return out


def sum_text(expr: Sum, printer: Any) -> str:
    """Text of a sum: ``I - 11'/d - xhat xhat'/d``."""
    return _signed(expr, printer, _term_text)


def sum_latex(expr: Sum, printer: Any) -> str:
    """LaTeX of a sum."""
    return _signed(expr, printer, _term_latex)
