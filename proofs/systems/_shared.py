"""What the theorems about systems share: a real block against an equation, defaults of packages.

torch and transformers are imported when a check runs; without them it raises `MissingExtraError`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import sympy as sp

from derive.backends import SYSTEMS, RealBlock, build, float64_throughout, state
from derive.backends.autodiff import jacobian as reference_jacobian
from derive.backends.extras import load_torch, load_transformers
from derive.backends.zoo import build_zoo
from derive.blocks.parse import parse_block
from derive.calculus.maps import Apply
from derive.crosscheck import closed_form, closed_jacobian, relative_error
from derive.proof import Certificate, Check, Observed, Step
from derive.proof.check import Formula

__all__ = [
    "DECODER_POST",
    "DECODER_PRE",
    "POST",
    "PRE",
    "RES_POST",
    "SANDWICH",
    "BlockEquation",
    "config",
    "default",
    "layer",
    "module_default",
    "signature",
]

POST = "h = N1(x + A(x)); N2(h + F(h))"
PRE = "h = x + A(N1(x)); h + F(N2(h))"
RES_POST = "h = x + N1(A(x)); h + N2(F(h))"
SANDWICH = "h = x + N2(A(N1(x))); h + N4(F(N3(h)))"
DECODER_POST = "h = N1(x + A(x)); c = N2(h + C(h)); N3(c + F(c))"
DECODER_PRE = "h = x + A(N1(x)); c = h + C(N2(h)); c + F(N3(c))"

_BRANCH = re.compile(r"\b([AFCM])\(")
_SKIP = re.compile(r"\b[\w*]+ \+ ")


@dataclass(frozen=True, kw_only=True)
class BlockEquation(Check):
    r"""A layer of an installed package has the equation that is stated.

    The layer is built small with random weights, its Jacobian taken by autodiff; the stated
    equation, with the layer's own weights in its norms and sublayers, is differentiated by the
    calculus. They agree where the relative error is within rounding (1e-12).

    Attributes
    ----------
    system : str
        As for `derive.crosscheck.check`.
    equation : str
        A whole layer in ``x``, its norms ``N1, N2 ...`` in order of application, its sublayers
        ``A``, ``C``, ``F`` (``M`` for a mixture of experts).
    instead : str
        The equation with the norms in other places.
    scale : number
        What the derived Jacobian is multiplied by.
    """

    system: str
    equation: str
    instead: str
    scale: float = 1.0
    kind = "observed"

    def error(self) -> float:
        """Return the relative error, infinite where something ran in another precision."""
        found = self.scale * _derived(self.system, self.equation)
        return relative_error(found, _reference(self.system)[2])

    def certificate(self) -> Certificate:
        """Compare both Jacobians."""
        tolerance = _reference(self.system)[0].tolerance
        error = self.error()
        return Certificate(
            self.label, self.formula().text, bool(error <= tolerance), f"relative error {error:.2g}"
        )

    def formula(self) -> Formula:
        """Return the equation."""
        words = f"{self.system}: {self.equation}"
        return Formula(words, rf"\mathtt{{{self.system}}}", ":", _equation_latex(self.equation))

    def wrong(self) -> Iterator[tuple[str, Check]]:
        """Yield branches subtracted, left out, without their skip; other places; a factor."""
        yield "sign", replace(self, equation=_BRANCH.sub(r"(-1)*\1(", self.equation))
        yield "sign", replace(self, scale=-self.scale)
        yield "factor", replace(self, scale=1.01 * self.scale)
        yield "term", replace(self, equation=_SKIP.sub("", self.equation))
        yield "zero", replace(self, equation=_BRANCH.sub(r"0*\1(", self.equation))
        yield "placement", replace(self, equation=self.instead)


@lru_cache(maxsize=64)
def _reference(system: str) -> tuple[RealBlock, np.ndarray, np.ndarray]:
    """Build a real layer; return it with an input and its Jacobian there by autodiff."""
    real = build(system) if system in SYSTEMS else build_zoo(system)
    x = state(real)
    with float64_throughout() as report:
        reference = reference_jacobian(real, x)
    if report.dtype != "float64":
        reference = np.full_like(reference, np.nan)
    return real, x, reference


@lru_cache(maxsize=256)
def _derived(system: str, equation: str) -> np.ndarray:
    """Return the derived Jacobian of an equation with the parts of a real layer."""
    real, x, _ = _reference(system)
    return closed_jacobian(replace(real, expression=_placed(real, equation)), x)


def _placed(real: RealBlock, equation: str) -> sp.Basic:
    """Return the equation with the norms and sublayers of a real layer."""
    maps = {}
    for node in sp.preorder_traversal(closed_form(real)):
        for apply in _applied(node):
            maps[apply.mapping.name.replace("_", "")] = apply.mapping
    scalars = [name for name in real.weights if re.search(rf"\b{name}\b", equation)]
    return parse_block(equation, maps, scalars=scalars)


def _applied(expr: sp.Basic) -> Iterator[Apply]:
    """Yield the applied maps of an expression, also inside named quantities."""
    if isinstance(expr, Apply):
        yield expr
    definition = getattr(expr, "definition", None)
    if definition is not None:
        for node in sp.preorder_traversal(definition):
            yield from _applied(node)


def _equation_latex(equation: str) -> str:
    text = re.sub(r"\bN(\d)", r"N_\1", equation).replace("*", r"\,")
    text = re.sub(r"([a-z]{2,})_(\w+)", r"\\mathrm{\1}_{\\mathrm{\2}}", text)
    return text.replace(";", r";\;")


def config(name: str, **settings: Any) -> Callable[[], Any]:
    """Return a subject: a configuration of transformers with its defaults."""

    def subject() -> Any:
        return getattr(load_transformers(), name)(**settings)

    return subject


def signature(name: str) -> Callable[[], dict[str, Any]]:
    """Return a subject: the defaults of a module of torch.nn."""

    def subject() -> dict[str, Any]:
        import inspect

        found = inspect.signature(getattr(load_torch().nn, name))
        return {key: p.default for key, p in found.parameters.items()}

    return subject


def layer(claim: str, system: str, equation: str, instead: str) -> Step:
    """Return the step that a layer of an installed package has an equation."""
    return Step(
        claim,
        "autodiff of the layer of the package, and the derived Jacobian",
        BlockEquation(system=system, equation=equation, instead=instead),
    )


def default(claim: str, of: str, field: str, stated: str, instead: str | Callable[[], Any]) -> Step:
    """Return the step that a configuration of transformers has a number by default."""
    return Step(
        claim,
        "the installed configuration",
        Observed(
            claim=lambda found: getattr(found, field),
            of=config(of),
            instead=config(instead) if isinstance(instead, str) else instead,
            stated=stated,
            quantity=f"{field.replace('_', ' ')} of {of}, by default",
        ),
    )


def module_default(claim: str, of: str, field: str, stated: str, wrong: int, words: str) -> Step:
    """Return the step that a module of torch.nn has a number among its defaults."""
    return Step(
        claim,
        "the signature of the installed module",
        Observed(
            claim=lambda found: found[field],
            of=signature(of),
            instead=lambda: {field: wrong},
            stated=stated,
            quantity=words,
        ),
    )
