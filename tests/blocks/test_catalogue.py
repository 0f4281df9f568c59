"""The catalogue: every entry derives, is certified, compiles, and is told from every other one."""

import itertools
import json
import re
import subprocess
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import sympy as sp

import derive
from derive import symbols
from derive.blocks.build import block, layer, state, streams
from derive.blocks.catalogue import (
    ATTENTIONS,
    CATALOGUES,
    DEEPNORM,
    FEED_FORWARDS,
    NORM_VARIANTS,
    catalogue,
    norm_derivation,
    sublayer_derivation,
)
from derive.blocks.norms import NORMS, LayerNorm, norm
from derive.blocks.placements import ALIASES, PLACEMENTS, STREAM_SCALARS, STREAMS, placement
from derive.calculus.atoms import State, Vector
from derive.calculus.certificates import certify_exact, certify_identity
from derive.calculus.derivation import derivation
from derive.calculus.normal_form import equal
from derive.cli import main
from derive.errors import UnknownNameError
from derive.linalg import materialise
from derive.lower import AbstractMap, lower
from derive.render.catalogue import catalogue_markdown, catalogue_tex
from derive.render.latex import derivation_latex, document_tex

X = state()
CASES = list(
    itertools.product(PLACEMENTS, ("layernorm", "rmsnorm"), ("abstract", "ffn", "attention"))
)
PAGE = Path(__file__).parents[2] / "docs" / "catalogue.md"


@cache
def derived(case):
    return derivation(block(*case), X)


@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_every_placement_is_exact(case):
    """The Jacobian against dual numbers over the rationals, which share no rule with it."""
    D = derived(case)
    certificate = certify_exact(D.block, D.jacobian, d=3, n=2)
    assert certificate.holds, certificate


@pytest.mark.parametrize("case", [c for c in CASES if c[2] == "abstract"], ids="-".join)
def test_every_placement_is_proved_for_every_width(case):
    D = derived(case)
    certificate = certify_identity(D.output, D.jacobian, X)
    assert certificate is not None
    assert certificate.holds, certificate


@pytest.mark.parametrize("placement", ["pre", "sandwich", "b2t"])
def test_check_gives_the_certificates_of_all_parts(placement):
    kinds = [c.kind for c in derived((placement, "layernorm", "ffn")).check()]
    assert kinds.count("identity") >= 3
    assert kinds[-1].startswith("exact(d=3")
    assert all(c.holds for c in derived((placement, "layernorm", "ffn")).check())


@pytest.mark.parametrize("name", NORM_VARIANTS)
def test_every_norm_is_certified(name):
    certificates = norm_derivation(name).check()
    assert all(c.holds for c in certificates), certificates
    assert certificates[-1].kind == "exact(d=3)"
    identity = [c for c in certificates if c.kind == "identity"]
    assert bool(identity) == (name != "groupnorm")  # its sum over groups carries an index


@pytest.mark.parametrize("placement", ["post", "pre", "sandwich", "parallel"])
@pytest.mark.parametrize("kind", NORMS)
def test_every_norm_in_a_placement(kind, placement):
    D = derivation(block(placement, kind), X)
    assert certify_exact(D.block, D.jacobian, d=3).holds


@pytest.mark.parametrize("name", [*FEED_FORWARDS, *ATTENTIONS])
def test_every_sublayer_is_exact(name):
    D = sublayer_derivation(name)
    assert certify_exact(D.block, D.jacobian, d=3, n=2).holds


# --- several streams -------------------------------------------------------------------------


@cache
def stream_blocks(name, norm_, sublayer):
    return streams(name, norm_, sublayer)


STREAM_CASES = list(itertools.product(STREAMS, ("layernorm", "rmsnorm"), ("abstract", "ffn")))
STREAM_CASES += [(name, "layernorm", "attention") for name in STREAMS]


@pytest.mark.slow
@pytest.mark.parametrize("case", STREAM_CASES, ids="-".join)
def test_every_block_of_the_block_matrix_is_exact(case):
    for (out, by), D in stream_blocks(*case).items():
        found = certify_exact(D.block, D.jacobian, d=3, n=2, variable=by)
        assert found.holds, (out, by, found)
        if by == "r":  # and the other stream's derivative is another one
            other = certify_exact(D.block, D.jacobian, d=3, n=2, variable="x")
            assert not other.holds or stream_blocks(*case)[out, "x"].jacobian == D.jacobian


@pytest.mark.torch
@pytest.mark.parametrize("name", STREAMS)
def test_block_matrix_is_what_autodiff_finds(name):
    """The two-stream map in torch, with torch's own LayerNorm, linear maps and gelu."""
    torch = pytest.importorskip("torch")
    d, hidden = 6, 10
    torch.manual_seed(0)
    norms = {key: torch.nn.LayerNorm(d, eps=1e-5).double() for key in ("N", "N1", "N2")}
    for module in norms.values():
        torch.nn.init.uniform_(module.weight, 0.5, 1.5)
        torch.nn.init.normal_(module.bias)
    mlp = torch.nn.Sequential(
        torch.nn.Linear(d, hidden), torch.nn.GELU(), torch.nn.Linear(hidden, d)
    ).double()
    rng = np.random.default_rng(1)
    scalars = {
        key: float(v) for key, v in zip(STREAM_SCALARS, rng.uniform(0.2, 1.5, 9), strict=True)
    }
    here = {stream: rng.normal(size=d) for stream in ("x", "r")}
    equations = STREAMS[name].equations

    def forward(x, r):
        scope = {**norms, **scalars, "F": mlp, "x": x, "r": r}
        return tuple(eval(equations[out], {"__builtins__": {}}, scope) for out in ("x", "r"))

    inputs = tuple(torch.tensor(here[stream]) for stream in ("x", "r"))
    reference = torch.autograd.functional.jacobian(forward, inputs)
    weights = {"eps": 1e-5, **scalars}
    for key, module in norms.items():
        label = key.replace("N", "_") if key != "N" else ""
        weights[f"gain{label}"] = module.weight.detach().numpy()
        weights[f"bias{label}"] = module.bias.detach().numpy()
    for number, linear in (("1", mlp[0]), ("2", mlp[2])):
        weights[f"W_{number}"] = linear.weight.detach().numpy()
        weights[f"b_{number}"] = linear.bias.detach().numpy()
    for (out, by), D in stream_blocks(name, "layernorm", "ffn").items():
        other = "r" if by == "x" else "x"
        constant = {State(other, symbols.d): Vector("other", symbols.d)}
        operator = lower(D.jacobian.xreplace(constant), {**weights, "other": here[other]}, here[by])
        expected = reference[("x", "r").index(out)][("x", "r").index(by)].numpy()
        np.testing.assert_allclose(materialise(operator), expected, atol=1e-13, err_msg=(out, by))


# --- which placements are the same -----------------------------------------------------------

ONE = {symbols.alpha: sp.S.One, symbols.beta: sp.S.One}
SAME_EQUATION = [("rezero", "skipinit"), ("skipinit", "fixup"), ("pre", "sub-ln")]
"""Blocks that are the same equation: they differ in how their scalars or weights start, and Sub-LN
in a norm inside the sublayer, which an abstract sublayer does not show."""

BLOCKS = [p for p in PLACEMENTS if not PLACEMENTS[p].is_layer]


@pytest.mark.parametrize(("left", "right"), SAME_EQUATION)
def test_same_equation(left, right):
    assert block(left) == block(right)


@pytest.mark.parametrize(
    ("special", "general"),
    [
        ("post", "deepnorm"),
        ("pre", "scaled-residual"),
        ("pre", "lns"),
        ("normed-residual", "scaled-normed-residual"),
        ("no-norm", "rezero"),
        ("pre-final", "keel"),
    ],
)
def test_equal_where_the_scalars_are_one(special, general):
    with_ones = derived((general, "layernorm", "abstract")).jacobian.xreplace(ONE)
    assert equal(derived((special, "layernorm", "abstract")).jacobian, with_ones)


def test_a_norm_inside_the_sublayer_tells_sub_ln_from_pre():
    pre, sub = (derived((p, "layernorm", "ffn")).jacobian for p in ("pre", "sub-ln"))
    assert pre != sub


@pytest.mark.parametrize("kind", ["layernorm", "rmsnorm"])
def test_residual_scale_and_branch_scale_are_equal_up_to_eps(kind):
    """With one norm: the same Jacobian at eps = 0, and at eps/alpha^2 in place of eps."""
    alpha = sp.Symbol("alpha", positive=True)
    F = derive.Sublayer("F")

    def jacobians(eps_left, eps_right):
        left = derivation(norm(kind, eps=eps_left)(alpha * X + F(X)), X)
        right = derivation(norm(kind, eps=eps_right)(X + F(X) / alpha), X)
        return left.jacobian, right.jacobian

    eps = symbols.eps
    assert equal(*jacobians(eps, eps / alpha**2))
    assert equal(*jacobians(0, 0))
    assert not equal(*jacobians(eps, eps))


def test_shared_and_separate_norms_are_equal_with_equal_gains():
    """The equation with N1 and N2 the same norm; with two norms it is another one."""
    shared = derivation(layer("parallel", (LayerNorm(),)), X)
    separate = derivation(layer("parallel-two-norms", (LayerNorm(), LayerNorm())), X)
    numbers = [_jacobian(D.block, X) for D in (shared, separate)]
    np.testing.assert_allclose(*numbers, atol=1e-12)


def _weights(expr, d=6):
    rng = np.random.default_rng(5)
    out = {"eps": 1e-5, "alpha": 1.7, "beta": 0.6}
    for stem in ("gain", "bias", "lam", "omega"):
        for suffix in ("", "_1", "_2", "_3", "_i"):
            out[stem + suffix] = rng.uniform(0.5, 1.5, d)
    h, dh = 2, 3
    for letter in "QKV":
        out[f"W_{letter}"] = rng.normal(size=(h, dh, d)) / np.sqrt(d)
    out["W_O"] = rng.normal(size=(h, d, dh)) / np.sqrt(d)
    out |= {"W_1": rng.normal(size=(8, d)) / 2, "b_1": rng.normal(size=8)}
    out |= {"W_2": rng.normal(size=(d, 8)) / 2, "b_2": rng.normal(size=d)}
    return out


def _jacobian(expr, x, n=3, d=6):
    """The Jacobian at random numbers, the same for every expression with the same names."""
    rng = np.random.default_rng(6)
    matrix = rng.normal(size=(d, d)) / np.sqrt(d)
    maps = {
        "F": AbstractMap(
            lambda z: np.tanh(z @ matrix.T),
            lambda z: (1 - np.tanh(z @ matrix.T) ** 2)[:, :, None] * matrix,
        )
    }
    at = np.random.default_rng(8).normal(size=(n, d))
    return materialise(lower(derivation(expr, x).jacobian, _weights(expr), at, maps))


def _same_gains(name, kind):
    """The block with every norm the same one, so that only the placement is compared."""
    entry = PLACEMENTS[name]
    equation = re.sub(r"\bN\d", "N", entry.equation)
    return block(equation, norm(kind), "abstract", X)


@cache
def at_random(name, kind):
    return _jacobian(_same_gains(name, kind), X)


@pytest.mark.parametrize("kind", ["layernorm", "rmsnorm"])
@pytest.mark.parametrize(("left", "right"), list(itertools.combinations(BLOCKS, 2)))
def test_all_other_pairs_differ(left, right, kind):
    a, b = at_random(left, kind), at_random(right, kind)
    difference = np.abs(a - b).max() / np.abs(b).max()
    same = block(left) == block(right)
    assert (difference < 1e-12) if same else (difference > 1e-3), difference


def test_the_pairs_that_are_the_same_are_those_listed():
    found = {
        (left, right)
        for left, right in itertools.combinations(BLOCKS, 2)
        if block(left) == block(right)
    }
    assert found == {
        ("rezero", "skipinit"),
        ("rezero", "fixup"),
        ("skipinit", "fixup"),
        ("pre", "sub-ln"),
    }


# --- tables, page, document ------------------------------------------------------------------

KEYS = {
    "placements": "equation jacobian kind name residual scalars source used_by where",
    "norms": "equation jacobian kind name note options source where",
    "sublayers": "equation jacobian kind name note source where",
    "systems": "attention config decoder_depth depth eps feed_forward final_norm heads hidden init "
    "kv_heads name norm notes placement source verified width year",
}


@pytest.mark.parametrize("table", CATALOGUES)
def test_rows_have_stable_keys_and_names(table):
    rows = catalogue(table)
    assert {tuple(sorted(row)) for row in rows} == {tuple(KEYS[table].split())}
    assert len({row["name"] for row in rows}) == len(rows)
    json.dumps(rows, allow_nan=False)


def test_every_placement_has_a_source_and_says_what_becomes_of_the_residual():
    rows = catalogue("placements")
    assert [r["name"] for r in rows if not (r["source"] and r["residual"])] == []
    assert len(rows) >= 32


def test_unknown_table():
    with pytest.raises(UnknownNameError, match="catalogue: expected one of placements"):
        catalogue("optimisers")


@pytest.mark.parametrize("table", CATALOGUES)
def test_the_command_lists_the_rows(table, capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["list", table, "--json"])
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(catalogue(table)))
    with pytest.raises(SystemExit, match="0"):
        main(["list", table])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == [r["name"] for r in catalogue(table)]


def test_the_committed_page_is_the_generated_one():
    assert PAGE.read_text(encoding="utf-8") == catalogue_markdown(), (
        "run: derive catalogue --out docs/catalogue.md"
    )


def test_the_page_says_what_tables_get_wrong():
    page = catalogue_markdown()
    for system in ("T5", "BART", "mBART", "OPT-350m", "GPT-2", "DeepNorm"):
        assert system in page.partition("## Placements")[0]
    for row in DEEPNORM:
        assert f"| {row['stack']} | {row['alpha']} | {row['beta']} |" in page
    entries = [r for t in ("placements", "norms", "sublayers") for r in catalogue(t)]
    entries = [r["name"] for r in entries if r["kind"] != "activation"]
    further = ["The constants of DeepNorm", "Proposals that are not in the table", "Activations"]
    assert sorted(re.findall("^### (.*)$", page, re.MULTILINE)) == sorted(entries + further)
    assert {"[value path]", "[key path]", "[query path]"} <= set(re.findall(r"\[\w+ path\]", page))


def test_the_command_writes_page_and_document(tmp_path, capsys):
    out, tex = tmp_path / "c.md", tmp_path / "c.tex"
    with pytest.raises(SystemExit, match="0"):
        main(["catalogue", "--out", str(out), "--tex", str(tex)])
    assert out.read_text(encoding="utf-8") == catalogue_markdown()
    assert tex.read_text(encoding="utf-8") == catalogue_tex()
    assert capsys.readouterr().out.split() == [str(out), str(tex)]


def test_deepnorm_constants_of_an_encoder_decoder_are_the_rounded_exact_ones():
    """alpha = 3^(-3/16) and beta = 2^(-1/2) 3^(3/16), from K 2 beta^2/alpha^2 = 1 and the like."""
    three = sp.Rational(3) ** sp.Rational(3, 16)
    alpha, beta = (sp.N(v, 2) for v in (1 / three, three / sp.sqrt(2)))
    row = next(r for r in DEEPNORM if r["stack"].endswith("the encoder"))
    assert row["alpha"].startswith(str(alpha))
    assert row["beta"].startswith(str(beta))


def _compiled(source, folder):
    (folder / "c.tex").write_text(source, encoding="utf-8")
    run = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "c.tex"],
        cwd=folder,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=300,
    )
    log = (folder / "c.log").read_text(errors="replace")
    assert run.returncode == 0, log[-2000:]
    return [float(pt) for pt in re.findall(r"Overfull \\[hv]box \(([\d.]+)pt too", log)]


@pytest.mark.tex
def test_the_document_compiles_and_stays_on_the_page(tmp_path):
    assert [pt for pt in _compiled(catalogue_tex(), tmp_path) if pt > 5] == []


@pytest.mark.tex
@pytest.mark.slow
def test_every_case_compiles(tmp_path):
    sections = [("-".join(case), derivation_latex(derived(case))) for case in CASES]
    wide = [pt for pt in _compiled(document_tex("Every placement", sections), tmp_path) if pt > 5]
    assert wide == []


@pytest.mark.parametrize(("alias", "name"), ALIASES.items())
def test_other_names_mean_the_same_placement(alias, name):
    assert alias not in PLACEMENTS
    assert placement(alias.upper()) is PLACEMENTS[name]
    assert derive.block(alias) == derive.block(name)
