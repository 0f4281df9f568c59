"""A depth law as text and as LaTeX: the moments of its sublayers, its recursion, its solution."""

from __future__ import annotations

from collections.abc import Iterator

import sympy as sp

from derive.laws.law import DepthLaw
from derive.laws.modes import TokenSolution
from derive.render.latex import escaped
from derive.render.text import aligned_text
from derive.symbols import L, n

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
    for one in law.turns:
        yield f"blocks with {one.sublayers[0]}"
        yield from (f"  {line}" for line in _moments(one))
    yield from _moments(law)
    yield from _solved(law)


def _moments(law: DepthLaw) -> Iterator[str]:
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


def _solved(law: DepthLaw) -> Iterator[str]:
    if law.token_solution is not None:
        yield from _tokens(law.token_solution)
        return
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
    yield from _far(_limits(law))


def _tokens(solved: TokenSolution) -> Iterator[str]:
    yield f"solved: {solved.rule}"
    pairs = [("c_L/v_L", _shown(solved.correlation)), (RATIO, _shown(solved.gradient))]
    if solved.forward is not None:
        pairs.insert(0, ("v_L", _shown(solved.forward)))
    yield from aligned_text(pairs)
    yield "with A = (1 + (n - 1)*rho)/n, B = (1 + (n - 1)*r)/n, the shares of the mean over tokens"
    yield "     rho of two tokens of the input, r of the gradient at the output"
    yield from _far(solved.asymptotic)


def _limits(law: DepthLaw) -> tuple[sp.Expr | None, sp.Expr | None]:
    """Return the leading terms of a law that does not show them."""
    if law.solution is None:
        return None, None
    laws = (law.solution.forward, law.solution.gradient)
    plain = all(one is None or not one.has(sp.gamma, sp.harmonic, sp.Sum) for one in laws)
    return (None, None) if plain else law.solution.asymptotic


def _far(limits: tuple[sp.Expr | None, sp.Expr | None]) -> Iterator[str]:
    known = [
        f"{name} ~ {_shown(value)}"
        for name, value in zip(("v_L", RATIO), limits, strict=True)
        if value is not None
    ]
    if known:
        yield f"for large L: {', '.join(known)}"


def _share(correlation: str) -> sp.Expr:
    return (1 + (n - 1) * sp.Symbol(correlation)) / n


def _shown(expr: sp.Expr) -> str:
    """Return a long expression as dots."""
    text = str(sp.nsimplify(expr) if expr.is_Float and expr == int(expr) else expr)
    return text if len(text) <= LONG else f"... ({expr.count_ops()} operations)"


def _recursion_pairs(law: DepthLaw) -> list[tuple[str, sp.Expr]]:
    """Return the left and right sides of the recursion in LaTeX names."""
    if law.recursion is not None:
        return list(zip((r"\Phi_l(v)", "G_l(v)"), law.recursion, strict=True))
    if law.correlated is not None:
        names = ("v_l", "c_l", r"v_{g,l-1}", r"c_{g,l-1}")
        return list(zip(names, (*law.correlated[0], *law.correlated[1]), strict=True))
    return []


def law_latex(law: DepthLaw) -> str:
    r"""Return the recursion and its solution as an ``align*``.

    Where attention mixes tokens the recursion has the correlation c of tokens, and the gradient's
    :math:`v_g, c_g`, and the solution the shares A and B of the mean over tokens; what is evaluated
    block by block is a comment.
    """
    ratio = r"\frac{\mathbb{E}|g_{%s}|^2}{\mathbb{E}|g_{%s}|^2}"
    pairs: list[tuple[str, sp.Expr]] = []
    for one in law.turns:
        named = rf"\quad\text{{({escaped(one.sublayers[0])})}}"
        pairs += [(f"{name}{named}", value) for name, value in _recursion_pairs(one)]
    pairs += _recursion_pairs(law)
    if law.solution is not None:
        pairs.append((f"v_{L}", law.solution.forward))
        if law.solution.gradient is not None:
            pairs.append((ratio % ("0", str(L)), law.solution.gradient))
        pairs += [(sp.latex(symbol), value) for symbol, value in law.solution.where]
    solved, ends = law.token_solution, (f"v_{L}", ratio % ("0", str(L)))
    if solved is not None:
        laws = (solved.forward, solved.gradient)
        pairs += [(a, one) for a, one in zip(ends, laws, strict=True) if one is not None]
        pairs += [("A", _share("rho")), ("B", _share("r"))]
    limits = _limits(law) if solved is None else solved.asymptotic
    far = [(a, one) for a, one in zip(ends, limits, strict=True) if one is not None]
    if not pairs:
        return f"% {law.placement}: evaluated block by block: {law.open_state}"
    rows = [f"{name} &= {sp.latex(value.subs(sp.harmonic(L), HARMONIC))}" for name, value in pairs]
    rows += [f"{name} &\\sim {sp.latex(value)}" for name, value in far]
    return "\\begin{align*}\n" + " \\\\\n".join(rows) + "\n\\end{align*}"
