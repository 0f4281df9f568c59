r"""What a derivation assumes: layout, eps, gain, bias, masks, activations. Said in full, once.

An assumption is written once, with its formulas in ``$...$`` twice over: as text and as LaTeX.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import sympy as sp

from derive.blocks.attention import Attention
from derive.blocks.norms import LayerNorm, RMSNorm
from derive.blocks.sublayers import FFN, GatedFFN
from derive.calculus.derivation import Derivation
from derive.calculus.maps import Map
from derive.calculus.pointwise import Activation, normal_cdf, sigmoid
from derive.calculus.printing import latex, text
from derive.render.chains import output_of
from derive.symbols import latex_name

__all__ = ["Assumption", "activations", "assumptions"]


@dataclass(frozen=True)
class Assumption:
    """One assumption, as text and as LaTeX (formulas in ``$...$``)."""

    text: str
    latex: str


def assumptions(D: Derivation) -> tuple[Assumption, ...]:
    """Return what the Jacobian of a derivation assumes, in a fixed order."""
    found = list(_layout(D))
    for mapping in _maps(D):
        found += _of_map(mapping)
    if D.mixes_tokens:
        found.append(
            Assumption(
                "a quantity without token index is the same expression for every token; sums over "
                "j, k run over the n tokens, over h over the H heads",
                "a quantity without token index is the same expression for every token; sums over "
                "$j$, $k$ run over the $n$ tokens, over $h$ over the $H$ heads",
            )
        )
    return tuple(dict.fromkeys(found))


def activations(D: Derivation) -> tuple[tuple[str, str, sp.Basic], ...]:
    """Return the element-wise functions used: name as text, as LaTeX, and the formula in ``t``."""
    found: dict[Activation, None] = {}
    for mapping in _maps(D):
        if isinstance(mapping, FFN | GatedFFN) and not mapping.activation.is_abstract:
            found[mapping.activation] = None
    t = sp.Symbol("t", real=True)
    formulas = [(f"{a.text(0)}(t)", f"{a.latex(0)}(t)", a.derivative(0)(t)) for a in found]
    if any(formula.has(sigmoid) for *_, formula in formulas):
        formulas.append(("sigmoid(t)", r"\sigma(t)", sigmoid(t).rewrite(sp.exp)))
    if any(formula.has(normal_cdf) for *_, formula in formulas):
        formulas.append(("normal_cdf(t)", r"\Phi(t)", normal_cdf(t).rewrite(sp.erf)))
    return tuple((*names, _decimal(f)) for *names, f in formulas if names[0] != text(f))


def _decimal(formula: sp.Basic) -> sp.Basic:
    """Write fractions such as 8943/200000 as the decimals that they are."""
    long = {r: sp.Float(r, 8) for r in formula.atoms(sp.Rational) if r.q > 1000}
    return formula.xreplace({r: f for r, f in long.items() if sp.Rational(str(f)) == r})


def _maps(D: Derivation) -> list[Map]:
    maps = [e for e in sp.preorder_traversal(D.block) if isinstance(e, Map)]
    return list(dict.fromkeys(reversed(maps)))  # in the order in which they act


def _layout(D: Derivation) -> Iterator[Assumption]:
    y, x = output_of(D), D.state
    yield Assumption(
        f"columns, numerator layout: d{text(y)} = J d{text(x)}, J[a,b] = d{text(y)}_a/d{text(x)}_b",
        rf"columns, numerator layout: $\mathrm{{d}}{latex(y)} = J\,\mathrm{{d}}{latex(x)}$, "
        rf"$J_{{ab}} = \partial {latex(y)}_a / \partial {latex(x)}_b$",
    )


def _of_map(mapping: Map) -> Iterator[Assumption]:
    name, symbol = mapping.name, f"${latex_name(mapping.name)}$"

    def both(words: str, formula: str = "", formula_latex: str = "") -> Assumption:
        return Assumption(
            words.replace("@", name).replace("#", formula),
            words.replace("@", symbol).replace("#", formula_latex),
        )

    if isinstance(mapping, LayerNorm):
        yield both("@ is LayerNorm with the biased variance (divisor #)", "d", "$d$")
    if isinstance(mapping, RMSNorm):
        yield both("@ is RMSNorm: no mean is subtracted")
    if isinstance(mapping, LayerNorm | RMSNorm):
        eps = mapping.eps
        if eps == 0:
            yield both(
                "@ has #, so its argument must have a non-zero divisor",
                "eps = 0",
                r"$\epsilon = 0$",
            )
        elif eps.is_number:
            value = eps if eps.is_Integer else sp.Float(eps, 3)
            yield both("@ has #, kept", f"eps = {float(eps):g}", rf"$\epsilon = {latex(value)}$")
        else:
            yield both(
                "@ keeps its constant: exact for every #", f"{text(eps)} > 0", f"${latex(eps)} > 0$"
            )
        kept = {"gain": mapping.has_gain, "bias": mapping.has_bias}
        parts = [f"{k} kept" if v else f"no {k}" for k, v in kept.items()]
        drop = " (a bias does not enter the Jacobian)" if mapping.has_bias else ""
        yield both(f"@: {', '.join(parts)}{drop}")
    elif isinstance(mapping, FFN | GatedFFN):
        yield both(
            "@ acts on each token alone, " + ("with" if mapping.has_bias else "without") + " biases"
        )
        if mapping.activation.is_abstract:
            yield both(
                "# is any differentiable function of each entry",
                mapping.activation.text(0),
                f"${mapping.activation.latex(0)}$",
            )
        elif mapping.activation.name == "relu":
            yield both("# at the corner", "relu'(0) = 0", r"$\operatorname{relu}'(0) = 0$")
    elif isinstance(mapping, Attention):
        yield both(
            "@ is multi-head self-attention, "
            + ("with" if mapping.has_bias else "without")
            + " biases"
        )
        if mapping.causal:
            yield both(
                "causal mask: #",
                "m[i,j] = 1 for j <= i, otherwise 0",
                r"$m_{ij} = 1$ for $j \le i$, otherwise $0$",
            )
        elif mapping.masked:
            yield both("# is a given mask of zeros and ones", "m[i,j]", "$m_{ij}$")
        if mapping.rotary:
            yield both(
                "the rotation # turns queries and keys by their position; it is orthogonal",
                "R[i]",
                "$R_{i}$",
            )
    elif mapping.is_abstract:
        alone = "mixes tokens" if mapping.mixes_tokens else "acts on each token alone"
        yield both(
            f"@ is differentiable and {alone}; its Jacobian is #",
            f"D{name}",
            rf"$\mathrm{{D}}{latex_name(name)}$",
        )
