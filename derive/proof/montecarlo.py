r"""Certificates of kind ``montecarlo``: a confidence interval that can refute, and never proves.

Samples are drawn until the interval is narrow enough that a claim wrong by 1 % would be outside,
or a budget is spent; when to stop depends on the width of the interval and never on where the claim
lies. There may be up to `LOOKS` looks at the width, so that each interval has level
``1 - LEVEL/LOOKS`` (Bonferroni).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import sympy as sp
from scipy import stats

from derive.calculus.printing import latex, text
from derive.errors import DomainError
from derive.proof.check import Certificate, Check, Formula, Subject, constant
from derive.proof.perturb import wrong_sides

__all__ = ["LEVEL", "LOOKS", "MonteCarlo"]

LEVEL = 1e-4
"""Probability that a true claim is rejected, over all looks."""
LOOKS = 14
"""Doublings of the number of samples."""
NARROW = 0.004
"""Relative half-width of the interval at which sampling stops."""


@dataclass(frozen=True, kw_only=True)
class MonteCarlo(Check):
    r"""A mean that lies in a narrow confidence interval.

    Attributes
    ----------
    claim : callable
        From the subject to ``(draw, value)``: ``draw(rng, size)`` returns `size` independent
        samples, `value` is the claimed mean, a number.
    of, instead : callable
        Return the subject, and another one for which the mean is not the value.
    quantity : str
        What is averaged, in LaTeX.
    first : int
        Samples of the first look.
    seed : int
        Of the generator.
    """

    claim: Callable[[Any], tuple[Callable[[np.random.Generator, int], np.ndarray], Any]]
    of: Subject
    instead: Subject
    quantity: str
    first: int = 2_000
    seed: int = 0
    kind = "montecarlo"

    def interval(self) -> tuple[float, float, int]:
        """Return mean, half-width and number of samples.

        Raises
        ------
        DomainError
            If a sample is not finite.
        """
        draw, _ = self.claim(self.of())
        rng = np.random.default_rng(self.seed)
        quantile = stats.norm.ppf(1 - LEVEL / LOOKS / 2)
        count, total, squares, size = 0, 0.0, 0.0, self.first
        for _ in range(LOOKS):
            drawn = np.asarray(draw(rng, size), dtype=float)
            if drawn.shape != (size,) or not np.isfinite(drawn).all():
                raise DomainError(
                    f"draw: expected {size} finite samples, got an array of shape {drawn.shape}"
                )
            total, squares = total + drawn.sum(), squares + (drawn**2).sum()
            count += size
            mean = total / count
            half = quantile * np.sqrt(max(squares / count - mean**2, 0.0) / count)
            if half <= NARROW * abs(mean):
                break
            size = count
        return float(mean), float(half), count

    def certificate(self) -> Certificate:
        """Draw samples; the claim holds if its value is in a narrow interval."""
        _, value = self.claim(self.of())
        mean, half, count = self.interval()
        narrow = half <= NARROW * abs(mean)
        holds = narrow and abs(mean - float(value)) <= half
        detail = f"{mean:.6g} +- {half:.2g} from {count} samples, seed {self.seed}"
        detail += "" if narrow else "; too wide to tell a factor of 1.01"
        return Certificate(self.label, self.formula().text, bool(holds), detail)

    def formula(self) -> Formula:
        """Return the claimed mean."""
        _, value = self.claim(self.of())
        value = sp.sympify(value)
        mean = rf"\mathbb{{E}}\left[{self.quantity}\right]"
        return Formula(f"E[{self.quantity}] = {text(value)}", mean, "=", latex(value))

    def wrong(self) -> Iterator[tuple[str, Check]]:
        """Yield other means for the same samples, and the samples of another subject."""
        draw, value = self.claim(self.of())
        left, right = sp.Symbol("m"), sp.sympify(value)

        def false(sides: tuple[sp.Basic, sp.Basic]) -> bool:
            return sides[0] == left and abs(float(sides[1]) - float(right)) > 0.009 * abs(right)

        for kind, changed in wrong_sides((left, right), false).items():
            for _, wrong in changed:
                yield kind, replace(self, claim=constant((draw, wrong)))
        yield "placement", replace(self, of=self.instead, claim=lambda s: (self.claim(s)[0], value))
