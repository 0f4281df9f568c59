"""Derive the Jacobian of a post-norm and a pre-norm block, and certify both."""

import derive

x = derive.state("x")
F = derive.Sublayer("F")
N = derive.LayerNorm()

for name, block in (("post", N(x + F(x))), ("pre", x + F(N(x)))):
    D = derive.derivation(block, x)
    print(f"{name}-norm: y = {D.block}")
    print(f"  dy/dx = {D.jacobian}")
    for symbol, meaning in D.definitions.items():
        print(f"  {symbol} := {meaning}")
    print(f"  {len(D.steps)} steps, the last by {D.steps[-1].rule!r}: {D.steps[-1].why}")
    for certificate in D.check():
        print(f"  {certificate.kind}: {'holds' if certificate.holds else 'FAILS'}")
    print()
