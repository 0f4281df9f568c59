"""A thousand layers without overflow, and a pre-norm stack that grows as fast as a product can.

The branch F(z) = A z with A = a (I - uu'/d), u mean-free and |u|^2 = d, keeps the state x = u
fixed at eps = 0, and the end-to-end norm is (1 + a)^L exactly: the norm of a pre-norm stack is not
bounded by the sum of its branches' norms.
"""

import math

import numpy as np

import derive
from derive import linalg
from derive.depth import Stack
from derive.lower import AbstractMap

x = derive.state("x")
L, d, a = 1000, 8, 2.0

u = np.tile([1.0, -1.0], d // 2)
A = a * (np.eye(d) - np.outer(u, u) / d)
linear = AbstractMap(lambda z: z @ A.T, lambda z: np.broadcast_to(A, (len(z), d, d)))

N = derive.LayerNorm(eps=0, gain=False, bias=False)
F = derive.Sublayer("F")
stack = Stack(x + F(N(x)), x, [{}] * L, {"F": linear})
jacobians = stack.jacobians(u)
found = linalg.log_norm(jacobians)
print(f"largest log of a float:        {math.log(np.finfo(float).max):.4f}")
print(f"log |dx_L/dx_0|, L = {L}:     {found:.4f}")
print(f"L log(1 + a):                  {L * math.log(1 + a):.4f}")
print(f"log(1 + sum of branch norms):  {math.log(1 + L * a):.4f}")

cotangent = np.tile([1.0, 1.0, -1.0, -1.0], d // 4) / math.sqrt(d)  # of norm 1
grads = linalg.gradient_log_norms(jacobians, cotangent)
print(f"log gradient norm at l = 0, 500, 1000: {grads[0]:.2f} {grads[500]:.2f} {grads[1000]:.2f}")
