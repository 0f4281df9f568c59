"""A deep stack before it is trained: what its law says, the scale that holds it, and a check.

The branch of a pre-norm stack is scaled so that the gradient at the input is 1.5 times that at the
output in mean square, at every depth; stacks with random weights agree, and those without the
scale do not.
"""

from derive.laws import DepthLaw, measure
from derive.laws.advise import advise
from derive.laws.edge import ScaledLaw, critical_scale

law = DepthLaw("pre", sublayers=("ffn:gelu",))
advice = advise(law, 48, width=1024, target=1.5, edges=False)
print(f"48 blocks, pre-norm: gradient ratio {advice.found.gradient_ratio:.2f}")
print(f"update amplification {advice.amplification:.2f}")
print(f"as L grows: {advice.limit.kind}, power {advice.limit.power:.3f}")

for layers in (48, 12):
    edge = critical_scale(law, "branch", layers, target=1.5)
    print(f"{layers} blocks: branch times {edge.scale:.4f}, like L^{edge.power:.2f}")

held = ScaledLaw("pre", sublayers=("ffn:gelu",), branch=edge.scale)
found = measure(held, 12, width=48, seeds=8).gradient_ratio
print(f"measured: {found.mean:.3f}, interval {found.low:.3f} to {found.high:.3f}")
print(f"without the scale: {law.predict(12).gradient_ratio:.3f}")
