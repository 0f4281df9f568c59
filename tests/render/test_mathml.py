"""MathML: well-formed, nothing left of TeX, and what browsers lay out badly is put right."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from functools import cache

import pytest

from derive.calculus.printing import latex
from derive.errors import DeriveError, MissingExtraError
from derive.render.mathml import to_mathml

pytest.importorskip("latex2mathml")
MATH = "{http://www.w3.org/1998/Math/MathML}"


def parsed(formula: str, **options):
    return ET.fromstring(to_mathml(formula, **options))


def test_every_formula_converts(D):
    for expr in {s.after for s in D.steps} | {D.jacobian, D.token_block()}:
        assert_sound(latex(expr))


@cache
def assert_sound(formula: str) -> None:
    """One conversion for each formula: most steps of a norm are the same in every case."""
    found = to_mathml(formula)
    root = ET.fromstring(found)
    assert "\\" not in found
    assert root.tag == MATH + "math"
    assert {e.tag.removeprefix(MATH) for e in root.iter()} <= {
            "math", "mrow", "mi", "mn", "mo", "mtext", "mspace", "mfrac", "msqrt", "msub", "msup",
            "msubsup", "munder", "mover", "mstyle", "mtable", "mtr", "mtd",
        }  # fmt: skip


@pytest.mark.parametrize(
    ("formula", "tag", "content", "attributes"),
    [
        (r"\operatorname{diag}(x)", "mi", "diag", {}),
        (r"\mathrm{d}x", "mi", "d", {"mathvariant": "normal"}),
        (r"W_{\mathrm{out\_proj}}", "mi", "out_proj", {}),
        (r"x^{\top}", "mi", "\u22a4", {"mathvariant": "normal"}),
        (r"\mathbf{1}", "mn", "\U0001d7cf", {}),
        (r"\bigl(x\bigr)", "mo", "(", {"form": "prefix"}),
        (r"\lVert x \rVert", "mo", "\u2016", {"form": "prefix"}),
        (r"\text{value path}", "mtext", "value\u00a0path", {}),
    ],
)
def test_what_is_put_right(formula, tag, content, attributes):
    found = [e for e in parsed(formula).iter(MATH + tag) if e.text == content]
    assert found, to_mathml(formula)
    assert attributes.items() <= found[0].attrib.items()


def test_bold_ones_stay_apart():
    root = parsed(r"\mathbf{1} \mathbf{1}^{\top}")
    assert [e.text for e in root.iter(MATH + "mn")] == ["\U0001d7cf"] * 2


def test_limits_stand_below_a_sum():
    assert len(list(parsed(r"\sum_{j} x_{j}").iter(MATH + "munder"))) == 1


def test_an_alignment_becomes_a_table():
    cases = r"\begin{cases} t & \text{for}\: t > 0 \\ 0 & \text{otherwise} \end{cases}"
    root = parsed(rf"\begin{{align*}} a &= b && \text{{(x)}} \\[1ex] c &= {cases} \end{{align*}}")
    outer = root.find(MATH + "mtable")
    assert [len(row) for row in outer] == [4, 2]
    assert len(list(root.iter(MATH + "mtable"))) == 2


@pytest.mark.parametrize("display", [True, False])
def test_display(display):
    assert parsed("x", display=display).get("display") == ("block" if display else "inline")


@pytest.mark.parametrize("formula", [r"\unknown x", r"\frac{1", r"\begin{cases} x"])
def test_what_cannot_be_converted_is_shown(formula):
    with pytest.raises(DeriveError, match="latex:") as error:
        to_mathml(formula)
    assert formula in str(error.value)


def test_missing_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "latex2mathml.converter", None)
    with pytest.raises(MissingExtraError, match=r"normderive\[report\]"):
        to_mathml("x")
