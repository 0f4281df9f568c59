"""A stack of pre-norm blocks: its product, its gradients, and the sum over paths."""

import numpy as np

import derive
from derive.depth import Stack
from derive.linalg import materialise

x = derive.state("x")
L, width = 6, 16
stack = Stack.initialised(derive.block("pre", "layernorm", "ffn"), x, L, width=width, std=0.3)

rng = np.random.default_rng(1)
point, cotangent = rng.normal(size=(1, width)), rng.normal(size=(1, width))
cotangent /= np.linalg.norm(cotangent)

print("log singular values of dx_L/dx_0:", stack.log_singular_values(point)[:3].round(4), "...")
print("gradient norms, l = 0..L:", np.exp(stack.gradient_log_norms(point, cotangent)).round(4))

# prod(I + A_l) = S_0 + S_1 + ... + S_L, where S_k sums over all paths through k branches.
product = stack.end_to_end(point).value()
paths = stack.path_sums(point)
print("norm of S_k:", " ".join(f"{np.linalg.norm(S, 2):.2e}" for S in paths))
print(f"product minus all paths: {np.abs(product - sum(paths)).max():.0e}")

left_out = np.linalg.norm(product - materialise(stack.first_order(point)), 2)
print(f"product minus first order I + sum A_l: {left_out:.5f}")
print(f"the bound exp(a) - 1 - a, a = sum |A_l|: {stack.remainder_bound(point):.5f}")
