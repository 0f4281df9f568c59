"""Swapping in another placement must fail the row: the layer, re-made with its own weights.

The norms, the sublayers and the weights stay those of the real layer; a placement with more norms
than the layer has uses them again. Where two placements are provably the same, the pair is listed.
"""

import re

import numpy as np
import pytest
import sympy as sp

from derive.backends import SYSTEMS, build, float64_throughout
from derive.backends import state as random_state
from derive.backends.autodiff import jacobian
from derive.backends.zoo import ZOO, build_zoo
from derive.blocks.attention import CrossAttention
from derive.blocks.build import VECTORS, state
from derive.blocks.norms import LayerNorm, _Norm
from derive.blocks.parse import parse_block
from derive.blocks.placements import PLACEMENTS
from derive.blocks.sublayers import FFN, GatedFFN
from derive.calculus.let import Let
from derive.calculus.maps import Apply, Body, Map
from derive.calculus.tensor import total
from derive.crosscheck import closed_form, relative_error
from derive.depth import Stack
from derive.linalg import materialise

pytestmark = [pytest.mark.torch, pytest.mark.transformers, pytest.mark.slow]

SAME = {
    "parallel": {"parallel-two-norms"},  # with the same norm twice
    "decoder-2017": {"post"},  # three post-norm blocks, which is the definition
    "decoder-pre": {"pre"},
    "sub-ln": {"pre"},  # the inner norms belong to the sublayers, which are kept
}
"""Pairs that are the same equation with the norms used here, besides a placement and itself."""

OWN_SCALES = {"layerscale", "scaled-residual", "scaled-normed-residual", "ngpt"}
"""Placements whose real layers have scales under names of their own; not re-made as a control."""

SCALED = {"hyperclovax", "deepseek-v3-moe"}
"""Layers whose branches carry a scale that their placement has no letter for; no control either."""

VISIBLE = 1e-3
"""A wrong placement is a wrong term, not a rounding error; see `derive.crosscheck.TOLERANCE`."""


class Both(Map):
    """The sum of two maps, as a mixture of experts beside a shared one: one branch to move."""

    name = "F"

    def body(self, argument, suffix=""):
        first, second = (
            m.body(argument, f"{suffix}_{k}") for k, m in zip("ab", self.args, strict=True)
        )
        return Body(
            (*first.lets, *second.lets),
            total([first.output, second.output]),
            (*first.identities, *second.identities),
            first.cuts | second.cuts,
        )


def applications(expr):
    """Return the maps of a layer with the order in which they first occur, inside out."""
    found, seen = [], set()

    def walk(node):
        if node in seen:
            return
        seen.add(node)
        for arg in node.args:
            walk(arg)
        if isinstance(node, Apply) and node.mapping not in found:
            found.append(node.mapping)

    walk(expr)
    return found


def parts(real):
    maps = applications(closed_form(real))
    norms = sorted((m for m in maps if m.family == "norm"), key=lambda m: m.label)
    attention = [m for m in maps if m.mixes_tokens]
    cross = [m for m in maps if isinstance(m, CrossAttention)]
    rest = [m for m in maps if m not in (*norms, *attention, *cross)]
    if len(rest) == 2:
        rest = [Both(*rest)]
    assert len(attention) == len(rest) == 1
    assert len(cross) <= 1
    return norms, [*attention, *cross, *rest]


def remade(name, norms, branches):
    """Return the layer in another placement, or None where it does not fit the branches."""
    entry = PLACEMENTS[name]
    x = state()
    letters = "ACF" if len(branches) == 3 else "AF"
    if entry.is_layer and set(re.findall(r"\b[ACF](?=\()", entry.equation)) != set(letters):
        return None
    attention, *_, last = branches
    if entry.inner_norm:
        if not isinstance(last, FFN | GatedFFN):
            return None
        if last.inner_norm is None:
            last = last.func(*last.args[:5], LayerNorm("i", gain=False, bias=False, eps=1e-5))
    used = sorted(set(re.findall(r"\bN\d*", entry.equation)))
    steps = [attention, *branches[1:-1], last]
    copies = 1 if entry.is_layer else len(steps)
    supply = [norms[k % len(norms)] for k in range(copies * len(used))]
    if entry.is_layer:
        maps = {**dict(zip(used, supply, strict=True)), **dict(zip(letters, steps, strict=True))}
        return parse_block(entry.equation, maps, x, "x", vectors=VECTORS)
    expr = x
    for k, branch in enumerate(steps):
        mine = supply[k * len(used) : (k + 1) * len(used)]
        maps = {**dict(zip(used, mine, strict=True)), "F": branch}
        expr = parse_block(entry.equation, maps, expr, "x", vectors=VECTORS)
        expr = Let(f"y_{letters[k]}", expr) if k < len(steps) - 1 else expr
    return expr


def lettered(expr):
    """Return the layer with the eps of its norms as letters, and their values.

    Layers that differ in them only are then derived once.
    """
    norms = [m for m in expr.atoms(_Norm) if isinstance(m.eps, sp.Float)]
    letters = {
        eps: sp.Symbol(f"eps{k}", positive=True)
        for k, eps in enumerate(sorted({m.eps for m in norms}))
    }
    changed = {m: m.func(m.args[0], letters[m.eps], *m.args[2:]) for m in norms}
    return expr.xreplace(changed), {s.name: float(eps) for eps, s in letters.items()}


def error(real, expr, x, reference):
    rng = np.random.default_rng(7)
    expr, numbers = lettered(expr)
    extra = {"alpha": 1.7, "beta": 0.6, **numbers}
    extra |= {v: rng.uniform(0.5, 1.5, real.width) for v in VECTORS}
    (operator,) = Stack(expr, state(), [{**extra, **real.weights}]).jacobians(x)
    return relative_error(materialise(operator), reference)


def survivors(real, names):
    """Return the placements that are not told from the layer's own, and the error of its own."""
    norms, branches = parts(real)
    x = random_state(real, seed=3)
    with float64_throughout():
        reference = jacobian(real, x)
    errors, known = {}, {}
    for name in names:
        expr = remade(name, norms, branches)
        if expr is not None:  # two placements may be one equation, as ReZero and SkipInit are
            if expr not in known:
                known[expr] = error(real, expr, x, reference)
            errors[name] = known[expr]
    own = errors.pop(real.placement, None)
    same = SAME.get(real.placement, set())
    assert {n: e for n, e in errors.items() if n in same and e > real.tolerance} == {}
    return {n: e for n, e in errors.items() if n not in same and not e > VISIBLE}, own, errors


def rows():
    beside = ("timm", "torchscale")
    yield from SYSTEMS
    for name, entry in ZOO.items():
        marks = [pytest.mark.timm] if entry.source.startswith(beside) else []
        yield pytest.param(name, marks=marks)


@pytest.mark.parametrize("system", list(rows()))
def test_every_other_placement_fails(system):
    real = build(system) if system in SYSTEMS else build_zoo(system, 0)
    alive, own, swapped = survivors(real, PLACEMENTS)
    assert alive == {}
    assert len(swapped) >= 20
    if real.placement not in OWN_SCALES and system not in SCALED:
        assert own <= real.tolerance
