"""How the closed form's time grows with the width, the depth and the tokens."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from derive.bench.blocks import case
from derive.bench.rows import exponents
from derive.linalg import cost, materialise

__all__ = ["growth"]


def growth(tasks: Sequence[str], *, quick: bool) -> list[str]:
    """Return a line for each exponent that belongs to the tasks: of seconds, and of operations."""
    found = []
    if "tokens" in tasks:
        widths = (64, 128, 256) if quick else (128, 256, 512, 768)
        found.append(_line("token stack", "d", widths, lambda d: _stack(d, 4)))
        depths = (4, 8, 16) if quick else (8, 16, 32, 64)
        found.append(_line("token stack", "L", depths, lambda layers: _stack(128, layers)))
    if "sequences" in tasks:
        tokens = (8, 16, 32) if quick else (16, 32, 64, 128)
        found.append(_line("sequence Jacobian", "n", tokens, lambda n: _sequence(n, 64)))
    return found


def _line(
    task: str, symbol: str, sizes: Sequence[int], make: Callable[[int], tuple[Any, float]]
) -> str:
    seconds, operations = [], []
    for size in sizes:
        work, flops = make(size)
        work()
        samples = []
        for _ in range(3):
            start = time.perf_counter()
            work()
            samples.append(time.perf_counter() - start)
        seconds.append((float(size), statistics.median(samples)))
        operations.append((float(size), flops))
    measured, counted = exponents(seconds), exponents(operations)
    span = f"{symbol} = {sizes[0]} to {sizes[-1]}"
    return (
        f"growth: {task}, {span}: seconds ~ {symbol}^{measured:.2f}, "
        f"operations ~ {symbol}^{counted:.2f}"
    )


def _stack(width: int, layers: int) -> tuple[Any, float]:
    found = case("pre", ("ffn",), "gelu", width=width, layers=layers)
    (stack,) = found.stacks
    flops = layers * (cost(stack.jacobians(found.x)[0]).materialise_flops + 2 * width**3)

    def work() -> None:
        stack._trajectory = ()
        stack.end_to_end(found.x)

    return work, float(flops)


def _sequence(tokens: int, width: int) -> tuple[Any, float]:
    found = case("pre", ("causal-attention",), "gelu", width=width, layers=1, tokens=tokens)
    (operator,) = found.stacks[0].jacobians(found.x)
    return lambda: materialise(operator), float(cost(operator).materialise_flops)
