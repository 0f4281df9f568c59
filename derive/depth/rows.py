"""What stacks do to norm and gradient, one row a depth."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import sympy as sp

from derive import linalg
from derive.depth.stack import Stack

__all__ = ["depth_rows"]


def depth_rows(
    block: sp.Basic,
    state: Any,
    depths: Iterable[int],
    *,
    placement: str,
    width: int,
    tokens: int = 1,
    seed: int = 0,
    **sizes: Any,
) -> list[dict[str, Any]]:
    """Return one row per depth: what the stack does to norm and gradient.

    Parameters
    ----------
    block, state
        The block and its variable.
    depths : iterable of int
        Numbers of layers.
    placement : str
        Name of the row.
    width, tokens : int
        Features and tokens of the random input.
    seed : int
        Seed of weights, input and cotangent.
    **sizes
        As for `derive.initialise.initial_weights`.

    Returns
    -------
    list of dict
        Keys ``placement``, ``layers``, ``width``, ``tokens``, ``seed``, ``log_norm``,
        ``grad_norms`` (l = 0..L, for a cotangent of norm 1), ``log_grad_norms``,
        ``branch_norm_sum``,
        ``log_first_order_remainder``. Logarithms are natural.
    """
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(tokens, width))
    cotangent = rng.normal(size=(tokens, width))
    cotangent /= np.linalg.norm(cotangent)
    rows = []
    for layers in depths:
        stack = Stack.initialised(
            block, state, layers, seed=seed, width=width, tokens=tokens, **sizes
        )
        jacobians = stack.jacobians(x)
        grads = linalg.gradient_log_norms(jacobians, cotangent.ravel())
        norms = stack.branch_norms(x)
        with np.errstate(over="ignore", under="ignore"):
            plain = np.exp(grads)
        rows.append(
            {
                "placement": placement,
                "layers": layers,
                "width": width,
                "tokens": tokens,
                "seed": seed,
                "log_norm": linalg.log_norm(jacobians, size=x.size),
                "grad_norms": plain.tolist(),
                "log_grad_norms": grads.tolist(),
                "branch_norm_sum": float(norms.sum()),
                "log_first_order_remainder": linalg.log_remainder_bound(list(norms), 1),
            }
        )
    return rows
