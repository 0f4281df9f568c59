r"""Kernels that the moment theory stands on: Cho and Saul, 2009; Schoenholz et al., 2017."""

from __future__ import annotations

import math

from derive.laws.gaussian import dual_kernel
from derive.laws.literature.entry import Comparison, Published, equals

__all__ = ["KERNELS"]


def _arc_cosine(
    angle: float, q: float, step: str, ramp: str, square: str
) -> tuple[Comparison, ...]:
    t, rho = angle, math.cos(angle)
    j0 = math.pi - t
    j1 = math.sin(t) + (math.pi - t) * math.cos(t)
    j2 = 3 * math.sin(t) * math.cos(t) + (math.pi - t) * (1 + 2 * math.cos(t) ** 2)
    return (
        equals("order 0", j0 / (2 * math.pi), dual_kernel(step).slope(q, rho)),
        equals("order 1", q * j1 / (2 * math.pi), dual_kernel(ramp).value(q, rho)),
        equals("order 2", q * q * j2 / (2 * math.pi), dual_kernel(square).value(q, rho)),
    )


def _critical(activation: str) -> tuple[Comparison, ...]:
    kernel = dual_kernel(activation)
    return (
        equals("chi = E phi'(z)^2 at variance 0", 1.0, kernel.slope(1e-8, 1.0), 1e-6),
        equals("variance kept at variance 0", 1.0, kernel.value(1e-8, 1.0) / 1e-8, 1e-6),
    )


KERNELS = (
    Published(
        "cho-arc-cosine",
        "cho",
        "section 2, n = 0, 1, 2",
        "memory",
        "arc-cosine kernels: 1/pi times |x|^n |y|^n J_n(theta), for the step, relu and its square",
        _arc_cosine,
        {"angle": 1.0, "q": 1.7, "step": "relu", "ramp": "relu", "square": "relu2"},
        "the dual kernels are half of them: E over one Gaussian, their sum has a factor 2; order 0 "
        "is that of relu's derivative",
    ),
    Published(
        "schoenholz-critical",
        "schoenholz",
        "critical line, tanh without biases",
        "memory",
        "tanh networks without biases are critical at weights of variance 1/fan-in: chi = 1 at the "
        "fixed point 0",
        _critical,
        {"activation": "tanh"},
        "phi'(0) = 1 alone decides; relu, whose derivative is 0 or 1, has chi = 1/2 and is "
        "critical at 2/fan-in",
    ),
)
