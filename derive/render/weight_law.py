"""The law of weight gradients as text and as LaTeX."""

from __future__ import annotations

import sympy as sp

from derive.laws.law import DepthLaw
from derive.laws.weight_law import weight_moments, weight_solution
from derive.render.law import LONG
from derive.render.text import aligned_text

__all__ = ["weight_law_latex", "weight_law_text"]


def weight_law_text(law: DepthLaw) -> str:
    """Return the gradients of the matrices of block l, in l and L or in moments of the block.

    Examples
    --------
    >>> print(weight_law_text(DepthLaw("pre", "rmsnorm")))
      |dL/dW_1|^2/|g_L|^2 = d*(L + 2)/(2*(l + 2))
      |dL/dW_2|^2/|g_L|^2 = 2*d*(L + 2)/(l + 2)
    """
    laws, where = _laws(law)
    if not laws:
        return "  weights: evaluated block by block"
    pairs = [(f"|dL/d{name}|^2/|g_L|^2", _short(value)) for name, value in laws.items()]
    told = law.solution.where if law.solution is not None else ()
    pairs += [(str(s), f"{e} = {float(e):.7g}") for s, e in where if (s, e) not in told]
    return "\n".join(f"  {line}" for line in aligned_text(pairs))


def _laws(law: DepthLaw) -> tuple[dict[str, sp.Expr], tuple[tuple[sp.Symbol, sp.Expr], ...]]:
    solved, where = weight_solution(law)
    return (solved, where) if solved else (weight_moments(law), ())


def _short(expr: sp.Expr) -> str:
    text = str(expr)
    return text if len(text) <= LONG else f"... ({expr.count_ops()} operations)"


def weight_law_latex(law: DepthLaw) -> str:
    r"""Return the gradients of the matrices as an ``align*``; a comment where there is no law.

    They are those of block l, in l and L, or in :math:`v, c` at its input and :math:`v_g, c_g` of
    the gradient at its output, relative to that at the output of the stack.
    """
    laws, where = _laws(law)
    if not laws:
        return f"% {law.placement}: weight gradients are evaluated block by block"
    ratio = r"\frac{\mathbb{E}\lVert\partial\mathcal{L}/\partial %s\rVert_F^2}{\mathbb{E}|g_L|^2}"
    pairs = [(ratio % _matrix(name), value) for name, value in laws.items()]
    pairs += [(sp.latex(symbol), value) for symbol, value in where]
    rows = [f"{name} &= {sp.latex(_with_sums_named(value))}" for name, value in pairs]
    return "\\begin{align*}\n" + " \\\\\n".join(rows) + "\n\\end{align*}"


def _with_sums_named(expr: sp.Expr) -> sp.Expr:
    """Return an expression with H_k for the harmonic numbers."""
    return expr.replace(sp.harmonic, lambda k: sp.Symbol(f"H_{k}"))


def _matrix(name: str) -> str:
    """Return a name such as W_down or W_Q_c as LaTeX."""
    stem, *parts = name.split("_")
    label = r",\,".join(p if len(p) == 1 else rf"\mathrm{{{p}}}" for p in parts)
    return f"{stem}_{{{label}}}"
