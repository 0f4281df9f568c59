"""A law as rows: one a depth, with the law in words, its numbers and what stacks do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from derive.errors import DeriveError
from derive.laws.law import DepthLaw, Prediction
from derive.laws.measure import Measurement, measure
from derive.laws.weight_law import weight_moments, weight_solution

__all__ = ["law_rows", "law_words", "no_law_rows", "weight_words"]


def law_words(law: DepthLaw) -> tuple[str, str]:
    """Return the forward and the gradient law as text, in L; a recursion where it is not solved."""
    if law.solution is not None:
        forward, gradient = law.solution.explicit()
        if gradient is None and law.recursion is not None:
            return f"v_L = {forward}", f"product over l of G_l(v) = {law.recursion[1]}"
        if gradient is None:
            return f"v_L = {forward}", f"a recursion in v and c: {law.open_state}"
        return f"v_L = {forward}", f"|g_0|^2/|g_L|^2 = {gradient}"
    if law.recursion is not None:
        return f"v -> {law.recursion[0]}", f"product over l of G_l(v) = {law.recursion[1]}"
    if law.token_solution is not None and law.token_solution.forward is not None:
        shares = "with A = (1 + (n - 1)*rho)/n, B = (1 + (n - 1)*r)/n"
        solved = law.token_solution
        return (
            f"v_L = {solved.forward}, {shares}",
            f"|g_0|^2/|g_L|^2 = {solved.gradient}, {shares}",
        )
    if law.correlated is not None:
        ahead, behind = law.correlated
        return f"v -> {ahead.v}, c -> {ahead.c}", f"v_g -> {behind.v}, c_g -> {behind.c}"
    words = f"a recursion in v and c: {law.open_state}"
    return words, words


def law_rows(
    law: DepthLaw,
    depths: Iterable[int],
    *,
    monte_carlo: bool = False,
    width: int = 128,
    hidden: int | None = None,
    correlation: float = 0.0,
    gradient_correlation: float = 0.0,
    weights: bool = False,
    **sampling: Any,
) -> list[dict[str, Any]]:
    """Return one row a depth.

    Parameters
    ----------
    law : DepthLaw
        The law.
    depths : iterable of int
        Numbers of blocks.
    monte_carlo : bool
        Whether stacks are drawn.
    width, hidden, correlation, gradient_correlation
        As for `DepthLaw.predict`.
    weights : bool
        Whether each row has the gradients of the matrices.
    **sampling
        ``heads``, ``seeds``, ``seed``, ``confidence``, ``backend``, ``dtype`` of
        `derive.laws.measure.measure`.

    Returns
    -------
    list of dict
        Keys ``placement``, ``norm``, ``sublayer``, ``forward_law``, ``gradient_law``, ``layers``,
        ``predicted``, ``measured``, ``ci``, ``ok``; the three last are None without Monte Carlo.
        ``predicted`` and ``measured`` have ``growth``, v_L/v_0, and ``gradient_ratio``,
        |g_0|^2/|g_L|^2; ``ci`` has an interval for each. With `weights` there is
        ``weight_gradients``: by matrix, ``law``, |dL/dW_l|^2/|g_L|^2 in l and L or in moments, None
        where it has no closed form, and lists over blocks l = 1..L, None where a block has no such
        matrix: ``predicted``, ``measured``, ``ci``, ``ok``.

    Raises
    ------
    DomainError, UnknownNodeError, WeightError
        As for `DepthLaw.predict` and `measure`.
    """
    sizes: dict[str, Any] = {
        "width": width,
        "hidden": hidden,
        "correlation": correlation,
        "gradient_correlation": gradient_correlation,
    }
    rows = []
    for layers in depths:
        predicted = law.predict(layers, **sizes)
        row = {
            **_head(law.placement, law.norm, law.sublayers, *law_words(law)),
            "layers": layers,
            "predicted": {
                "growth": predicted.growth,
                "gradient_ratio": predicted.gradient_ratio,
            },
            "measured": None,
            "ci": None,
            "ok": None,
        }
        if monte_carlo:
            found = measure(law, layers, weights=weights, **sizes, **sampling)
            both = {"growth": found.growth, "gradient_ratio": found.gradient_ratio}
            row["measured"] = {k: e.mean for k, e in both.items()}
            row["ci"] = {k: [e.low, e.high] for k, e in both.items()}
            row["ok"] = found.ok
        if weights:
            row["weight_gradients"] = _weights(law, predicted, found if monte_carlo else None)
        rows.append(row)
    return rows


def _weights(
    law: DepthLaw, predicted: Prediction, found: Measurement | None
) -> dict[str, dict[str, Any]]:
    words = weight_words(law)
    estimates = found.weights if found else ()
    covered = found.weights_covered() if found else ()
    return {
        name: {
            "law": words.get(name),
            "predicted": [one.get(name) for one in predicted.weights],
            "measured": [one[name].mean if name in one else None for one in estimates] or None,
            "ci": [[one[name].low, one[name].high] if name in one else None for one in estimates]
            or None,
            "ok": [one.get(name) for one in covered] or None,
        }
        for name in dict.fromkeys(k for one in predicted.weights for k in one)
    }


def weight_words(law: DepthLaw) -> dict[str, str]:
    """Return the laws of the weight gradients as text, by matrix: solved, or in moments."""
    solved, where = weight_solution(law)
    constants = dict(where)
    found = solved or weight_moments(law)
    return {name: str(value.subs(constants)) for name, value in found.items()}


def no_law_rows(
    placement: str, norm: str, sublayers: tuple[str, ...], reason: DeriveError
) -> list[dict[str, Any]]:
    """Return the row of a placement that has no law, with its reason as both laws."""
    words = f"none: {reason}"
    missing = dict.fromkeys(("layers", "predicted", "measured", "ci", "ok"))
    return [{**_head(placement, norm, sublayers, words, words), **missing}]


def _head(
    placement: str, norm: str, sublayers: tuple[str, ...], forward: str, gradient: str
) -> dict[str, Any]:
    return {
        "placement": placement,
        "norm": norm,
        "sublayer": ",".join(sublayers),
        "forward_law": forward,
        "gradient_law": gradient,
    }
