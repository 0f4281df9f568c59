"""`derive paths`: output, JSON, figures and mistakes."""

import math

import pytest

from . import command

SMALL = ("--width", "6", "--tokens", "1", "--layers", "3")


def rows_of(capsys, *args):
    return command.rows_of(capsys, "paths", *args)


KEYS = {
    "placement",
    "width",
    "tokens",
    "seed",
    "layers",
    "order",
    "longest",
    "log_norm",
    "lengths",
    "rest_overlap",
    "effective_length",
    "contributions",
    "strong_paths",
}


def test_json_has_the_documented_keys(capsys):
    (row,) = rows_of(capsys, "pre", *SMALL, "--order", "2")
    assert set(row) == KEYS
    assert set(row["lengths"][0]) == {
        "length",
        "log_norm",
        "log_frobenius_norm",
        "overlap",
        "norm_share",
        "log_energy",
        "energy_share",
        "log_error",
        "log_error_bound",
    }
    assert set(row["effective_length"]) == {"overlap", "energy", "norm"}
    assert set(row["contributions"][0]) == {
        "layer",
        "branch",
        "overlap",
        "relative_norm",
        "log_norm",
    }
    assert set(row["strong_paths"]) == {"certified", "examined", "log_rest", "paths"}
    total = math.fsum(r["overlap"] for r in row["lengths"]) + row["rest_overlap"]
    assert total == pytest.approx(1.0, abs=1e-12)
    assert row["effective_length"]["norm"] is None  # not all lengths are there


def test_json_of_the_continuum(capsys):
    (row,) = rows_of(capsys, "pre", *SMALL, "--continuum")
    assert set(row) == KEYS | {"continuum"}
    assert set(row["continuum"]) == {"refinements", "magnus"}
    assert set(row["continuum"]["magnus"]) == {"norms", "errors", "action", "converges"}
    assert [r["parts"] for r in row["continuum"]["refinements"]] == [1, 2, 4, 8]


def test_table(capsys):
    code, out, err = command.run(
        capsys, "paths", "pre", "parallel", "--heads", "2", *SMALL, "--order", "1", "--continuum"
    )
    assert (code, err) == (0, "")
    assert "pre, L = 3, log|M| = " in out
    assert "\n>1 " in out
    assert "effective path length: " in out
    assert ":A " in out
    assert "Magnus series" in out


@pytest.mark.parametrize("layers", ["0", "1", "0,1,2"])
@pytest.mark.parametrize("order", ["0", "9"])
def test_edges_of_depth_and_order(capsys, layers, order):
    args = ("pre", "post", "--width", "4", "--tokens", "1", "--layers", layers, "--order", order)
    rows = rows_of(capsys, *args, "--continuum")
    assert [r["layers"] for r in rows] == [int(k) for k in layers.split(",")] * 2
    assert all(len(r["lengths"]) == min(int(order), r["layers"]) + 1 for r in rows)


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_figure(capsys, tmp_path, suffix):
    pytest.importorskip("matplotlib")
    path = tmp_path / f"paths.{suffix}"
    code, _, err = command.run(
        capsys, "paths", "pre", "post", *SMALL, "--order", "2", "--plot", str(path)
    )
    assert (code, err) == (0, "")
    assert path.stat().st_size > 1000


def test_figure_shows_the_overlaps():
    pytest.importorskip("matplotlib")
    from derive.errors import ShapeError
    from derive.render.paths_figure import paths_figure

    lengths = [{"length": k, "overlap": v, "log_norm": 0.0} for k, v in enumerate((0.5, 0.3))]
    row = {
        "placement": "pre",
        "layers": 4,
        "order": 1,
        "longest": 4,
        "lengths": lengths,
        "rest_overlap": 0.2,
    }
    bars, _ = paths_figure([row]).axes
    assert [p.get_height() for p in bars.patches] == [0.5, 0.3, 0.2]
    assert [t.get_text() for t in bars.get_xticklabels()] == ["0", "1", ">1"]
    with pytest.raises(ShapeError, match="rows: expected at least one stack"):
        paths_figure([])


MISTAKES = {
    "layers": (("pre", "--layers", "many"), "--layers: expected integers"),
    "negative": (("pre", "--layers=-1"), "--layers: expected integers >= 0"),
    "order": (("pre", "--order=-1"), "--order"),
    "placement": (("psot",), "placement: expected one of post, pre"),
    "abstract": (("pre", "--sublayer", "abstract"), "needs an AbstractMap"),
    "overflow": (("pre", "--std", "1e300"), ""),
    "figure": (("pre", "--plot", "p.doc"), "--plot: expected a name that ends in"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_mistakes_are_one_line(capsys, case):
    args, message = MISTAKES[case]
    code, out, err = command.run(capsys, "paths", *args)
    assert (code, out) == (2, "")
    assert err.startswith("derive: ")
    assert err.count("\n") == 1
    assert message in err
