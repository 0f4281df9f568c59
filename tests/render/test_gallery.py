"""The gallery: lines are the laws, points hold them, files are small, the same and readable."""

import math
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest

from derive.errors import DeriveError, UnknownNameError, UnknownNodeError
from derive.laws.gaussian import dual_kernel
from derive.render.gallery import PLATES, Sampling, gallery_page, write_gallery
from derive.render.gallery.pages import chosen
from derive.render.gallery.precision import BFLOAT_UNIT, _added, _expected_largest

from ..command import run

pytestmark = pytest.mark.slow

pytest.importorskip("matplotlib")
DOCS = Path(__file__).parents[2] / "docs"
QUICK = Sampling(width=64, seeds=4, depths=(2, 3))


@pytest.fixture(scope="module")
def figures():
    return {name: plate.draw(QUICK) for name, plate in PLATES.items()}


def lines(axes):
    """The laws of a panel by their labels."""
    return {
        line.get_label(): np.asarray(line.get_xydata())
        for line in axes.get_lines()
        if not line.get_label().startswith("_")
    }


def intervals(axes):
    """The points of a panel: x, mean, low, high."""
    found = []
    for container in axes.containers:
        x, y = container.lines[0].get_data()
        for a, b, bar in zip(x, y, container.lines[2][0].get_segments(), strict=True):
            found.append((a, b, bar[0, 1], bar[1, 1]))
    return found


def at(curve, x):
    return float(curve[np.argmin(abs(curve[:, 0] - x)), 1])


# -- lines against closed forms written out here

RELU = 0.5
GELU_F, GELU_B = 0.425221, 0.455851  # second moments of gelu and its derivative, by quadrature


@pytest.mark.parametrize(
    ("name", "label", "x", "wanted"),
    [
        ("growth", "peri-norm", 64, 65.0),
        ("growth", "pre-norm", 64, 1 + 64 * GELU_F),
        ("growth", "LayerNorm Scaling", 4, None),
        ("growth", "post-norm", 96, 1.0),
        ("gradient-ratio", "post-norm", 32, ((1 + GELU_B) / (1 + GELU_F)) ** 32),
        ("identity-path", "gradient, over all paths", 24, 1.0),
        ("identity-path", r"identity path alone, $(2/3)^L$", 24, (2 / 3) ** 24),
        ("decoder-memory", r"post-norm, $\rho = 1$", 12, 2.0**-12),
        ("decoder-memory", r"post-norm, $\rho = 0$", 12, (1 + 1 / 8) ** -12),
        ("decoder-memory", "pre-norm, any memory", 24, 1.0),
        ("weight-gradients", "post-norm", 7, math.sqrt(1 / 3)),
        ("weight-gradients", "pre-norm, final norm", 16, math.sqrt(RELU / 9)),
        ("weight-gradients", "pre-norm, final norm", 1, math.sqrt(RELU / 1.5)),
        ("rank-collapse", "post-norm", 32, None),
        ("edge-of-chaos", "relu", 2, -math.log(2)),
        ("half-precision", "post-norm", 16, None),
    ],
)
def test_lines_are_the_laws(figures, name, label, x, wanted):
    found = at(lines(figures[name].axes[0])[label], x)
    if name == "half-precision":
        wanted = _expected_largest(QUICK.width)
    elif name == "rank-collapse":
        wanted = halving(32, 8)
    elif wanted is None:
        # sum of gelu's second moment at pre-activation variance 1/l
        wanted = 1 + sum(second_moment(1 / k) for k in range(1, 5))
    assert found == pytest.approx(wanted, rel=1e-4)
    assert found != pytest.approx(1.01 * wanted, rel=1e-4)


def halving(layers, tokens):
    gap = 1.0
    for _ in range(layers):
        gap = gap / (1 + (1 + (tokens - 1) * (1 - gap)) / tokens)
    return gap


def second_moment(variance):
    t = np.linspace(-9, 9, 4001)
    z = math.sqrt(variance) * t
    phi = z * np.array([0.5 * (1 + math.erf(v / math.sqrt(2))) for v in z])
    return float(np.sum(phi**2 * np.exp(-t * t / 2)) / np.sum(np.exp(-t * t / 2)))


def test_peri_and_pre_norm_meet_bfloat16_at_2_to_the_16():
    added = _added("pre", 2**17)
    assert added[2**16 - 3] == pytest.approx(BFLOAT_UNIT, rel=1e-4)
    assert np.argmax(_added("lns", 10_000) < BFLOAT_UNIT) == pytest.approx(6000, rel=0.05)
    with pytest.raises(UnknownNodeError, match="blocks that add to v, got post"):
        _added("post", 4)


def test_largest_of_normal_numbers():
    """The median of the largest of 50 numbers in size, drawn 4000 times."""
    drawn = np.abs(np.random.default_rng(0).normal(size=(4000, 50))).max(1)
    assert _expected_largest(50) == pytest.approx(np.median(drawn), rel=0.01)


# -- points


NAMED = ("growth", "gradient-ratio", "identity-path", "rank-collapse")


@pytest.mark.parametrize("name", NAMED)
def test_points_hold_the_lines_as_often_as_they_should(figures, name):
    """Of n intervals of 95 % at most 3 may miss; width 64 and L <= 12 add some L/d."""
    (axes,) = figures[name].axes
    curves = list(lines(axes).values())
    found = intervals(axes)
    assert len(found) >= 6
    missed = 0
    for x, mean, low, high in found:
        near = [at(curve, x) for curve in curves]
        best = min(near, key=lambda v: abs(math.log(v / mean)))
        missed += not 0.9 * low <= best <= 1.1 * high
    assert missed <= 3


def test_points_of_kernels_are_drawn_apart_from_the_closed_forms(figures):
    for order, axes in enumerate(figures["kernels"].axes):
        for x, mean, low, high in intervals(axes)[:5]:  # relu
            kernel = dual_kernel("relu")
            law = (kernel.slope if order else kernel.value)(1.0, float(x))
            assert abs(mean - law) < 2 * (high - low)
            assert high > low


# -- files


def test_axes_say_what_they_show(figures):
    for name, figure in figures.items():
        for axes in figure.axes:
            assert axes.get_xlabel(), name
            assert axes.get_ylabel(), name
        width = figure.get_size_inches()[0]
        assert width in (3.4, 6.8), name
        assert any(axes.get_legend() for axes in figure.axes), name


def test_the_same_file_comes_out_twice(tmp_path):
    plates = chosen(["edge-of-chaos"])
    first, second = (next(write_gallery(plates, tmp_path / n, QUICK)) for n in "ab")
    assert first.read_bytes() == second.read_bytes()
    assert b"<dc:date>" not in first.read_bytes()


def test_the_files_of_the_docs_are_small_vectors():
    files = sorted((DOCS / "gallery").glob("*.svg"))
    assert [path.stem for path in files] == sorted(PLATES)
    for path in files:
        assert path.stat().st_size < 150_000, path.name
        root = ElementTree.fromstring(path.read_text(encoding="utf-8"))
        assert root.tag.endswith("svg")
        assert not root.findall(".//{http://www.w3.org/2000/svg}image"), path.name


def test_the_page_of_the_docs_is_what_the_command_writes():
    page = (DOCS / "gallery.md").read_text(encoding="utf-8")
    assert page == gallery_page()
    for plate in PLATES.values():
        assert f"`derive gallery {plate.name}`" in page
    assert re.findall(r"\]\((gallery/[^)]+)\)", page) == [f"gallery/{n}.svg" for n in PLATES]


def test_command_line(capsys, tmp_path):
    out = tmp_path / "figures"
    code, text, err = run(
        capsys, "gallery", "edge-of-chaos", "--out", str(out), "--page", str(tmp_path / "p.md")
    )
    assert (code, err) == (0, "")
    assert text.split() == [str(out / "edge-of-chaos.svg"), str(tmp_path / "p.md")]
    assert (out / "edge-of-chaos.svg").exists()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("nothing",), "derive: figure: expected one of growth, "),
        (("growth", "--width", "2"), "derive: Invalid value for '--width'"),
        (("growth", "--seeds", "1"), "derive: Invalid value for '--seeds'"),
    ],
)
def test_mistakes_are_one_line(capsys, args, message):
    code, out, err = run(capsys, "gallery", *args)
    assert (code, out) == (2, "")
    assert err.startswith(message)
    assert err.count("\n") == 1


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(DeriveError, match="out: expected a folder, got the file"):
        next(write_gallery(chosen([]), tmp_path / "taken"))
    with pytest.raises(UnknownNameError, match="got 'none'"):
        chosen(["none"])
