"""Blocks of your own: a sandwich, DeepNorm, and a sublayer that is known by its numbers only."""

import numpy as np

import derive
from derive import symbols
from derive.linalg import materialise
from derive.lower import AbstractMap, evaluate, lower

x = derive.state("x")
F = derive.Sublayer("F")

# A block is an expression: two norms with gains of their own, or a weighted residual path.
inner, outer = derive.RMSNorm(1), derive.RMSNorm(2)
sandwich = derive.derivation(x + outer(F(inner(x))), x)
print("sandwich:", sandwich.jacobian)

N = derive.LayerNorm()
deepnorm = derive.derivation(N(symbols.alpha * x + F(x)), x)
print("DeepNorm:", deepnorm.jacobian)

# Numbers for F: what it does to the tokens, (n, d) to (n, d), and its Jacobian, (n, d, d).
d, tokens = 6, 2
rng = np.random.default_rng(0)
W = rng.normal(size=(d, d)) / np.sqrt(d)
numbers = AbstractMap(
    function=lambda z: np.sin(z @ W.T),
    jacobian=lambda z: np.cos(z @ W.T)[:, :, None] * W,
)
weights = {"gain": rng.uniform(0.5, 1.5, d), "bias": rng.normal(size=d), "eps": 1e-5, "alpha": 2.2}
point = rng.normal(size=(tokens, d))
J = materialise(lower(deepnorm.jacobian, weights, point, {"F": numbers}))


def block(flat):
    """Return the block itself, flattened."""
    value = evaluate(deepnorm.block, weights, flat.reshape(tokens, d), {"F": numbers})
    return value.ravel()


h = 1e-6
columns = [
    (block(point.ravel() + h * e) - block(point.ravel() - h * e)) / (2 * h)
    for e in np.eye(tokens * d)
]
differences = np.column_stack(columns)
print(f"closed form against central differences: {np.abs(J - differences).max():.0e}")
