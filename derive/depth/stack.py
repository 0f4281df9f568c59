r"""A stack: one block over l = 0..L-1 with weights of its own in every layer.

The states, the product of the Jacobians and the sum over paths all come from the one derived
expression, lowered layer by layer; nothing is materialised unless asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import sympy as sp

from derive import linalg
from derive.calculus.derivation import Derivation, derivation
from derive.calculus.tensor import product, total
from derive.depth.together import SideBySide
from derive.errors import DomainError, ShapeError
from derive.initialise import initial_weights, layer_seed
from derive.linalg import Operator, ScaledMatrix
from derive.lower import AbstractMap, evaluate, lower

__all__ = ["Stack"]


class Stack:
    r"""A block applied L times, each time with its own weights.

    .. math:: x_{l+1} = B(x_l; \theta_l),\qquad
              \frac{dx_L}{dx_0} = J_{L-1}(x_{L-1})\cdots J_0(x_0)

    Parameters
    ----------
    block : expression or sequence of expressions
        The block, or one block a layer (a stack may mix placements).
    state : State
        The variable of the block.
    weights : sequence of mappings
        Weights of each layer by name, as for `derive.lower.Environment`; an empty sequence is the
        stack of no layers, whose Jacobian is the identity.
    maps : mapping, optional
        Numbers for abstract sublayers, the same in every layer.

    Raises
    ------
    ShapeError
        If there is one block a layer and their number is not that of `weights`.
    """

    def __init__(
        self,
        block: Any,
        state: Any,
        weights: Sequence[Mapping[str, Any]],
        maps: Mapping[str, AbstractMap] | None = None,
    ) -> None:
        self.weights = tuple(weights)
        blocks = list(block) if isinstance(block, list | tuple) else [block] * len(self.weights)
        if len(blocks) != len(self.weights):
            raise ShapeError(
                f"block: expected one block a layer for {len(self.weights)} layers, got "
                f"{len(blocks)}"
            )
        self.derivations: tuple[Derivation, ...] = tuple(derivation(b, state) for b in blocks)
        self.maps = maps
        self._trajectory: tuple[np.ndarray, ...] = ()  # of the last input
        self._side_by_side: SideBySide | None = None

    @classmethod
    def initialised(
        cls, block: sp.Basic, state: Any, layers: int, *, seed: int = 0, **sizes: Any
    ) -> Stack:
        """Return a stack with random weights, drawn layer by layer.

        Parameters
        ----------
        block, state
            As for the class.
        layers : int
            L, at least 0.
        seed : int
            Seed; layer ``l`` does not depend on how many layers follow it.
        **sizes
            ``width`` and more, as for `derive.initialise.initial_weights`.

        Raises
        ------
        DomainError
            If `layers` is negative or a size is out of range.
        """
        if layers < 0:
            raise DomainError(f"layers: expected at least 0, got {layers}")
        seeds = [layer_seed(seed, layer) for layer in range(layers)]
        drawn = [initial_weights(block, seed=s, **sizes) for s in seeds]
        side_by_side = SideBySide.of(drawn)
        stack = cls(block, state, drawn)
        stack._side_by_side = side_by_side
        return stack

    @property
    def layers(self) -> int:
        """Number of layers L."""
        return len(self.weights)

    def states(self, x: Any) -> list[np.ndarray]:
        """Return the states ``x_0, ..., x_L``, each ``(n, d)``."""
        start = self._start(x)
        if self._known(start):
            return list(self._trajectory)
        together = self._together()
        states = [start] if together is None else together.states(self.derivations[0], start)
        for found, weights in () if together else zip(self.derivations, self.weights, strict=True):
            states.append(evaluate(found.block, weights, states[-1], self.maps))
        self._trajectory = tuple(states)
        return states

    @staticmethod
    def _start(x: Any) -> np.ndarray:
        return np.atleast_2d(np.array(x, dtype=float))

    def _known(self, start: np.ndarray) -> bool:
        """Whether the trajectory that is kept begins here."""
        return bool(self._trajectory) and np.array_equal(self._trajectory[0], start)

    def _together(self) -> SideBySide | None:
        """Return the layers side by side if they still are these, of one block."""
        found = self._side_by_side
        same = all(d is self.derivations[0] for d in self.derivations) and not self.maps
        return found if found is not None and same and found.fits(self.weights) else None

    def jacobians(self, x: Any) -> list[Operator]:
        r"""Return the operators :math:`J_0, ..., J_{L-1}` along the trajectory from `x`."""
        return self._operators(x, lambda found: found.jacobian)

    def branches(self, x: Any) -> list[Operator]:
        r"""Return the operators :math:`A_l = J_l - I`.

        For a block :math:`x + F(N(x))` the identity cancels in the expression, so that nothing is
        lost to rounding.
        """
        return self._operators(x, _branch)

    def _operators(self, x: Any, part: Any) -> list[Operator]:
        together = self._together()
        if together is not None:
            found, start = self.derivations[0], self._start(x)
            if not self._known(start):
                states, operators = together.sweep(found, part(found), start)
                self._trajectory = tuple(states)
                return operators
            return together.operators(part(found), self._trajectory)
        states = self.states(x)
        return [
            lower(part(found), weights, state, self.maps)
            for found, weights, state in zip(
                self.derivations, self.weights, states[:-1], strict=True
            )
        ]

    def _size(self, x: Any) -> int:
        return int(np.size(x))

    # -- the product

    def end_to_end(self, x: Any, from_layer: int = 0) -> ScaledMatrix:
        r"""Return :math:`dx_L/dx_l`, rescaled so that it can neither overflow nor underflow."""
        states, together = self.states(x), self._together()
        if together is not None and not from_layer and len(states[0]) == 1:
            return linalg.product_of_blocks(together.jacobian(self.derivations[0], states))
        return linalg.end_to_end(self.jacobians(x), from_layer, size=self._size(x))

    def log_norm(self, x: Any) -> float:
        r"""Return :math:`\log\lVert dx_L/dx_0\rVert_2`."""
        return linalg.log_norm(self.jacobians(x), size=self._size(x))

    def log_singular_values(self, x: Any) -> np.ndarray:
        r"""Return the logarithms of all singular values of :math:`dx_L/dx_0`, largest first."""
        return linalg.log_singular_values(self.jacobians(x), size=self._size(x))

    def gradient_log_norms(self, x: Any, cotangent: Any) -> np.ndarray:
        r"""Return :math:`\log\lVert\partial\mathcal L/\partial x_l\rVert_2` for l = 0..L.

        Parameters
        ----------
        x : array (n, d)
            Input.
        cotangent : array (n, d)
            Gradient :math:`\partial\mathcal L/\partial x_L` at the output.
        """
        return linalg.gradient_log_norms(self.jacobians(x), np.ravel(cotangent))

    # -- the sum

    def path_sums(self, x: Any, max_length: int | None = None) -> list[np.ndarray]:
        r"""Return :math:`S_k`, the sum over all paths through k branches, for k = 0..K.

        .. math:: \prod_l(I+A_l) = \sum_k S_k,\qquad
                  S_k = \sum_{l_1<\dots<l_k}A_{l_k}\cdots A_{l_1}
        """
        return linalg.path_sums(self.branches(x), max_length, size=self._size(x))

    def first_order(self, x: Any) -> Operator:
        r"""Return the first-order sum :math:`I+\sum_lA_l`, lazily."""
        return linalg.first_order(self.branches(x), size=self._size(x))

    def branch_norms(self, x: Any) -> np.ndarray:
        r"""Return :math:`\lVert A_l\rVert_2` for every layer."""
        return np.array([linalg.spectral_norm(a) for a in self.branches(x)])

    def log_remainder_bound(self, x: Any, order: int = 1) -> float:
        r"""Return the log of a rigorous bound on what the sum up to `order` leaves out.

        .. math:: \Bigl\lVert\prod_l(I+A_l)-\sum_{k\le K}S_k\Bigr\rVert_2
                  \le e^a-\sum_{k\le K}\frac{a^k}{k!},\qquad a=\sum_l\lVert A_l\rVert_2

        For K = 1 this is :math:`e^a-1-a`.
        """
        return linalg.log_remainder_bound(list(self.branch_norms(x)), order)

    def remainder_bound(self, x: Any, order: int = 1) -> float:
        """Return `log_remainder_bound` as a number.

        Raises
        ------
        DomainError
            If it overflows.
        """
        return linalg.remainder_bound(list(self.branch_norms(x)), order)


@lru_cache(maxsize=256)
def _branch_of(jacobian: sp.Basic) -> sp.Basic:
    return total([jacobian, product([-1, sp.Identity(jacobian.shape[0])])])


def _branch(found: Derivation) -> sp.Basic:
    return _branch_of(found.jacobian)
