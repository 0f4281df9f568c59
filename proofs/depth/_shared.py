r"""What the theorems on depth share: the law of any block for a branch of any two constants.

`general` composes the recursion of a block from its expression, as `derive.laws` does, for a branch
that multiplies the mean square of its input by f and that of a gradient by b. For weights that are
independent of all else that is every branch without biases at unit mean square, and a positively
homogeneous one at any.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import sympy as sp

from derive.calculus.atoms import State
from derive.calculus.maps import Apply
from derive.laws import DepthLaw, Moments
from derive.laws.initial import scheme
from derive.laws.meanfield import BlockMoments
from derive.laws.setting import Setting
from derive.laws.solve import tidy
from derive.proof import Assumption
from derive.symbols import L, d, l
from proofs.setting import block

__all__ = [
    "WIDE",
    "Recursion",
    "a",
    "b",
    "composed",
    "f",
    "general",
    "law",
    "ratio",
    "stream",
    "v",
]

v, f, b, a = sp.symbols("v f b a", positive=True)

WIDE = Assumption(
    "wide",
    "wide layers at initialisation: weights independent of each other and of the input, of mean "
    "zero; unit gains, no biases, $\\epsilon = 0$; moments to leading order in $1/d$",
)


class Recursion(NamedTuple):
    r"""One block in mean field, as functions of the mean square v at its input.

    Attributes
    ----------
    forward : expression
        Mean square at the output.
    gradient : expression
        Gain :math:`G = \mathbb E|g_{l-1}|^2/\mathbb E|g_l|^2`.
    skip : expression
        Its part that takes no branch.
    branch : expression
        Gain of the squared gradient from the block's output to the branch's output.
    signal : expression
        Mean square at the branch's input.
    """

    forward: sp.Expr
    gradient: sp.Expr
    skip: sp.Expr
    branch: sp.Expr
    signal: sp.Expr

    def at(self, value: Any, number: Any = l) -> Recursion:
        """Return the block of that number, at that mean square of its input."""
        return Recursion(*(sp.sympify(e).subs({v: value, l: number}) for e in self))


NONE = Moments(sp.S.Zero, sp.S.Zero)
ONE = Moments(sp.S.One, sp.S.Zero)


@lru_cache(maxsize=64)
def _general(placement: str, norm: str, values: tuple[tuple[str, Any], ...]) -> Recursion:
    whole_law: Any = DepthLaw(placement, norm, values=dict(values))
    given = whole_law.scalars_of(l, L)
    scalars = {k: sp.nsimplify(s, rational=True) for k, s in given.items()}
    whole = block(placement, norm, "abstract")
    (branch,) = {
        e
        for e in sp.preorder_traversal(whole)
        if isinstance(e, Apply) and e.mapping.family != "norm"
    }
    setting = Setting(scheme("lecun"), sp.S.One, ONE, {})
    state = {("x", "x"): Moments(v, sp.S.Zero)}
    inside = BlockMoments({"x": branch.argument}, state, setting, scalars)
    signal = inside.forward()["x", "x"].v
    cut = State("branch", d)
    apart = BlockMoments(
        {"x": whole.xreplace({branch: cut}), "branch": cut},
        {
            **state,
            ("branch", "branch"): Moments(f * signal, sp.S.Zero),
            ("x", "branch"): NONE,
            ("branch", "x"): NONE,
        },
        setting,
        scalars,
    )
    flow = {
        (s, t): ONE if s == t == "x" else NONE for s in ("x", "branch") for t in ("x", "branch")
    }
    back = apart.backward(flow)
    skip, out = back["x", "x"].v, back["branch", "branch"].v
    through = inside.backward({("x", "x"): Moments(b * out, sp.S.Zero)})["x", "x"].v
    ahead = apart.forward()["x", "x"].v
    return Recursion(*(tidy(e) for e in (ahead, skip + through, skip, out, signal)))


def general(placement: str, norm: str = "layernorm", **values: Any) -> Callable[[], Recursion]:
    """Return a subject: the recursion of a block for a branch with the constants f and b.

    Parameters
    ----------
    placement, norm : str
        As for `derive.laws.DepthLaw`; a placement with one branch.
    **values
        Values of its scalars, also symbols.
    """
    return lambda: _general(placement, norm, tuple(sorted(values.items())))


@lru_cache(maxsize=64)
def _law(
    placement: str, sublayer: str, init: Any, values: tuple[tuple[str, Any], ...]
) -> Recursion:
    made = DepthLaw(placement, sublayers=(sublayer,), init=init, values=dict(values))
    found = made.recursion
    if found is None:
        raise ValueError(f"{placement}, {sublayer}: the state is more than v")
    return Recursion(found[0], found[1], sp.nan, sp.nan, sp.nan)


def law(
    placement: str, sublayer: str = "ffn:relu", init: Any = "lecun", **values: Any
) -> Callable[[], Recursion]:
    """Return a subject: the recursion that `derive.laws` composes for an activation."""
    return lambda: _law(placement, sublayer, init, tuple(sorted(values.items())))


def stream(closed: sp.Expr) -> Callable[[Recursion], tuple[Any, Any, Any]]:
    """Return the claim that v_L is a closed form in L, for `Induction`."""
    return lambda R: (closed, sp.S.One, lambda y, k: R.at(y, k).forward)


def ratio(closed: sp.Expr, mean_square: sp.Expr) -> Callable[[Recursion], tuple[Any, Any, Any]]:
    """Return the claim that E|g_0|^2/E|g_L|^2 is a closed form, where v_L is `mean_square`."""
    before = sp.sympify(mean_square)
    return lambda R: (
        closed,
        sp.S.One,
        lambda y, k: y * R.at(before.subs(L, k - 1).doit(), k).gradient,
    )


def composed(
    equation: str,
    sublayer: str,
    tokens: Any,
    signal: Moments,
    memory: Moments = ONE,
    **values: Any,
) -> BlockMoments:
    """Return the moments of a block in symbols: any correlations, any n, scalars by name."""
    setting = Setting(scheme("lecun"), tokens, memory, {})
    scalars = {"eps": sp.S.Zero, **values}
    return BlockMoments(
        {"x": block(equation, "layernorm", sublayer)}, {("x", "x"): signal}, setting, scalars
    )
