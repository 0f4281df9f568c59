r"""Plain scalars: equality that is shown, sign that is shown, by named rules only.

Both functions are one-sided. ``same`` is True where the difference was reduced to 0; ``sign_rule``
names the rule by which an expression was shown not to be negative. Otherwise nothing is claimed.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import sympy as sp

from derive.calculus.atoms import Inner
from derive.calculus.let import ScalarLet
from derive.proof.size import Size

__all__ = ["common_gammas", "same", "sign_rule", "trial"]

_DEPTH = 4
_SHORT = 16
"""Operations up to which several symbols are tried in turn."""
_TRIALS = 3


def trial(expr: sp.Basic, seed: int) -> dict[sp.Basic, sp.Rational]:
    """Return random rational values of the symbols of an expression, within their assumptions."""
    drawn = random.Random(seed)
    found = {}
    for symbol in sorted(expr.free_symbols, key=str):
        if symbol.is_integer:
            found[symbol] = sp.Integer(drawn.randint(5, 12))
        else:
            value = sp.Rational(drawn.randint(1, 40), drawn.randint(7, 29))
            found[symbol] = value if symbol.is_nonnegative else value * drawn.choice((-1, 1))
    return found


def same(left: sp.Expr, right: sp.Expr) -> bool:
    """Whether two scalars without vectors are shown to be equal.

    The difference must be reduced to 0 by expansion, cancellation, the rules of gamma functions
    or of radicals; a numerical difference at some point settles that they are not.
    """
    left, right = sp.sympify(left), sp.sympify(right)
    difference = left - right
    if difference == 0:
        return True
    for seed in range(_TRIALS):
        at = trial(sp.Tuple(left, right), seed)
        value, scale = (sp.N(e.subs(at).doit(), 30) for e in (difference, abs(left) + abs(right)))
        finite = value.is_number and value.is_finite and scale.is_finite
        if finite and abs(value) > sp.Float("1e-15") * scale:
            return False
    return any(rule(difference) == 0 for rule in _RULES)


def common_gammas(expr: sp.Expr) -> sp.Expr:
    r"""Write gamma functions whose arguments differ by integers by the one of the least argument.

    :math:`\Gamma(a + m) = a(a+1)\cdots(a+m-1)\,\Gamma(a)`; SymPy's own rule misses halves.
    """
    lowest: list[sp.Expr] = []
    arguments = sorted((g.args[0] for g in expr.atoms(sp.gamma)), key=sp.default_sort_key)
    for a in arguments:
        for k, base in enumerate(lowest):
            shift = sp.expand(a - base)
            if shift.is_Integer:
                lowest[k] = a if shift < 0 else base
                break
        else:
            lowest.append(a)
    replaced = {}
    for a in arguments:
        base = next(b for b in lowest if sp.expand(a - b).is_Integer)
        steps = int(sp.expand(a - base))
        replaced[sp.gamma(a)] = sp.gamma(base) * sp.Mul(*(base + k for k in range(steps)))
    return expr.xreplace(replaced)


_RULES: tuple[Callable[[sp.Expr], sp.Expr], ...] = (
    sp.expand,
    lambda e: sp.cancel(sp.together(e)),
    sp.radsimp,
    lambda e: sp.cancel(sp.together(common_gammas(e))),
    lambda e: sp.gammasimp(e.doit()),
    lambda e: sp.cancel(sp.together(sp.expand_func(e))),
    lambda e: sp.simplify(sp.expand_log(sp.powsimp(e, force=False))),
    lambda e: sp.simplify(e.doit()),
)


def sign_rule(expr: sp.Expr) -> str:
    r"""Return the rule by which an expression is shown to be at least 0, or "" if none does.

    Rules: the sign of every factor and term; a square; for a symbol t on :math:`[t_0,\infty)`,
    that value and derivative are not negative at :math:`t_0` and beyond, recursively, also for
    every value of other symbols. Norms and other sizes count as independent such symbols.
    """
    expr = sp.sympify(expr)
    sizes = sorted(expr.atoms(Size), key=sp.default_sort_key)
    free = {size: sp.Dummy(f"q{k}", nonnegative=True) for k, size in enumerate(sizes)}
    return _sign(expr.xreplace(free), _DEPTH)


def _sign(expr: sp.Expr, depth: int) -> str:
    if _manifest(expr):
        return "sum and product of non-negative terms"
    powers = sp.factor(sp.powsimp(sp.expand(expr)))
    for form in (sp.expand(expr), sp.factor(expr), sp.factor_terms(expr), powers):
        if _manifest(form):
            return "sum and product of non-negative terms"
    if not depth or expr.has(Inner, ScalarLet):
        return ""
    if len(expr.free_symbols) > 1 and expr.count_ops() > _SHORT:
        return ""
    for t in sorted(expr.free_symbols, key=str):
        if not (t.is_nonnegative or t.is_positive):
            continue
        start = 1 if t.is_integer and t.is_positive else 0
        free = sp.Dummy(t.name, positive=True)
        moved = expr.subs(t, free + start)
        slope = sp.diff(moved, free)
        if _starts(moved, free, depth) and _sign(slope, depth - 1):
            return f"not negative at {t.name} = {start}, with a derivative that is not negative"
    return ""


def _starts(moved: sp.Expr, free: sp.Symbol, depth: int) -> bool:
    """Whether an expression is shown not to be negative where a symbol becomes 0."""
    if len(moved.free_symbols) > 1:
        first = moved.subs(free, 0)
        finite = not first.has(sp.zoo, sp.nan, sp.oo, sp.S.NegativeInfinity)
        return finite and bool(first == 0 or _sign(sp.simplify(first), depth - 1))
    try:
        first = sp.limit(moved, free, 0, "+")
    except NotImplementedError:  # a function that SymPy has no series of
        return False
    return bool(first.is_number and first.is_comparable and first >= 0)


def _manifest(expr: sp.Expr) -> bool:
    """Whether every term is a product of factors that are not negative."""
    if isinstance(expr, sp.Add):
        return all(map(_manifest, expr.args))
    if isinstance(expr, sp.Mul):
        signs = [_sign_of_factor(a) for a in expr.args]
        return None not in signs and signs.count(-1) % 2 == 0
    return _sign_of_factor(expr) == 1


def _sign_of_factor(factor: sp.Expr) -> int | None:
    """Return 1 for a factor that is not negative, -1 for one that is not positive, or None."""
    if factor.is_number:
        return 1 if factor.is_nonnegative else -1 if factor.is_nonpositive else None
    if isinstance(factor, Inner) and factor.args[0] == factor.args[1]:
        return 1
    if isinstance(factor, ScalarLet):
        return 1 if _is_root(factor.definition) else _sign_of_factor(factor.definition)
    if isinstance(factor, sp.Pow):
        if factor.exp.is_even or _is_root(factor):
            return 1
        if factor.exp.is_integer:
            return _sign_of_factor(factor.base)
        return 1 if factor.is_nonnegative else None
    if isinstance(factor, sp.Add):
        return 1 if _manifest(factor) else None
    if factor.is_nonnegative:
        return 1
    return -1 if factor.is_nonpositive else None


def _is_root(expr: sp.Expr) -> bool:
    return isinstance(expr, sp.Pow) and expr.exp.is_Rational and expr.exp.q == 2
