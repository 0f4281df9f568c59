"""What stacks do to norm and gradient, one row a depth."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from derive import linalg
from derive.depth.placed import placed_stack
from derive.depth.stack import Stack

__all__ = ["depth_rows", "random_input"]


def random_input(stack: Stack, width: int, tokens: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a standard normal input and a cotangent of norm 1 at the output of a stack.

    Parameters
    ----------
    stack : Stack
        The stack.
    width, tokens : int
        Features and tokens.
    seed : int
        Seed of both.

    Returns
    -------
    tuple of array (n, d) and array of the shape of the stack's states
    """
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(tokens, width))
    cotangent = rng.normal(size=stack.states(x)[0].shape)
    return x, cotangent / np.linalg.norm(cotangent)


def depth_rows(
    placement: str,
    depths: Iterable[int],
    *,
    width: int,
    tokens: int = 1,
    seed: int = 0,
    **options: Any,
) -> list[dict[str, Any]]:
    """Return one row per depth: what the stack does to norm and gradient.

    Parameters
    ----------
    placement : str
        A placement of any kind, or an equation.
    depths : iterable of int
        Numbers of layers.
    width, tokens : int
        Features and tokens of the random input.
    seed : int
        Seed of weights, input and cotangent.
    **options
        Further arguments of `derive.depth.placed_stack`: norm, sublayer, values, sizes.

    Returns
    -------
    list of dict
        Keys ``placement``, ``layers``, ``width``, ``tokens``, ``seed``, ``log_norm``,
        ``grad_norms`` (l = 0..L, for a cotangent of norm 1), ``log_grad_norms``,
        ``branch_norm_sum``,
        ``log_first_order_remainder``. Logarithms are natural.
    """
    rows = []
    for layers in depths:
        stack = placed_stack(placement, layers, width=width, tokens=tokens, seed=seed, **options)
        x, cotangent = random_input(stack, width, tokens, seed)
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
                "log_norm": linalg.log_norm(jacobians, size=cotangent.size),
                "grad_norms": plain.tolist(),
                "log_grad_norms": grads.tolist(),
                "branch_norm_sum": float(norms.sum()),
                "log_first_order_remainder": linalg.log_remainder_bound(list(norms), 1),
            }
        )
    return rows
