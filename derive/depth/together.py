"""The layers of a stack of one block evaluated together, each layer a token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import sympy as sp

from derive.calculus.derivation import Derivation
from derive.linalg import Operator
from derive.linalg.arrays import is_finite
from derive.lower import PerToken, evaluate, evaluator, lineariser, lowerer

__all__ = ["SideBySide"]

# An overflow is found by its result, and raised.
_overflow_is_checked = np.errstate(over="ignore", invalid="ignore")


class SideBySide:
    """The weights of all layers in one array by name, a leading axis of L in front.

    Parameters
    ----------
    layers : sequence of dict
        The weights of each layer, of equal names and shapes. Their arrays are copied, and become
        read-only views of the joint ones: nothing is held twice, and what was checked stays so.

    Attributes
    ----------
    together : PerToken
        The joint arrays.
    """

    def __init__(self, layers: Sequence[dict[str, Any]]) -> None:
        self.together = PerToken()
        self._views: list[dict[str, Any]] = [{} for _ in layers]
        for name, first in layers[0].items() if layers else ():
            joint = np.stack([weights[name] for weights in layers])
            joint.flags.writeable = False
            self.together[name] = joint
            for view, weights, own in zip(self._views, layers, joint, strict=True):
                view[name] = weights[name] = own if np.ndim(first) else weights[name]

    @classmethod
    def of(cls, layers: Sequence[dict[str, Any]]) -> SideBySide | None:
        """Return the layers side by side, or None if their weights differ in name or shape."""
        shapes = [{name: np.shape(value) for name, value in w.items()} for w in layers]
        alike = len(layers) > 1 and all(other == shapes[0] for other in shapes)
        numbers = alike and all(is_finite(np.asarray(v)) for w in layers for v in w.values())
        return cls(layers) if numbers and "mask" not in shapes[0] else None

    def fits(self, layers: Sequence[Mapping[str, Any]]) -> bool:
        """Whether these are still the weights of the layers: no array was put in place of one."""
        return len(layers) == len(self._views) and all(
            len(weights) == len(view) and all(weights.get(k) is v for k, v in view.items())
            for weights, view in zip(layers, self._views, strict=True)
        )

    @np.errstate(over="ignore", invalid="ignore", divide="ignore")  # found by the result
    @_overflow_is_checked
    def states(self, found: Derivation, x: np.ndarray) -> list[np.ndarray]:
        """Return the states of one block along the layers, from `x` of shape (n, d)."""
        self._require_finite(found, [x])
        states = [x]
        run = evaluator(found.block, self._views[0], x)
        for weights in self._views:
            states.append(run(weights, states[-1]))
        return self._require_finite(found, states)

    @_overflow_is_checked
    def sweep(
        self, found: Derivation, expr: sp.Basic, x: np.ndarray
    ) -> tuple[list[np.ndarray], list[Operator]]:
        """Return the states and an expression's operator in every layer, in one pass."""
        self._require_finite(found, [x])
        states, operators = [x], []
        run = lineariser(expr, found.output, self._views[0], x)
        for weights in self._views:
            operator, value = run(weights, states[-1])
            states.append(value)
            operators.append(operator)
        return self._require_finite(found, states), operators

    def _require_finite(self, found: Derivation, states: list[np.ndarray]) -> list[np.ndarray]:
        """Return the states as arrays of their own; where one is not finite, the layer says so."""
        if not is_finite(np.concatenate(states)):
            for weights, state in zip(self._views, states, strict=False):
                evaluate(found.block, weights, state)
        return [np.array(state) for state in states]

    @np.errstate(over="ignore", invalid="ignore", divide="ignore")  # found by the result
    @_overflow_is_checked
    def operators(self, expr: sp.Basic, states: Sequence[np.ndarray]) -> list[Operator]:
        """Return an expression's operator in every layer, at the states from `states`."""
        run = lowerer(expr, self._views[0], states[0])
        return [run(w, state) for w, state in zip(self._views, states[:-1], strict=True)]

    @_overflow_is_checked
    def jacobian(self, found: Derivation, states: Sequence[np.ndarray]) -> Operator:
        """Return the Jacobians of all layers as one operator, each layer a token.

        The states are those of a single token, (1, d) each.
        """
        point = np.concatenate(list(states[:-1]))
        return lowerer(found.jacobian, self.together, point)(self.together, point)
