r"""Advice on a stack before it is trained: its depth laws as numbers, and what would change them.

Every statement carries its *strength*:

- ``closed form``: the law solved in L;
- ``recursion``: the law evaluated block by block;
- ``first order in 1/d``: the spread over stacks, from `derive.laws.spread`;
- ``measured``: from stacks with random weights, with an interval;
- ``from the literature, not checked``: as its source states it.

All are about random weights, before the first step. That a large update amplification goes with
divergence in training is the literature's observation (Admin, DeepNet), not a statement of the law.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import sympy as sp

from derive.blocks.placements import PLACEMENTS, STREAMS, canonical
from derive.errors import DeriveError, DomainError, UnknownNodeError
from derive.laws.edge import CONDITIONS, KNOBS, Edge, critical_scale
from derive.laws.exponents import Exponent, exponent
from derive.laws.law import DepthLaw, Prediction
from derive.laws.measure import Measurement, measure
from derive.laws.solve import Solution
from derive.laws.spread import LogSpread, log_spread
from derive.laws.update import update_amplification

__all__ = ["Advice", "advice_row", "advise", "no_advice_row", "ranked"]

CLOSED = "closed form"
RECURSION = "recursion"
FIRST_ORDER = "first order in 1/d"
MEASURED = "measured"
LITERATURE = "from the literature, not checked"

LARGEST = {"float16": 65504.0, "bfloat16": (2 - 2.0**-7) * 2.0**127}
"""Largest finite number of each type."""


@dataclass(frozen=True)
class Advice:
    r"""What is expected of a stack, and which scales would hold it.

    Attributes
    ----------
    law : DepthLaw
        The law.
    layers, width : int
        L and d.
    target : float
        R: the gradient ratio should lie from 1/R to R.
    bound : float
        What the update amplification should not exceed.
    found : Prediction
        The law at this depth and width.
    spread : LogSpread or None
        Over stacks of this width; None where it is not known.
    amplification : float or None
        `derive.laws.update.update_amplification`; None where a sublayer's is not known.
    limit : Exponent
        What happens as L goes to infinity.
    edges : tuple of Edge
        For each condition and knob.
    measured : Measurement or None
        Stacks with random weights.
    measured_width : int or None
        Their width.
    """

    law: DepthLaw
    layers: int
    width: int
    target: float
    bound: float
    found: Prediction
    spread: LogSpread | None
    amplification: float | None
    limit: Exponent
    edges: tuple[Edge, ...] = ()
    measured: Measurement | None = None
    measured_width: int | None = None

    @property
    def within(self) -> bool:
        """Whether the expected gradient ratio lies from 1/R to R."""
        return abs(math.log(self.found.gradient_ratio)) <= math.log(self.target) + 1e-9

    @property
    def strength(self) -> str:
        """Of the gradient ratio."""
        solved = _solution(self.law)
        return CLOSED if solved is not None and solved.gradient is not None else RECURSION

    @property
    def largest_entry(self) -> float:
        r"""Return the largest entry of the stream that is expected, for normal entries.

        .. math:: \max_l\sqrt{v_l}\,\sqrt{2\log(2nd)}
        """
        peak = max(moments.v for moments in self.found.forward)
        return math.sqrt(peak * 2 * math.log(2 * self.width * self.law.tokens))

    def margin(self, kind: str) -> float:
        """Return how many times larger the stream may be before that number type overflows."""
        return LARGEST[kind] / self.largest_entry if self.largest_entry else math.inf

    @property
    def weight_ratio(self) -> float | None:
        r"""Return the weight gradients of the first blocks over those of the last, squared norms.

        Summed over one turn of the sublayers, at either end; None where there is no gradient at the
        end or a sublayer whose weights are not covered.
        """
        entry = PLACEMENTS.get(self.law.key)
        turn = 1 if entry is not None and entry.is_layer else len(self.law.sublayers)
        try:
            sizes = [sum(block.values()) for block in self.found.weights]
        except UnknownNodeError:
            return None
        first, last = sum(sizes[:turn]), sum(sizes[-turn:])
        return first / last if last else None

    def edge(self, condition: str, knob: str) -> Edge | None:
        """Return the edge of one condition and knob, or None if it was not sought."""
        return next((e for e in self.edges if (e.condition, e.knob) == (condition, knob)), None)


def advise(
    law: DepthLaw,
    layers: int,
    *,
    width: int = 1024,
    hidden: int | None = None,
    correlation: float = 0.0,
    gradient_correlation: float = 0.0,
    start: float = 1.0,
    target: float = 2.0,
    bound: float = 1.0,
    edges: bool = True,
    seeds: int = 0,
    measured_width: int = 128,
    seed: int = 0,
) -> Advice:
    """Return advice on a stack.

    Parameters
    ----------
    law : DepthLaw
        Placement, norm, sublayers, initialisation and tokens.
    layers : int
        L.
    width, hidden, correlation, gradient_correlation, start
        As for `DepthLaw.predict`.
    target : float
        R, above 1.
    bound : float
        Of the update amplification, above 0.
    edges : bool
        Whether critical scales are sought.
    seeds : int
        Stacks that are drawn; 0 for none, otherwise at least 2.
    measured_width : int
        Their width, at most `width`.
    seed : int
        The first seed.

    Raises
    ------
    DomainError
        If a number is out of range.
    UnknownNodeError, WeightError
        As for `DepthLaw.predict`.
    """
    for name, value, least in (("target", target, 1.0), ("bound", bound, 0.0)):
        if not least < value < math.inf:
            raise DomainError(f"{name}: expected above {least:g}, got {value}")
    if seeds == 1 or seeds < 0:
        raise DomainError(f"seeds: expected 0 or at least 2, got {seeds}")
    sizes: dict[str, Any] = {
        "width": width,
        "hidden": hidden,
        "correlation": correlation,
        "gradient_correlation": gradient_correlation,
        "start": start,
    }
    found = law.predict(layers, **sizes)
    if found.gradient_ratio == 0:
        raise DomainError("gradient: expected a stack through which some gradient comes, got 0")
    try:
        spread = log_spread(law, found)
    except UnknownNodeError:
        spread = None
    try:
        amplification = update_amplification(found)
    except UnknownNodeError:
        amplification = None
    sought: list[Edge] = []
    for condition, wanted in zip(CONDITIONS, (target, bound), strict=True) if edges else ():
        if condition == "update" and amplification is None:
            continue
        sought += [
            critical_scale(law, knob, layers, condition=condition, target=wanted, **sizes)
            for knob in KNOBS
        ]
    drawn = None
    small = min(width, measured_width)
    if seeds:
        drawn = measure(law, layers, **{**sizes, "width": small}, seeds=seeds, seed=seed)
    return Advice(
        law,
        layers,
        width,
        target,
        bound,
        found,
        spread,
        amplification,
        exponent(law, width=width, hidden=hidden),
        tuple(sought),
        drawn,
        small if seeds else None,
    )


def ranked(found: Iterable[Advice]) -> list[Advice]:
    """Return advice sorted: ratios closest to 1 first, of equal ones the smaller amplification."""

    def order(one: Advice) -> tuple[float, float]:
        updates = math.inf if one.amplification is None else one.amplification
        return round(abs(math.log(one.found.gradient_ratio)), 6), updates

    return sorted(found, key=order)


def published(placement: str) -> tuple[dict[str, str], ...]:
    """Return the scalars of a placement as its source publishes them."""
    key = canonical(placement)
    entry = PLACEMENTS.get(key) or STREAMS.get(key)
    if entry is None:
        return ()
    return tuple(
        {"scalar": name, "value": str(value), "source": entry.source, "strength": LITERATURE}
        for name, value in entry.scalars.items()
    )


def formula_text(expr: sp.Expr | None) -> str | None:
    """Return a formula with its constants to four digits, or None."""
    if expr is None:
        return None
    numbers = {
        part: part.evalf(4)
        for part in sp.preorder_traversal(expr)
        if part.is_number and not part.is_Rational
    }
    return str(expr.xreplace(numbers))


def advice_row(advice: Advice) -> dict[str, Any]:
    """Return advice as a row of JSON-like values; the keys are in docs/advise.md."""
    law, found = advice.law, advice.found
    solved = _solution(law)
    forward, gradient = (None, None) if solved is None else solved.explicit()
    row = {
        **_head(law, advice.layers, advice.width),
        "target": advice.target,
        "bound": advice.bound,
        "gradient": {
            "ratio": found.gradient_ratio,
            "within": advice.within,
            "formula": formula_text(gradient),
            "strength": advice.strength,
            "spread": None,
        },
        "growth": {
            "ratio": found.growth,
            "formula": formula_text(forward),
            "strength": RECURSION if forward is None else CLOSED,
            "largest_entry": advice.largest_entry,
            "float16_margin": advice.margin("float16"),
            "bfloat16_margin": advice.margin("bfloat16"),
        },
        "weights": {"ratio": advice.weight_ratio, "strength": RECURSION},
        "update": {
            "amplification": advice.amplification,
            "within": None
            if advice.amplification is None
            else advice.amplification <= advice.bound * (1 + 1e-9),
            "strength": RECURSION,
        },
        "limit": {
            "kind": advice.limit.kind,
            "rate": advice.limit.annealed,
            "power": advice.limit.power,
            "jensen_gap": advice.limit.gap,
            "strength": CLOSED if advice.limit.kind != "open" else None,
        },
        "edges": [_edge_row(edge) for edge in advice.edges],
        "published": list(published(law.placement)),
        "measured": None,
        "refused": None,
    }
    if advice.spread is not None:
        low, high = advice.spread.interval(found.gradient_ratio)
        row["gradient"]["spread"] = {
            "log_std": advice.spread.gradient,
            "low": low,
            "high": high,
            "strength": FIRST_ORDER,
        }
    if advice.measured is not None:
        both = {
            "growth": advice.measured.growth,
            "gradient_ratio": advice.measured.gradient_ratio,
        }
        row["measured"] = {
            "width": advice.measured_width,
            "seeds": advice.measured.seeds,
            **{k: {"mean": e.mean, "ci": [e.low, e.high]} for k, e in both.items()},
            "ok": advice.measured.ok,
            "strength": MEASURED,
        }
    return row


def no_advice_row(
    placement: str,
    norm: str,
    sublayers: tuple[str, ...],
    init: str,
    layers: int,
    width: int,
    tokens: int,
    reason: DeriveError,
) -> dict[str, Any]:
    """Return the row of a placement that has no law, with the reason under ``refused``."""
    keys = ("gradient", "growth", "weights", "update", "limit", "measured")
    return {
        "placement": placement,
        "norm": norm,
        "sublayer": ",".join(sublayers),
        "init": init,
        "layers": layers,
        "width": width,
        "tokens": tokens,
        "target": None,
        "bound": None,
        **dict.fromkeys(keys[:5]),
        "edges": [],
        "published": list(published(placement)),
        "measured": None,
        "refused": str(reason),
    }


def _solution(law: DepthLaw) -> Solution | None:
    return None if law.open_state else law.solution


def _head(law: DepthLaw, layers: int, width: int) -> dict[str, Any]:
    return {
        "placement": law.placement,
        "norm": law.norm,
        "sublayer": ",".join(law.sublayers),
        "init": law.init if isinstance(law.init, str) else law.init.name,
        "layers": layers,
        "width": width,
        "tokens": law.tokens,
    }


def _edge_row(edge: Edge) -> dict[str, Any]:
    return {
        "condition": edge.condition,
        "knob": edge.knob,
        "verdict": edge.verdict,
        "scale": edge.scale,
        "value": edge.value,
        "formula": formula_text(edge.formula),
        "power": edge.power,
        "strength": CLOSED if edge.formula is not None else RECURSION,
    }
