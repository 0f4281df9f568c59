"""LaTeX and text of depth laws, for every placement."""

import pytest

from derive.blocks.placements import MIXES, PLACEMENTS, STREAMS
from derive.laws.law import DepthLaw
from derive.render.law import law_latex, law_text

from .latex_rules import complaints

VALUES = {"admin": {"omega": 1.5}, "mhc": {"a": 0.1}}


@pytest.mark.parametrize("sublayer", ["ffn:relu", "attention"])
@pytest.mark.parametrize("placement", [*PLACEMENTS, *STREAMS, *MIXES])
def test_laws_are_sound_latex_and_lines_of_text(placement, sublayer):
    law = DepthLaw(placement, sublayers=(sublayer,), values=VALUES.get(placement), tokens=2)
    latex = law_latex(law)
    if latex.startswith("%"):
        assert "\n" not in latex
        assert "evaluated block by block" in law_text(law)
    else:
        assert complaints(latex) == []
    lines = law_text(law).splitlines()
    assert lines[0].startswith(f"{placement}, layernorm, {sublayer}")
    assert max(map(len, lines)) < 160


def test_constants_are_given_with_their_values():
    text, latex = (f(DepthLaw("pre", sublayers=("ffn:gelu",))) for f in (law_text, law_latex))
    assert "with a = sqrt(3)/(6*pi) + 1/3 = 0.4252215" in text
    assert r"a &= \frac{\sqrt{3}}{6 \pi} + \frac{1}{3}" in latex
    assert complaints(latex) == []
    assert complaints(latex.replace(r"\frac{1}{3}", "1**3")) != []
