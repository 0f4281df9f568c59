"""The numeric tasks: Jacobians, vector products, gradients, norms and exponents of stacks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from operator import methodcaller
from typing import Any

import numpy as np

from derive import linalg
from derive.bench.blocks import EPS, Case, case
from derive.bench.jax_peer import jax_peer
from derive.bench.problem import Problem
from derive.bench.rows import OURS
from derive.bench.torch_peer import torch_peer
from derive.linalg import Chain, Operator, cost
from derive.lower import PerToken, lower

__all__ = [
    "ensembles",
    "gradients",
    "lyapunov",
    "sequence_jacobians",
    "token_stacks",
    "vector_products",
]

Methods = dict[str, Callable[[], Any]]


def _peers(found: Case, ask: Callable[[Any], Methods]) -> tuple[Methods, dict[str, str]]:
    """Return the methods of the peers that are installed, and those that are not."""
    methods: Methods = {}
    missing: dict[str, str] = {}
    for name, make in (("jax", jax_peer), ("torch", torch_peer)):
        peer = make(found)
        if peer is None:
            missing[name] = "not installed"
        else:
            methods |= ask(peer)
    return methods, missing


def _fresh(found: Case) -> None:
    """Forget the trajectory: the forward pass belongs to the time."""
    for stack in found.stacks:
        stack._trajectory = ()


def token_stacks(quick: bool) -> Iterator[Problem]:
    """Yield the end-to-end Jacobians of stacks of one token."""
    sizes = (
        [
            ("pre", "ffn", "gelu", 64, 12),
            ("pre", "ffn", "gelu", 128, 6),
            ("pre", "ffn", "relu", 256, 4),
        ]
        if quick
        else [
            ("pre", "ffn", "gelu", 64, 12),
            ("pre", "ffn", "gelu", 64, 48),
            ("pre", "ffn", "relu", 64, 48),
            ("pre", "ffn", "gelu", 256, 12),
            ("pre", "ffn", "relu", 256, 12),
            ("pre", "gated", "silu", 256, 12),
            ("post", "ffn", "gelu", 256, 12),
            ("post", "gated", "silu", 256, 12),
            ("pre", "ffn", "gelu", 768, 12),
            ("pre", "ffn", "relu", 768, 12),
        ]
    )
    for placement, kind, activation, width, layers in sizes:
        found = case(placement, (kind,), activation, width=width, layers=layers)
        (stack,) = found.stacks

        def ours(found: Case = found, stack: Any = stack) -> np.ndarray:
            _fresh(found)
            return stack.end_to_end(found.x).value()

        methods, missing = _peers(found, lambda peer: peer.jacobians())
        if width >= 768:
            methods = {k: v for k, v in methods.items() if "chunks" not in k}
        jacobian = stack.jacobians(found.x)[0]
        flops = layers * (cost(jacobian).materialise_flops + 2 * width**3)
        yield Problem(
            "token stack",
            f"{placement} {kind}:{activation}, d={width}, L={layers}",
            {OURS: ours, **methods},
            missing,
            flops,
        )


def sequence_jacobians(quick: bool) -> Iterator[Problem]:
    """Yield the (nd x nd) Jacobians of whole layers, causal attention and FFN."""
    sizes = (
        [(8, 32, 4), (16, 64, 4)]
        if quick
        else [(16, 64, 4), (16, 256, 8), (32, 128, 8), (32, 256, 8), (128, 64, 4)]
    )
    for tokens, width, heads in sizes:
        found = case(
            "pre", ("causal-attention", "ffn"), "gelu",
            width=width, layers=1, tokens=tokens, heads=heads,
        )  # fmt: skip
        operator = _layer(found)

        def ours(found: Case = found) -> np.ndarray:
            return linalg.materialise(_layer(found))

        methods, missing = _peers(found, lambda peer: peer.jacobians())
        if tokens * width >= 2048:  # minutes, and gigabytes
            kept = ("jax jit(jacfwd)", "jax jit(jacrev)", "torch vmap(vjp)")
            methods = {k: v for k, v in methods.items() if k.startswith(kept)}
            missing |= {"torch jacrev, jacfwd": "left out at this size for its memory"}
        yield Problem(
            "sequence Jacobian",
            f"pre causal-attention + ffn:gelu, n={tokens}, d={width}, H={heads}",
            {OURS: ours, **methods},
            missing,
            float(cost(operator).materialise_flops),
        )


def _layer(found: Case) -> Operator:
    """Return the Jacobian of one layer of several sublayers, lowered along its states."""
    _fresh(found)
    state, operators = found.x, []
    for stack in found.stacks:
        operators.append(stack.jacobians(state)[0])
        state = stack.states(state)[-1]
    return Chain(*reversed(operators))


def ensembles(quick: bool) -> Iterator[Problem]:
    """Yield the squared Frobenius norms of the blocks of 256 tokens that share their weights."""
    for width in (64,) if quick else (64, 256):
        for placement, kind, activation in (("pre", "ffn", "gelu"), ("pre", "gated", "silu"))[
            : 1 if quick else 2
        ]:
            found = case(placement, (kind,), activation, width=width, layers=1, tokens=256)
            (stack,) = found.stacks

            def ours(found: Case = found, stack: Any = stack) -> np.ndarray:
                jacobian = lower(stack.derivations[0].jacobian, stack.weights[0], found.x)
                return linalg.token_square_norms(jacobian)

            methods, missing = _peers(found, lambda peer: peer.token_norms())
            yield Problem(
                "token ensemble",
                f"{placement} {kind}:{activation}, d={width}, n=256",
                {OURS: ours, **methods},
                missing,
            )


def vector_products(quick: bool) -> Iterator[Problem]:
    """Yield products of dx_L/dx_0 and its transpose with a vector, forward pass included."""
    sizes = [(128, 6, 1)] if quick else [(64, 48, 1), (256, 12, 1), (256, 12, 32)]
    for width, layers, tokens in sizes:
        found = case("pre", ("ffn",), "gelu", width=width, layers=layers, tokens=tokens)
        (stack,) = found.stacks
        vector = np.random.default_rng(1).normal(size=tokens * width)
        for transposed in (False, True):

            def ours(
                found: Case = found,
                stack: Any = stack,
                vector: np.ndarray = vector,
                transposed: bool = transposed,
            ) -> np.ndarray:
                _fresh(found)
                jacobians = stack.jacobians(found.x)
                v = vector
                for op in reversed(jacobians) if transposed else jacobians:
                    v = op.rmatvec(v) if transposed else op.matvec(v)
                return v

            ask = methodcaller("product", vector, transposed=transposed)
            methods, missing = _peers(found, ask)
            if not any(name.startswith("curvlinops") for name in methods):
                missing["curvlinops"] = "not installed"
            yield Problem(
                "VJP" if transposed else "JVP",
                f"pre ffn:gelu, d={width}, L={layers}, n={tokens}",
                {OURS: ours, **methods},
                missing,
                memory=False,
            )


def gradients(quick: bool) -> Iterator[Problem]:
    """Yield the gradient's norms at every layer, by one reverse pass."""
    sizes = [(128, 6, 1)] if quick else [(64, 48, 1), (256, 12, 1), (256, 12, 32)]
    for width, layers, tokens in sizes:
        found = case("pre", ("ffn",), "gelu", width=width, layers=layers, tokens=tokens)
        (stack,) = found.stacks
        cotangent = np.random.default_rng(1).normal(size=tokens * width)

        def ours(
            found: Case = found, stack: Any = stack, cotangent: np.ndarray = cotangent
        ) -> np.ndarray:
            _fresh(found)
            return stack.gradient_log_norms(found.x, cotangent)

        methods, missing = _peers(found, methodcaller("gradient_norms", cotangent))
        yield Problem(
            "gradient sweep",
            f"pre ffn:gelu, d={width}, L={layers}, n={tokens}",
            {OURS: ours, **methods},
            missing,
            memory=False,
        )


def _summed(work: Callable[[], Any]) -> np.ndarray:
    return np.array([work().sum()])


def lyapunov(quick: bool) -> Iterator[Problem]:
    """Yield Lyapunov spectra; compared is the sum of the exponents, which no frame changes."""
    for width, layers in [(64, 12)] if quick else [(64, 48), (256, 12)]:
        found = case("pre", ("ffn",), "gelu", width=width, layers=layers)
        (stack,) = found.stacks
        joint = PerToken(found.weights()[0], eps=EPS)
        for every in (1, None):

            def ours(
                found: Case = found,
                stack: Any = stack,
                joint: PerToken = joint,
                every: int | None = every,
            ) -> np.ndarray:
                _fresh(found)
                states = np.concatenate(stack.states(found.x)[:-1])
                blocks = linalg.token_blocks(lower(stack.derivations[0].jacobian, joint, states))
                spectrum = linalg.lyapunov_spectrum(list(blocks), every=every)
                return np.array([spectrum.exponents.sum()])

            methods, missing = _peers(found, lambda peer: peer.lyapunov())
            summed: Methods = {name: partial(_summed, work) for name, work in methods.items()}
            yield Problem(
                f"Lyapunov, {'QR every layer' if every else 'QR every k layers, k adaptive'}",
                f"pre ffn:gelu, d={width}, L={layers}",
                {OURS: ours, **summed},
                missing,
                memory=False,
                # Logarithms of |R_ii| add up: relative to their sum, about 1e-16 times d.
                tolerance=1e-9,
            )
