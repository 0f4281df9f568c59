"""`derive advise`: text, JSON, the ranking, mistakes."""

import pytest

from derive.blocks.placements import MIXES, PLACEMENTS, STREAMS
from derive.render.advise import advice_text, ranking_cells

from . import command

pytestmark = pytest.mark.slow

KEYS = [
    "placement",
    "norm",
    "sublayer",
    "init",
    "layers",
    "width",
    "tokens",
    "target",
    "bound",
    "gradient",
    "growth",
    "weights",
    "update",
    "limit",
    "edges",
    "published",
    "measured",
    "refused",
]


def run(capsys, *args):
    return command.run(capsys, "advise", *args)


def rows_of(capsys, *args):
    return command.rows_of(capsys, "advise", *args)


def test_text_says_what_how_sure_and_which_scale(capsys):
    code, out, err = run(capsys, "--placement", "sandwich", "--layers", "12", "--target", "1.5")
    assert (code, err) == (0, "")
    lines = [line.strip() for line in out.splitlines()]
    assert lines[0] == "sandwich, layernorm, ffn:relu, init lecun: 12 blocks of width 1024, 1 token"
    for line in (
        "E|g_0|^2/E|g_L|^2     13 = L + 1 [closed form]",
        "as L grows            like L^1; exponent 0 [closed form]",
        "to hold the gradient ratio between 1/1.5 and 1.5:",
        "branch  times 0.2041 = sqrt(R - 1)/sqrt(L) ~ L^-0.50 [closed form]",
        "init    no effect, whatever its scale",
    ):
        assert line in lines


def test_json_has_the_documented_keys(capsys):
    args = ("--placement", "post", "--placement", "keel", "--layers", "6")
    rows = rows_of(capsys, *args, "--sublayer", "ffn:gelu")
    assert [list(row) for row in rows] == [KEYS] * 2
    assert [row["placement"] for row in rows] == ["post", "keel"]
    edges = [(edge["condition"], edge["knob"]) for edge in rows[0]["edges"]]
    assert edges == [(c, k) for c in ("gradient", "update") for k in ("skip", "branch", "init")]
    assert rows[0]["limit"]["kind"] == "exponential"


def test_all_ranks_the_catalogue_and_tells_what_is_missing(capsys):
    code, out, err = run(capsys, "--placement", "all", "--layers", "6")
    assert (code, err) == (0, "")
    names = [line.split()[0] for line in out.splitlines()[1:]]
    assert {*PLACEMENTS, *STREAMS, *MIXES} <= {name.rstrip(":") for name in names}
    assert names.index("post") < names.index("pre") < names.index("no-norm")
    assert "mhc: values: no value for the scalar a" in out


def test_drawn_stacks_stand_beside_the_law(capsys):
    args = ("--placement", "pre", "--layers", "3", "--width", "32", "--monte-carlo", "--seeds", "6")
    (row,) = rows_of(capsys, *args)
    found = row["measured"]
    assert (found["width"], found["seeds"]) == (32, 6)
    low, high = found["growth"]["ci"]
    assert low < found["growth"]["mean"] < high
    code, out, _ = run(capsys, *args)
    assert code == 0
    assert "6 stacks of width 32" in out


def test_a_law_without_a_rule_and_a_spread_is_told_as_such(capsys):
    args = ("--placement", "hybridnorm", "--layers", "4", "--tokens", "3")
    code, out, _ = run(capsys, *args, "--sublayer", "causal-attention,ffn:relu")
    assert code == 0
    assert "no rule says what the ratio does" in out
    assert "of one stack: not known here" in out
    assert "3 tokens" in out


def test_gaussian_scores_leave_the_updates_open(capsys):
    args = ("--placement", "pre", "--layers", "2", "--tokens", "3", "--scores", "gaussian")
    (row,) = rows_of(capsys, *args, "--sublayer", "attention")
    assert row["update"]["amplification"] is None
    assert {edge["condition"] for edge in row["edges"]} == {"gradient"}
    code, out, _ = run(capsys, *args, "--sublayer", "attention")
    assert code == 0
    assert "update amplification  not known here" in out


def test_a_refused_row_has_its_reason(capsys):
    row = dict.fromkeys(KEYS) | {"placement": "x", "tokens": 1, "refused": "because"}
    assert advice_text(row).endswith("none: because")
    assert ranking_cells([row])[1] == []


@pytest.mark.parametrize(
    ("args", "match"),
    [
        ((), "Missing option '--placement'"),
        (("--placement", "nope"), "expected one of post, pre"),
        (("--placement", "x + ("), "cannot read"),
        (("--placement", "mhc"), "no value for the scalar a"),
        (("--placement", "post", "--target", "1"), "target: expected above 1, got 1"),
        (("--placement", "post", "--target", "nan"), "target: expected above 1, got nan"),
        (("--placement", "post", "--bound", "-1"), "bound: expected above 0, got -1"),
        (("--placement", "post", "--layers", "0"), "layers: expected at least 1, got 0"),
        (("--placement", "post", "--width", "2"), "width: expected at least 3, got 2"),
        (("--placement", "post", "--norm", "dyt"), "norm: expected LayerNorm"),
        (("--placement", "post", "--init", "x"), "init: expected one of lecun"),
        (("--placement", "post", "--sublayer", ","), "sublayers: expected at least one"),
        (("--placement", "post", "--value", "a"), "--value: expected NAME=NUMBER"),
        (("--placement", "all", "--sublayer", "abstract"), "whose moments are known"),
        (("--placement", "post", "--monte-carlo", "--seeds", "1"), "--seeds: expected at least 2"),
        (("--placement", "no-norm", "--layers", "2000"), "layers: expected fewer"),
    ],
)
def test_mistakes_are_one_line(capsys, args, match):
    code, out, err = run(capsys, *args)
    assert (code, out) == (2, "")
    assert match in err
    assert err.count("\n") == 1
