r"""What a derivation assumes: layout, eps, gain, bias, masks, activations. Said in full, once.

An assumption is written once, with its formulas in ``$...$`` twice over: as text and as LaTeX.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import sympy as sp

from derive.calculus.atoms import State
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
        for part in mapping.args:
            if isinstance(part, Activation) and not part.is_abstract:
                found[part] = None
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
    say = _Sentences(mapping)
    if mapping.family == "norm":
        yield from _of_norm(mapping, say)
    elif mapping.family == "ffn":
        yield say("@ acts on each token alone, " + _biases(mapping))
        yield from _of_activation(mapping.activation, say)
    elif mapping.family == "attention":
        yield from _of_attention(mapping, say)
    elif mapping.family == "moe":
        yield say("@ acts on each token alone; the selection of experts is constant: no two tie")
        yield from _of_activation(mapping.activation, say)
    elif mapping.is_abstract:
        alone = "mixes tokens" if mapping.mixes_tokens else "acts on each token alone"
        name = latex_name(mapping.name)
        yield say(
            f"@ is differentiable and {alone}; its Jacobian is #",
            f"D{mapping.name}",
            rf"\mathrm{{D}}{name}",
        )


class _Sentences:
    """Sentences about a map: ``@`` stands for its name and ``#`` for a formula."""

    def __init__(self, mapping: Map) -> None:
        self.name, self.symbol = mapping.name, f"${latex_name(mapping.name)}$"

    def __call__(self, words: str, formula: str = "", formula_latex: str = "") -> Assumption:
        return Assumption(
            words.replace("@", self.name).replace("#", formula),
            words.replace("@", self.symbol).replace("#", f"${formula_latex}$"),
        )


_NORMS = {
    "LayerNorm": ("@ is LayerNorm with the biased variance (divisor #)", "d", "d"),
    "RMSNorm": ("@ is RMSNorm: no mean is subtracted", "", ""),
    "L2Norm": ("@ divides by the length of its argument", "", ""),
    "ScaleNorm": ("@ divides by the length of its argument and has one scalar gain", "", ""),
    "GroupNorm": ("@ is LayerNorm of each group of features", "", ""),
    "BatchNorm": ("@ is batch normalisation with constant statistics", "", ""),
    "DynamicTanh": ("@ acts on each entry and is no normalisation", "", ""),
}


def _of_norm(mapping: Any, say: _Sentences) -> Iterator[Assumption]:
    kind = type(mapping).__name__
    yield say(*_NORMS.get(kind, (f"@ is {kind}", "", "")))
    eps = mapping.eps
    if not _uses_eps(mapping):
        pass
    elif eps == 0:
        yield say("@ has #, so its divisor must not be zero", "eps = 0", r"\epsilon = 0")
    elif eps.is_number:
        value = eps if eps.is_Integer else sp.Float(eps, 3)
        yield say("@ has #, kept", f"eps = {float(eps):g}", rf"\epsilon = {latex(value)}")
    else:
        constant = f"{text(eps)} > 0", f"{latex(eps)} > 0"
        yield say("@ keeps its constant: exact for every #", *constant)
    if kind != "ScaleNorm":
        kept = {"gain": mapping.has_gain, "bias": mapping.has_bias}
        parts = [f"{k} kept" if v else f"no {k}" for k, v in kept.items()]
        drop = " (a bias does not enter the Jacobian)" if mapping.has_bias else ""
        yield say(f"@: {', '.join(parts)}{drop}")


def _uses_eps(mapping: Any) -> bool:
    """Whether the constant of a norm occurs in its body."""
    probe = sp.Symbol("eps_probe", positive=True)
    label, _, *rest = mapping.args
    body = mapping.func(label, probe, *rest).body(State("u", sp.Symbol("width", positive=True)))
    return any(probe in e.free_symbols for e in (body.output, *(v.definition for v in body.lets)))


def _biases(mapping: Any) -> str:
    return "with biases" if mapping.has_bias else "without biases"


def _of_activation(activation: Activation, say: _Sentences) -> Iterator[Assumption]:
    if activation.is_abstract:
        name = activation.text(0), activation.latex(0)
        yield say("# is any differentiable function of each entry", *name)
    elif activation.name == "relu":
        yield say("# at the corner", "relu'(0) = 0", r"\operatorname{relu}'(0) = 0")


def _of_attention(mapping: Any, say: _Sentences) -> Iterator[Assumption]:
    kind = "self-attention" if mapping.mixes_tokens else "attention to a constant memory"
    yield say(f"@ is multi-head {kind}, {_biases(mapping)}")
    if mapping.causal:
        mask = (
            "m[i,j] = 1 for j <= i, otherwise 0",
            r"m_{ij} = 1 \text{ for } j \le i, \text{ else } 0",
        )
        yield say("causal mask: #", *mask)
    elif mapping.masked:
        yield say("# is a given mask of zeros and ones", "m[i,j]", "m_{ij}")
    if mapping.rotary:
        turns = "the rotation # turns queries and keys by their position; it is orthogonal"
        yield say(turns, "R[i]", "R_{i}")
