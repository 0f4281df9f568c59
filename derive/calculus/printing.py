r"""How expressions print: factored, scalars in front, transposes as primes (text) or ``\top``.

`Text` and `Latex` are SymPy printers with the conventions of matrix calculus for scalars too: a
fraction stands in front, differentials and inner products stand last. The nodes print through
them, so that ``str``, ``sympy.latex`` and the renderers agree.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import sympy as sp
from sympy.printing.latex import LatexPrinter
from sympy.printing.str import StrPrinter

from derive.calculus.let import Let, ScalarLet, indexed_latex
from derive.calculus.tensor import (
    Product,
    Sum,
    Tensor,
    Transposed,
    is_scalar,
    product,
    split_coefficient,
)

__all__ = [
    "Latex",
    "Text",
    "call_latex",
    "grouped_latex",
    "latex",
    "product_latex",
    "product_text",
    "sum_latex",
    "sum_text",
    "text",
    "transposed_latex",
    "transposed_text",
]


@lru_cache(maxsize=4096)
def latex(expr: sp.Basic) -> str:
    """Return the LaTeX of an expression, without a math delimiter."""
    return str(Latex().doprint(expr))


@lru_cache(maxsize=4096)
def text(expr: sp.Basic) -> str:
    """Return the text of an expression."""
    return str(Text().doprint(expr))


class Latex(LatexPrinter):
    """SymPy's LaTeX printer with the scalars of matrix calculus."""

    groups_powers = True

    def _print_Mul(self, expr: sp.Mul) -> str:
        negative, expr = _without_sign(expr)
        return "-" * negative + _scalar_product_latex(expr, self)

    def _print_Add(self, expr: sp.Add, order: Any = None) -> str:
        return _signed(_ordered(expr.args), self, _scalar_product_latex)

    def _print_Pow(self, expr: sp.Pow) -> str:
        base, exponent = expr.args
        if exponent == sp.S.Half:
            return rf"\sqrt{{{self._print(base)}}}"
        if exponent.is_Rational and exponent.is_negative:
            return rf"\frac{{1}}{{{self._print(base**-exponent)}}}"
        if exponent.is_Integer and isinstance(base, ScalarLet):
            body = self._print(base)
            return (_group_latex(body) if "^" in body else body) + f"^{{{exponent}}}"
        return str(super()._print_Pow(expr))

    def _print_ExpBase(self, expr: sp.exp, exp: Any = None) -> str:
        body = r"\exp" + _group_latex(self._print(expr.args[0]))
        return body if exp is None else _group_latex(body) + f"^{{{exp}}}"

    def _print_Function(self, expr: sp.Function, exp: Any = None) -> str:
        name = type(expr).__name__
        head = f"\\{name}" if name in ("tanh", "sin", "cos") else rf"\operatorname{{{name}}}"
        head += "" if exp is None else f"^{{{exp}}}"
        return head + _group_latex(", ".join(map(self._print, expr.args)))

    def _print_KroneckerDelta(self, expr: sp.KroneckerDelta, exp: Any = None) -> str:
        body = rf"\delta_{{{_subscript(self._print(i) for i in expr.args)}}}"
        return body if exp is None else f"{body}^{{{exp}}}"

    def _print_Indexed(self, expr: sp.Indexed) -> str:
        return indexed_latex(str(expr.base), expr.indices)

    def _print_Identity(self, expr: sp.Identity) -> str:
        return "I"


class Text(StrPrinter):
    """SymPy's text printer with the scalars of matrix calculus."""

    def _print(self, expr: sp.Basic, **kwargs: Any) -> str:
        if isinstance(expr, sp.Indexed):  # prints itself, with a space after each comma
            return f"{self._print(expr.base)}[{','.join(map(self._print, expr.indices))}]"
        return str(super()._print(expr, **kwargs))

    def _print_Mul(self, expr: sp.Mul) -> str:
        negative, expr = _without_sign(expr)
        return "-" * negative + _scalar_product_text(expr, self)

    def _print_Add(self, expr: sp.Add, order: Any = None) -> str:
        return _signed(_ordered(expr.args), self, _scalar_product_text)

    def _print_Pow(self, expr: sp.Pow, rational: bool = False) -> str:
        base, exponent = expr.args
        if exponent == sp.S.Half:
            return f"sqrt({self._print(base)})"
        if exponent.is_Rational and exponent.is_negative:
            return _scalar_product_text(expr, self)
        return f"{_scalar_text(base, self)}^{_scalar_text(exponent, self)}"

    def _print_Piecewise(self, expr: sp.Piecewise) -> str:
        return ", ".join(
            f"{self._print(value)} " + ("otherwise" if condition == True else f"if {condition}")  # noqa: E712
            for value, condition in expr.args
        )

    def _print_KroneckerDelta(self, expr: sp.KroneckerDelta) -> str:
        return f"delta[{','.join(self._print(i) for i in expr.args)}]"

    def _print_Identity(self, expr: sp.Identity) -> str:
        return "I"


def _latex_printer(printer: Any) -> Latex:
    return printer if isinstance(printer, Latex) else Latex(_settings(printer, Latex))


def _text_printer(printer: Any) -> Text:
    return printer if isinstance(printer, Text) else Text(_settings(printer, Text))


def _settings(printer: Any, kind: type[Latex] | type[Text]) -> dict[str, Any]:
    known = kind._get_initial_settings()
    return {k: v for k, v in printer._settings.items() if k in known}


def _subscript(indices: Iterable[str]) -> str:
    parts = list(indices)
    return ("" if all(len(p) == 1 and p.isalpha() for p in parts) else ",").join(parts)


def _is_index_sum(expr: sp.Basic) -> bool:
    from derive.calculus.tokens import IndexSum, ScalarIndexSum

    return isinstance(expr, IndexSum | ScalarIndexSum)


def _is_group(expr: sp.Basic) -> bool:
    return isinstance(expr, Sum | Product | sp.Add) or _is_index_sum(expr)


def _is_differential(expr: sp.Basic) -> bool:
    return type(expr).__name__ in ("Differential", "ScalarDifferential")


# --- signs and the order of terms ------------------------------------------------------------


def _without_sign(expr: sp.Basic) -> tuple[bool, sp.Basic]:
    """Whether a minus sign stands in front, and the expression without it."""
    if _is_index_sum(expr):
        negative, summand = _without_sign(expr.args[0])
        return negative, expr.func(summand, *expr.args[1:]) if negative else expr
    if isinstance(expr, Product):
        coefficient, word = split_coefficient(expr)
        if coefficient.could_extract_minus_sign() and not coefficient.is_Add:
            return True, product([-coefficient, word])
        if _is_index_sum(word):
            negative, word = _without_sign(word)
            return negative, product([coefficient, word]) if negative else expr
        return False, expr
    if isinstance(expr, Tensor) or not is_scalar(expr) or expr.is_Add:
        return False, expr
    if expr.is_Mul:
        flipped = [_without_sign(a) for a in expr.args]
        negative = sum(n for n, _ in flipped) % 2 == 1
        return negative, sp.Mul(*(a for _, a in flipped))
    negative = bool(expr.is_Number and expr.is_negative)
    return negative, -expr if negative else expr


def _ordered(terms: Iterable[sp.Basic]) -> list[sp.Basic]:
    """Scalar terms: positive ones first, eps last."""

    def key(term: sp.Basic) -> tuple[Any, ...]:
        return (_without_sign(term)[0], str(term) == "eps", not term.is_Number, _degree(term))

    return sorted(sorted(terms, key=sp.default_sort_key), key=key)


def _degree(term: sp.Basic) -> int:
    found = [p.exp for p in term.atoms(sp.Pow) if p.base.is_Symbol and p.exp.is_Integer]
    return int(max([1 if term.free_symbols else 0, *found]))


def _signed(terms: Iterable[sp.Basic], printer: Any, render: Any) -> str:
    out = ""
    for term in terms:
        negative, term = _without_sign(term)
        body = render(term, printer)
        if not out:
            out = f"-{body}" if negative else body
        else:
            out += f" - {body}" if negative else f" + {body}"
    return out


# --- scalars ---------------------------------------------------------------------------------


def _stands_behind(factor: sp.Basic) -> bool:
    from derive.calculus.atoms import Inner

    function = factor.is_Function and not isinstance(factor, sp.KroneckerDelta)
    node = isinstance(factor, Inner | sp.Add) or _is_differential(factor) or _is_index_sum(factor)
    return bool(node or function)


def _split_scalar(expr: sp.Basic) -> tuple[list[sp.Basic], list[sp.Basic], list[sp.Basic]]:
    """Numerator, denominator, and what stands behind the fraction."""
    from derive.calculus.atoms import Inner

    above: list[sp.Basic] = []
    below: list[sp.Basic] = []
    behind: list[sp.Basic] = []
    for factor in sp.Mul.make_args(expr):
        if factor.is_Rational:
            above += [sp.Integer(factor.p)] if factor.p != 1 else []
            below += [sp.Integer(factor.q)] if factor.q != 1 else []
        elif factor.is_Pow and factor.exp.is_Rational and factor.exp.is_negative:
            below.append(factor.base**-factor.exp)
        elif _stands_behind(factor):
            behind.append(factor)
        else:
            above.append(factor)
    for side in (above, below):
        side.sort(key=lambda f: (not f.is_Number, bool(f.is_Add), f.is_Pow, str(f)))
    behind.sort(
        key=lambda f: (
            _is_differential(f),
            _is_index_sum(f),
            isinstance(f, Inner),
            not f.is_Add,
            str(f),
        )
    )
    return above, below, behind


def _factor_latex(factor: sp.Basic, printer: Any, last: bool) -> str:
    body = printer._print(factor)
    bare = last and _is_index_sum(factor)
    return _group_latex(body) if _is_group(factor) and not bare else body


def _scalar_product_latex(expr: sp.Basic, printer: Any) -> str:
    above, below, behind = _split_scalar(expr)
    if not below and len(above) + len(behind) < 2:
        return str(printer._print((above + behind or [sp.S.One])[0]))
    lone = not behind and len(above) == 1 and bool(below)
    head = _juxtaposed(
        [printer._print(f) if lone else _factor_latex(f, printer, False) for f in above]
    )
    if below:
        single = len(below) == 1
        base = _juxtaposed(
            [printer._print(f) if single else _factor_latex(f, printer, False) for f in below]
        )
        head = rf"\frac{{{head or 1}}}{{{base}}}"
    tail = [_factor_latex(f, printer, k == len(behind) - 1) for k, f in enumerate(behind)]
    return _juxtaposed([head, *tail] if head else tail)


def _scalar_text(expr: sp.Basic, printer: Any) -> str:
    body = printer._print(expr)
    atomic = (
        (expr.is_Atom and "/" not in body)
        or isinstance(expr, ScalarLet | sp.Function | sp.Indexed)
        or (expr.is_Pow and (expr.exp == sp.S.Half or (expr.exp.is_Integer and expr.exp > 0)))
        or _is_differential(expr)
        or body.replace("_", "").isalnum()
    )
    return body if atomic and not body.startswith("-") else f"({body})"


def _scalar_product_text(expr: sp.Basic, printer: Any) -> str:
    above, below, behind = _split_scalar(expr)
    if not below and len(above) + len(behind) < 2:
        return str(printer._print((above + behind or [sp.S.One])[0]))
    head = " ".join(_power_text(f, printer) for f in above)
    base = " ".join(_power_text(f, printer) for f in below)
    tail = []
    for k, factor in enumerate(behind):
        body = printer._print(factor)
        bare = not _is_group(factor) or (k == len(behind) - 1 and _is_index_sum(factor))
        tail.append(body if bare else f"({body})")
    if not below:
        return " ".join([head, *tail] if head else tail)
    base = f"({base})" if len(below) > 1 else base
    if not behind:
        return f"{head or 1}/{base}"
    if not head and not _is_index_sum(behind[-1]):
        return f"{' '.join(tail)}/{base}"
    return f"({head or 1}/{base}) {' '.join(tail)}"


def _power_text(factor: sp.Basic, printer: Any) -> str:
    body = printer._print(factor)
    return f"({body})" if _is_group(factor) else body


# --- words of matrices -----------------------------------------------------------------------


def _size(body: str) -> str:
    r"""Delimiter size around a body: ``\bigl`` around small fractions, one more around that."""
    if r"\biggl" in body:
        return "Bigg"
    if r"\Bigl" in body:
        return "bigg"
    if r"\bigl" in body or r"\sum" in body or r"\dfrac" in body:
        return "Big"
    return "big" if re.search(r"\\tfrac|\\sqrt|\^\{[^{}]*\(|\(.*\(", body) else ""


def _group_latex(body: str) -> str:
    """Body in parentheses of a fitting size, that a line may break inside of."""
    body = re.sub(r"\\frac(?=[^A-Za-z])", r"\\tfrac", body)
    size = _size(body)
    return rf"\{size}l({body}\{size}r)" if size else f"({body})"


def call_latex(name: str, argument: str) -> str:
    """LaTeX of a function applied to an argument."""
    return name + _group_latex(argument)


def _juxtaposed(parts: list[str]) -> str:
    """Factors side by side, with a thin space where they would run into each other."""
    out = ""
    for part in parts:
        if out:
            upright = part.startswith((r"\mathrm{d}", r"\mathrm{D}"))
            meeting = out.endswith(")") and part.startswith(("(", r"\big", r"\Big", r"\frac"))
            out += r"\," if upright or meeting else " "
        out += part
    return out


def _word_latex(factors: tuple[sp.Basic, ...], printer: Any) -> str:
    parts = []
    for k, factor in enumerate(factors):
        last = k == len(factors) - 1
        if is_scalar(factor):
            negative, positive = _without_sign(factor)
            bare = not _is_group(factor) and not (negative and k)
            body = "-" * negative + _scalar_product_latex(positive, printer)
            parts.append(body if bare else _group_latex(body))
        elif _is_index_sum(factor) and last:
            parts.append(printer._print(factor))
        elif _is_group(factor):
            parts.append(_group_latex(printer._print(factor)))
        else:
            parts.append(printer._print(factor))
    return _juxtaposed(parts)


def _word_text(factors: tuple[sp.Basic, ...], printer: Any) -> str:
    from derive.calculus.atoms import Inner

    parts: list[str] = []
    previous: sp.Basic | None = None
    for factor in factors:
        body = printer._print(factor)
        if is_scalar(factor):
            plain = isinstance(factor, Inner) or (factor.is_Mul and not set("/-+") & set(body))
            body = body if plain else _scalar_text(factor, printer)
        elif not isinstance(factor, Transposed) and _is_group(factor):
            body = f"({body})"
        column = previous is not None and not is_scalar(previous) and previous.shape[1] == 1
        touching = column and body == "1'" and not _is_group(previous)
        parts.append(body if touching or not parts else " " + body)
        previous = factor
    return "".join(parts)


def product_text(expr: Product, printer: Any) -> str:
    """Text of a product: ``(1/s) diag(gain) (I - 11'/d)``."""
    return _signed_word(expr, _text_printer(printer), _term_text)


def product_latex(expr: Product, printer: Any) -> str:
    """LaTeX of a product."""
    return _signed_word(expr, _latex_printer(printer), _term_latex)


def _signed_word(expr: sp.Basic, printer: Any, render: Any) -> str:
    negative, expr = _without_sign(expr)
    return "-" * negative + render(expr, printer)


def _factors(word: sp.Basic) -> tuple[sp.Basic, ...]:
    return word.args if isinstance(word, Product) else (word,)


def _term_text(term: sp.Basic, printer: Any) -> str:
    coefficient, word = split_coefficient(term)
    factors = _factors(word)
    body = _word_text(factors, printer)
    if coefficient == 1:
        return body
    numerator, denominator = coefficient.as_numer_denom()
    if all(_is_thin(f) for f in factors) and not numerator.is_Add:
        body = body if numerator == 1 else f"{_scalar_text(numerator, printer)} {body}"
        return body if denominator == 1 else f"{body}/{_scalar_text(denominator, printer)}"
    return f"{_scalar_text(coefficient, printer)} {body}"


def _is_thin(factor: sp.Basic) -> bool:
    """Whether a factor is a vector or a scalar, so that a divisor may follow it."""
    return not _is_group(factor) and (is_scalar(factor) or 1 in factor.shape)


def _term_latex(term: sp.Basic, printer: Any) -> str:
    return _word_latex(_factors(term), printer)


def sum_text(expr: Sum, printer: Any) -> str:
    """Text of a sum: ``I - 11'/d - xhat xhat'/d``."""
    return _signed(expr.args, _text_printer(printer), _term_text)


def sum_latex(expr: Sum, printer: Any) -> str:
    """LaTeX of a sum."""
    return _signed(expr.args, _latex_printer(printer), _term_latex)


def index_sum_latex(expr: Any, printer: Any) -> str:
    r"""LaTeX of a sum over an index: ``\sum_{j} P_{ij} v_{j}``."""
    printer = _latex_printer(printer)
    negative, expr = _without_sign(_distinct_bounds(expr))
    inner = printer._print(expr.summand)
    inner = _group_latex(inner) if isinstance(expr.summand, Sum | sp.Add) else inner
    return "-" * negative + rf"\sum_{{{printer._print(expr.index)}}} {inner}"


def index_sum_text(expr: Any, printer: Any) -> str:
    """Text of a sum over an index: ``sum_j P[i,j] v[j]``."""
    printer = _text_printer(printer)
    negative, expr = _without_sign(_distinct_bounds(expr))
    inner = printer._print(expr.summand)
    inner = f"({inner})" if isinstance(expr.summand, Sum | sp.Add) else inner
    return "-" * negative + f"sum_{expr.index} {inner}"


def _distinct_bounds(expr: Any) -> Any:
    """Return a sum in which no inner sum is bound to the same index."""
    from derive.calculus.tokens import family

    bound = expr.index
    taken = expr.summand.free_symbols | {bound}

    def renamed(node: Any) -> Any:
        if _is_index_sum(node) and node.index == bound:
            inner_first = (*family(bound)[2:], *family(bound)[:2])
            fresh = next((t for t in inner_first if t not in taken), bound)
            return node.func(node.summand.xreplace({bound: fresh}), fresh, node.size)
        if not node.args or isinstance(node, Let | ScalarLet):
            return node
        args = [renamed(a) for a in node.args]
        same = all(a is b for a, b in zip(args, node.args, strict=True))
        return node if same else node.func(*args)

    return expr.func(renamed(expr.summand), bound, expr.size)


def grouped_latex(expr: sp.Basic, printer: Any) -> str:
    """LaTeX of an operand of a superscript: grouped where it is composite or has one already."""
    body = _latex_printer(printer)._print(expr)
    return _group_latex(body) if _is_group(expr) or "^" in body else body


def transposed_latex(expr: sp.Basic, printer: Any) -> str:
    r"""LaTeX of a transpose; a head index shares its superscript: ``q^{(h)\top}_{i}``."""
    body = _latex_printer(printer)._print(expr)
    shared = re.fullmatch(r"([^^]*)\^\{(\((?:[^{}]|\{[^{}]*\})*\))\}((?:_\{.*\})?)", body)
    if shared and not _is_group(expr):
        return rf"{shared[1]}^{{{shared[2]}\top}}{shared[3]}"
    return grouped_latex(expr, printer) + r"^{\top}"


def differential_latex(of: sp.Basic, printer: Any) -> str:
    r"""LaTeX of a differential: ``\mathrm{d}x``."""
    body = _latex_printer(printer)._print(of)
    body = _group_latex(body) if _is_group(of) else body
    return r"\mathrm{d}" + (r"\," if body.startswith(r"\mathrm") else "") + body


def transposed_text(expr: sp.Basic, printer: Any) -> str:
    """Text of a transpose: ``x'``."""
    body = _text_printer(printer)._print(expr)
    return f"({body})'" if _is_group(expr) else f"{body}'"


def inner_text(left: sp.Basic, right: sp.Basic, printer: Any) -> str:
    """Text of an inner product: ``u' v``, or ``|u|^2``."""
    printer = _text_printer(printer)
    if left == right:
        return f"|{printer._print(left)}|^2"
    return f"{transposed_text(left, printer)} {_word_text(_factors(right), printer)}"


def inner_latex(left: sp.Basic, right: sp.Basic, printer: Any) -> str:
    r"""LaTeX of an inner product: ``u^{\top} v``, or the squared norm."""
    printer = _latex_printer(printer)
    if left == right:
        return rf"\lVert {printer._print(left)} \rVert^{{2}}"
    return _juxtaposed([transposed_latex(left, printer), _word_latex(_factors(right), printer)])
