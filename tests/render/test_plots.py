"""Figures: values in powers of ten, gaps for zero gradients, formats, no global state."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from derive.errors import DeriveError, MissingExtraError, ShapeError
from derive.render.plots import FORMATS, depth_figure, gradient_norms_figure, save, svg

pytest.importorskip("matplotlib")

MAGIC = {"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml"}


def rows():
    return [
        {
            "placement": place,
            "layers": depth,
            "width": 8,
            "log_norm": rate * depth,
            "log_grad_norms": [rate * k for k in range(depth, -1, -1)],
        }
        for place, rate in (("post", -0.3), ("pre", 0.02))
        for depth in (8, 2, 32)
    ]


def test_curves_show_powers_of_ten():
    natural = np.log(10.0) * np.array([-2.0, 0.0, 3.0])
    (axes,) = gradient_norms_figure([("post", [0, 1, 2], natural)]).axes
    np.testing.assert_allclose(axes.lines[0].get_ydata(), [-2.0, 0.0, 3.0], atol=1e-12)
    assert axes.yaxis.get_major_formatter()(-2.0, 0) == "$10^{-2}$"


def test_a_zero_gradient_leaves_a_gap():
    (axes,) = gradient_norms_figure([("x", range(3), [0.0, -np.inf, 1.0])]).axes
    assert np.isnan(axes.lines[0].get_ydata()).tolist() == [False, True, False]


def test_depth_panels():
    left, right = depth_figure(rows()).axes
    assert [line.get_label() for line in left.lines] == ["post", "pre"]
    assert list(left.lines[0].get_xdata()) == [2, 8, 32]
    assert [line.get_label() for line in right.lines] == ["post, L = 32", "pre, L = 32"]
    assert all(line.get_xdata().size == 33 for line in right.lines)
    for axes in (left, right):
        assert axes.get_xlabel()
        assert axes.get_ylabel()
        assert axes.get_legend() is not None
    looks = {(line.get_color(), line.get_linestyle(), line.get_marker()) for line in left.lines}
    assert len(looks) == 2


def test_widths_are_told_apart():
    both = [{**r, "width": w} for r in rows() for w in (8, 16)]
    left, _ = depth_figure(both).axes
    assert [line.get_label() for line in left.lines][:2] == ["post, d = 8", "post, d = 16"]


@pytest.mark.parametrize("kind", FORMATS)
def test_save(tmp_path, kind):
    path = save(depth_figure(rows()), tmp_path / f"figure.{kind}")
    first = path.read_bytes()
    assert first.startswith(MAGIC[kind])
    save(depth_figure(rows()), path)
    assert path.read_bytes() == first  # the same figure gives the same file


def test_save_refuses(tmp_path):
    figure = depth_figure(rows())
    with pytest.raises(DeriveError, match=r"\.pdf, \.png, \.svg, got .*figure\.bmp"):
        save(figure, tmp_path / "figure.bmp")
    with pytest.raises(DeriveError, match="does not exist"):
        save(figure, tmp_path / "nowhere" / "figure.png")


def test_svg_is_one_element():
    found = svg(gradient_norms_figure([("a $ sign", range(3), [0, 1, 2])]))
    assert found.startswith("<svg")
    assert found.endswith("</svg>")


def test_shapes_are_checked():
    with pytest.raises(ShapeError, match="as many norms as layers"):
        gradient_norms_figure([("x", range(3), [0, 1])])
    with pytest.raises(ShapeError, match="at least one curve"):
        gradient_norms_figure([])
    with pytest.raises(ShapeError, match="at least one stack"):
        depth_figure([])


def test_no_global_state():
    depth_figure(rows())
    assert "matplotlib.pyplot" not in sys.modules


def test_missing_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match=r"normderive\[plot\]"):
        depth_figure(rows())
