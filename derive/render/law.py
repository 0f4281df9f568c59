"""A depth law as text and as LaTeX: the moments of its sublayers, its recursion, its solution."""

from __future__ import annotations

from collections.abc import Iterator

import sympy as sp

from derive.laws.law import DepthLaw
from derive.render.text import aligned_text
from derive.symbols import L

__all__ = ["law_latex", "law_text"]

RATIO = "|g_0|^2/|g_L|^2"
HARMONIC = sp.Symbol("H_L")
LONG = 110
"""Characters of an expression above which text does not show it."""


def law_text(law: DepthLaw) -> str:
    """Return the moments of the sublayers, the recursion, and its solution with its rule.

    Examples
    --------
    >>> print(law_text(DepthLaw("pre", "rmsnorm")))
    pre, rmsnorm, ffn:relu, init lecun
      sublayer F: variance 1 -> 1/2
                  gradient v_g -> v_g/2
      v_l                 = v + 1/2
      |g_(l-1)|^2/|g_l|^2 = 1 + 1/(2*v)
      solved: every block adds its branch; b = a telescopes
      v_L             = L/2 + 1
      |g_0|^2/|g_L|^2 = L/2 + 1
    """
    init = law.init if isinstance(law.init, str) else law.init.name
    head = f"{law.placement}, {law.norm}, {','.join(law.sublayers)}, init {init}"
    lines = [head, *(f"  {line}" for line in _body(law))]
    return "\n".join(lines)


def _body(law: DepthLaw) -> Iterator[str]:
    for part in law.components:
        told = f"{_shown(part.input)} -> {_shown(part.output)}"
        yield f"sublayer {part.name}: variance {told}"
        yield f"{'gradient':>{len(part.name) + 19}} v_g -> {_shown(part.gradient)}"
    if law.recursion is not None:
        phi, gain = law.recursion
        yield from aligned_text([("v_l", _shown(phi)), ("|g_(l-1)|^2/|g_l|^2", _shown(gain))])
    elif law.correlated is not None:
        ahead, behind = law.correlated
        for name, value in zip(("v", "c", "v_g", "c_g"), (*ahead, *behind), strict=True):
            yield f"{name:<3} -> {_shown(value)}"
    if law.solution is None:
        why = law.open_state or "no rule solves it in L"
        yield f"evaluated block by block: {why}"
        return
    yield f"solved: {law.solution.rule}"
    gradient = law.solution.gradient
    shown = "no closed form; the product of the gains" if gradient is None else _shown(gradient)
    yield from aligned_text([("v_L", _shown(law.solution.forward)), (RATIO, shown)])
    for symbol, value in law.solution.where:
        yield f"with {symbol} = {_shown(value)} = {float(value):.7g}"


def _shown(expr: sp.Expr) -> str:
    """Return a long expression as dots."""
    text = str(sp.nsimplify(expr) if expr.is_Float and expr == int(expr) else expr)
    return text if len(text) <= LONG else f"... ({expr.count_ops()} operations)"


def law_latex(law: DepthLaw) -> str:
    r"""Return the recursion and its solution as an ``align*``.

    Where attention mixes tokens the recursion has the correlation c of tokens, and the gradient's
    :math:`v_g, c_g`; what is evaluated block by block is a comment.
    """
    ratio = r"\frac{\mathbb{E}|g_{%s}|^2}{\mathbb{E}|g_{%s}|^2}"
    pairs: list[tuple[str, sp.Expr]] = []
    if law.recursion is not None:
        pairs += zip((r"\Phi_l(v)", "G_l(v)"), law.recursion, strict=True)
    elif law.correlated is not None:
        names = ("v_l", "c_l", r"v_{g,l-1}", r"c_{g,l-1}")
        pairs += zip(names, (*law.correlated[0], *law.correlated[1]), strict=True)
    if law.solution is not None:
        pairs.append((f"v_{L}", law.solution.forward))
        if law.solution.gradient is not None:
            pairs.append((ratio % ("0", str(L)), law.solution.gradient))
        pairs += [(sp.latex(symbol), value) for symbol, value in law.solution.where]
    if not pairs:
        return f"% {law.placement}: evaluated block by block: {law.open_state}"
    rows = [f"{name} &= {sp.latex(value.subs(sp.harmonic(L), HARMONIC))}" for name, value in pairs]
    return "\\begin{align*}\n" + " \\\\\n".join(rows) + "\n\\end{align*}"
