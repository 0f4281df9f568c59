"""The command line as a user meets it: output, JSON keys, exit status, errors of one line."""

from __future__ import annotations

import json
import math
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from derive.cli import main

ROOT = Path(__file__).parents[1]
SYSTEMS = ["torch-post", "torch-pre", "bert", "gpt2", "llama"]
EXTRAS = [pytest.mark.torch, pytest.mark.transformers]
PRE_JACOBIAN = "I + DF(N(x)) (1/s) diag(gain) (I - 11'/d - xhat xhat'/d)"


@pytest.fixture
def derive(capsys):
    """Run the command in this process; return its exit status, stdout and stderr."""

    def run(*args: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stop:
            main([str(a) for a in args])
        shown = capsys.readouterr()
        return int(stop.value.code or 0), shown.out, shown.err

    return run


def strict_json(text: str):
    """JSON without NaN and Infinity, which Python's reader would take."""

    def refuse(constant):
        raise AssertionError(f"not JSON: {constant}")

    return json.loads(text, parse_constant=refuse)


def as_process(*args: str, **options):
    return subprocess.run(
        [sys.executable, "-m", "derive.cli", *args],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        **options,
    )


# -- the entry point


def test_the_console_script_is_the_same_command():
    from importlib.metadata import entry_points

    (script,) = entry_points(group="console_scripts", name="derive")
    assert script.load() is main


def test_as_a_process():
    done = as_process("show", "pre")
    assert done.returncode == 0
    assert done.stderr == ""
    assert f"dy/dx = {PRE_JACOBIAN}\n" in done.stdout


def test_an_error_of_a_process_is_one_line():
    done = as_process("show", "psot")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("derive: placement: expected one of post, pre")
    assert done.stderr.count("\n") == 1


def test_a_closed_pipe_is_no_error():
    command = f"{sys.executable} -m derive.cli show post --format json | head -c 10"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("command", ["", "show", "depth", "check", "list", "catalogue", "report"])
def test_help(derive, command):
    status, out, err = derive(*command.split(), "--help")
    assert (status, err) == (0, "")
    assert out.startswith(f"Usage: derive {command}".rstrip())


def test_no_command_is_a_question_for_help(derive):
    status, out, err = derive()
    assert (status, err) == (0, "")
    assert all(name in out for name in ("show", "depth", "check", "report"))


def test_version(derive):
    import derive as package

    assert derive("--version") == (0, f"derive, version {package.__version__}\n", "")


# -- show


def test_show_names_and_defines_the_intermediates(derive):
    _, out, _ = derive("show", "post")
    assert "y     = N(x + F(x))\n" in out
    for line in ("u    = x + F(x)", "mean = 1' u/d", "s    = sqrt(var + eps)", "xhat = "):
        assert f"  {line}" in out
    assert "steps" not in out


def test_show_steps_names_the_rules(derive):
    _, out, _ = derive("show", "post", "--norm", "rmsnorm", "--sublayer", "ffn", "--steps")
    for rule in ("inner product", "quotient", "chain", "read off"):
        assert f"[{rule}]" in out


@pytest.mark.parametrize(
    ("block", "equation"),
    [
        ("post", "N(x + F(x))"),
        ("pre", "x + F(N(x))"),
        ("x + N(F(N(x)))", "x + N(F(N(x)))"),
        ("N(alpha*x+F(x))", "N(alpha x + F(x))"),
        ("x + N2(F(N1(x)))", "x + N_2(F(N_1(x)))"),
    ],
)
def test_show_takes_placements_and_equations(derive, block, equation):
    status, out, _ = derive("show", block, "--format", "json")
    assert status == 0
    assert strict_json(out)["block"]["text"] == equation


def test_show_layer_is_two_blocks(derive):
    status, out, _ = derive("show", "pre", "--norm", "rmsnorm", "--sublayer", "gated", "--layer")
    assert status == 0
    jacobian = re.search(r"^dy/dx += (.*)$", out, re.MULTILINE)[1]
    first, second = "(1/r_1) diag(gain_1)", "(1/r_2) diag(gain_2)"
    assert jacobian.index(second) < jacobian.index(first)


@pytest.mark.parametrize("sublayer", ["attention", "causal-attention", "rotary-attention"])
def test_show_attention_gives_the_three_paths(derive, sublayer):
    _, out, _ = derive("show", "post", "--sublayer", sublayer)
    assert all(f"{path} path" in out for path in ("value", "key", "query"))


@pytest.mark.parametrize("name", ["relu", "gelu", "gelu_tanh", "silu", "tanh", "phi"])
def test_show_activations(derive, name):
    status, out, _ = derive("show", "pre", "--sublayer", f"ffn:{name}")
    assert status == 0
    assert f"diag({name}'(a))" in out


def test_show_json(derive):
    _, out, _ = derive("show", "pre", "--format", "json", "--certify")
    found = strict_json(out)
    keys = {"block", "state", "output", "jacobian", "token_block", "definitions", "blocks"}
    assert keys | {"steps", "assumptions", "certificates"} == set(found)
    assert found["jacobian"]["text"] == PRE_JACOBIAN
    assert {"of", "before", "after", "rule", "why"} <= set(found["steps"][0])
    assert [c["holds"] for c in found["certificates"]] == [True] * 3


def test_show_latex_is_a_fragment_and_tex_a_document(derive):
    _, fragment, _ = derive("show", "post", "--format", "latex")
    _, document, _ = derive("show", "post", "--format", "tex")
    assert "\\begin{align*}" in fragment
    assert "\\documentclass" not in fragment
    assert document.startswith("\\documentclass")
    assert document.rstrip().endswith("\\end{document}")


def test_show_streams_is_a_block_matrix(derive):
    status, out, _ = derive("show", "residual")
    assert status == 0
    assert "dr'/dr = I" in out
    assert "dx'/dr = 0" in out
    assert "  s    = sqrt(var + eps)" in out
    found = strict_json(derive("show", "residual", "--format", "json", "--certify")[1])
    assert [e["stream"] for e in found["equations"]] == ["x", "r"]
    pairs = [(b["of"], b["by"]) for b in found["blocks"]]
    assert pairs == [("x'", "x"), ("x'", "r"), ("r'", "x"), ("r'", "r")]
    assert found["blocks"][2]["jacobian"]["text"] == "DF(x)"
    assert all(c["holds"] for c in found["certificates"])
    assert derive("show", "residual", "--steps")[1].count("-- d") == 4
    assert derive("show", "residual", "--format", "latex")[1].startswith("\\begin{align*}")
    assert derive("show", "residual", "--format", "tex")[1].startswith("\\documentclass")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["show", "mix-ln"], "mix-ln is a stack that changes its placement with depth"),
        (["show", "residual", "--layer"], "--layer: expected a placement with one stream"),
        (["depth", "mhc", "--layers", "1"], "no value for the scalar a"),
        (
            ["depth", "psot", "--layers", "0"],
            "residual, siamesenorm, hyper-connections, mhc, mix-ln",
        ),
        (["depth", "pre", "--hidden", "0"], "--hidden"),
    ],
)
def test_what_streams_and_mixtures_cannot_do(derive, command, message):
    status, out, err = derive(*command)
    assert (status, out) == (2, "")
    assert err.count("\n") == 1
    assert message in err


@pytest.mark.parametrize("name", ["mix-ln", "residual", "hyper-connections", "deepnorm"])
def test_depth_of_every_kind_of_placement(derive, name):
    (row,) = strict_json(derive("depth", name, "--layers", "4", *SMALL, "--json")[1])
    assert row["placement"] == name
    assert len(row["log_grad_norms"]) == 5
    assert row["log_norm"] is not None


def test_show_certify(derive):
    status, out, _ = derive("show", "pre", "--certify")
    assert status == 0
    assert out.count("[ok] identity:") == 2
    assert out.count("[ok] exact(d=3):") == 1


def test_show_certify_exits_1_if_a_certificate_fails(derive, monkeypatch):
    from derive.calculus.certificates import Certificate
    from derive.calculus.derivation import Derivation

    failed = (Certificate("identity", "1 = 0", False),)
    monkeypatch.setattr(Derivation, "check", lambda self: failed)
    status, out, err = derive("show", "pre", "--certify")
    assert (status, err) == (1, "")
    assert "[FAILS] identity: 1 = 0" in out


# -- depth

DEPTH_KEYS = {
    "placement",
    "layers",
    "width",
    "tokens",
    "seed",
    "log_norm",
    "grad_norms",
    "log_grad_norms",
    "branch_norm_sum",
    "log_first_order_remainder",
}
SMALL = ("--width", "8", "--tokens", "2")


def test_depth_json(derive):
    status, out, err = derive("depth", "post", "pre", "--layers", "0,3", *SMALL, "--json")
    assert (status, err) == (0, "")
    rows = strict_json(out)
    assert [(r["placement"], r["layers"]) for r in rows] == [
        ("post", 0),
        ("post", 3),
        ("pre", 0),
        ("pre", 3),
    ]
    for row in rows:
        assert set(row) >= DEPTH_KEYS
        assert row["width"] == 8
        assert len(row["grad_norms"]) == len(row["log_grad_norms"]) == row["layers"] + 1
        assert row["grad_norms"][-1] == pytest.approx(1)


def test_no_layers_are_the_identity(derive):
    _, out, _ = derive("depth", "post", "--layers", "0", *SMALL, "--json")
    (row,) = strict_json(out)
    assert row["log_norm"] == 0
    assert row["grad_norms"] == pytest.approx([1])
    assert row["branch_norm_sum"] == 0
    assert row["log_first_order_remainder"] is None  # log 0


def test_depth_without_weights_keeps_pre_norm_at_the_identity(derive):
    _, out, _ = derive("depth", "pre", "--layers", "5", "--std", "0", *SMALL, "--json")
    (row,) = strict_json(out)
    assert row["log_norm"] == pytest.approx(0, abs=1e-14)
    assert row["grad_norms"] == pytest.approx([1] * 6)


def test_depth_is_reproducible_and_depends_on_the_seed(derive):
    args = ("depth", "pre", "--layers", "2", *SMALL, "--json", "--seed")
    assert derive(*args, "1") == derive(*args, "1")
    assert derive(*args, "1") != derive(*args, "2")


@pytest.mark.parametrize(
    "options",
    [
        ("--norm", "rmsnorm"),
        ("--sublayer", "gated"),
        ("--sublayer", "causal-attention", "--heads", "2"),
        ("--hidden", "5"),
    ],
    ids=" ".join,
)
def test_depth_options(derive, options):
    base = ("depth", "post", "--layers", "2", *SMALL, "--json")
    status, out, _ = derive(*base, *options)
    assert status == 0
    assert strict_json(out)[0]["log_norm"] != strict_json(derive(*base)[1])[0]["log_norm"]


def test_depth_value_gives_a_scalar_of_the_block(derive):
    args = ("depth", "alpha*x + F(N(x))", "--layers", "3", "--std", "0", *SMALL, "--json")
    status, out, _ = derive(*args, "--value", "alpha=0.5")
    assert status == 0
    assert strict_json(out)[0]["log_norm"] == pytest.approx(3 * math.log(0.5))


def test_depth_table(derive):
    status, out, _ = derive("depth", "post", "x + N(F(x))", "--layers", "2", *SMALL)
    assert status == 0
    lines = out.splitlines()
    assert lines[0].split("  ")[0] == "placement"
    assert lines[1].startswith("post")
    assert lines[2].startswith("x + N(F(x))")
    assert "seed 0" in lines[-1]


@pytest.mark.parametrize(
    ("suffix", "start"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF")]
)
def test_depth_plot(derive, tmp_path, suffix, start):
    target = tmp_path / f"depth{suffix}"
    status, out, _ = derive("depth", "post", "pre", "--layers", "1,2", *SMALL, "--plot", target)
    assert status == 0
    assert out
    assert target.read_bytes().startswith(start)


# -- check

CHECK_KEYS = {"system", "placement", "norm", "max_rel_error", "dtype", "ok"}


@pytest.mark.torch
@pytest.mark.transformers
def test_check_json(derive):
    status, out, err = derive("check", *SYSTEMS, "--json")
    assert (status, err) == (0, "")
    rows = strict_json(out)
    assert [r["system"] for r in rows] == SYSTEMS
    for row in rows:
        assert set(row) >= CHECK_KEYS
        assert row["max_rel_error"] <= 1e-12
        assert row["dtype"] == "float64"
        assert row["ok"] is True
    assert [(r["placement"], r["norm"]) for r in rows] == [
        ("post", "layernorm"),
        ("pre", "layernorm"),
        ("post", "layernorm"),
        ("pre", "layernorm"),
        ("pre", "rmsnorm"),
    ]


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.transformers
@pytest.mark.timm
def test_check_all(derive):
    status, out, _ = derive("check", "all", "--json")
    rows = strict_json(out)
    assert status == 0
    assert [r["system"] for r in rows][: len(SYSTEMS)] == SYSTEMS
    checked = [r for r in rows if r["ok"] is not None]
    assert len(checked) >= 74
    for row in checked:
        assert set(row) >= CHECK_KEYS
        assert row["ok"] is True
        assert row["max_rel_error"] <= row["tolerance"] <= 1e-12
    rest = [r for r in rows if r["ok"] is None]
    assert {r["system"] for r in rest} == {"deepseek-v4"}
    for row in rest:
        assert set(row) == set(checked[0])
        assert row["note"]
        assert row["max_rel_error"] is None


@pytest.mark.torch
@pytest.mark.transformers
def test_a_package_that_is_not_installed_is_a_row_or_an_error(derive, monkeypatch):
    from derive import backends
    from derive.backends import zoo

    monkeypatch.setattr(backends, "SYSTEMS", ("torch-post",))
    monkeypatch.setattr(zoo, "ZOO", {"timm-block": zoo.ZOO["timm-block"]})
    for name in [m for m in sys.modules if m.partition(".")[0] == "timm"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if "site-packages" not in p])
    status, out, _ = derive("check", "all")
    assert status == 0
    assert "not checked: timm-block: timm is needed here" in out
    status, out, err = derive("check", "timm-block")
    assert (status, out) == (2, "")
    assert "pip install --no-deps timm torchscale" in err


@pytest.mark.torch
def test_check_without_names_is_check_all(derive, monkeypatch):
    from derive import crosscheck

    row = crosscheck.check("torch-post")
    asked: list[str] = []
    monkeypatch.setattr(crosscheck, "check", lambda name, **_: asked.append(name) or row)
    derive("check")
    default = asked.copy()
    asked.clear()
    derive("check", "all")
    assert asked == default
    assert asked[: len(SYSTEMS)] == SYSTEMS


@pytest.mark.torch
def test_check_table_and_sizes(derive):
    options = ("--layers", "2", "--tokens", "3", "--width", "8", "--seed", "5")
    status, out, _ = derive("check", "torch-post", "torch-pre", *options)
    assert status == 0
    header, *rows = [line.split() for line in out.splitlines()]
    assert header[0] == "system"
    assert [(r[0], r[3], r[-1]) for r in rows] == [
        ("torch-post", "2", "ok"),
        ("torch-pre", "2", "ok"),
    ]


@pytest.mark.torch
def test_check_exits_1_if_the_closed_form_is_wrong(derive, monkeypatch):
    from derive import crosscheck

    right = crosscheck.closed_jacobian

    def wrong(blocks, x, **options):
        return right(blocks, x, **{**options, "placement": "pre"})

    monkeypatch.setattr(crosscheck, "closed_jacobian", wrong)
    status, out, err = derive("check", "torch-post", "torch-pre", "--json")
    assert (status, err) == (1, "")
    post, pre = strict_json(out)
    assert not post["ok"]
    assert post["max_rel_error"] > 1e-3
    assert pre["ok"]
    status, out, _ = derive("check", "torch-post")
    assert status == 1
    assert out.rstrip().endswith("FAILS")


@pytest.mark.torch
def test_check_exits_1_if_the_result_is_not_finite(derive, monkeypatch):
    from derive import crosscheck

    monkeypatch.setattr(crosscheck, "relative_error", lambda found, reference: float("inf"))
    status, out, _ = derive("check", "torch-post", "--json")
    assert status == 1
    (row,) = strict_json(out)
    assert row["max_rel_error"] is None
    assert row["ok"] is False


def test_check_without_torch_names_the_extra(tmp_path):
    script = (
        "import sys; sys.modules['torch'] = None\n"
        "from derive.cli import main; main(['check', 'torch-post'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert "install normderive[torch]" in done.stderr


def test_show_imports_neither_torch_nor_matplotlib():
    script = (
        "import sys, derive.cli\n"
        "try: derive.cli.main(['show', 'post', '--format', 'tex'])\n"
        "finally: print([m for m in ('torch', 'transformers', 'matplotlib') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.stdout.rstrip().endswith("[]")


# -- list


@pytest.mark.parametrize("table", ["placements", "norms", "sublayers", "systems"])
def test_list(derive, table):
    status, out, _ = derive("list", table, "--json")
    assert status == 0
    names = [row["name"] for row in strict_json(out)]
    status, text, _ = derive("list", table)
    assert status == 0
    assert len(text.splitlines()) == len(names) + 1
    if table == "placements":
        assert names[:2] == ["post", "pre"]


# -- errors: exit 2, one line, nothing on stdout

BAD = {
    "placement": ("show psot", "placement: expected one of post, pre"),
    "norm": ("show post --norm lairnorm", "norm: expected one of layernorm, rmsnorm"),
    "sublayer": ("show post --sublayer moe", "sublayer: expected one of"),
    "activation": ("show post --sublayer ffn:rleu", "activation: expected one of relu"),
    "activation of attention": ("show post --sublayer attention:relu", "takes none"),
    "format": ("show post --format html", "--format"),
    "equation cut off": ("show 'x + F(N(x'", "block: cannot read"),
    "equation with an unknown map": ("show 'x + G(x)'", "G"),
    "equation of a scalar": ("show '1 + 2'", "block: expected a vector"),
    "equation that is code": ("show \"__import__('os').getcwd()\"", "block: expected"),
    "empty equation": ("show ''", "block: expected an equation"),
    "no block": ("show", "Missing argument"),
    "unknown option": ("show post --bogus", "--bogus"),
    "unknown command": ("shwo post", "No such command"),
    "no placement": ("depth", "Missing argument"),
    "depth of an unknown placement": ("depth psot", "placement: expected one of post, pre"),
    "negative layers": ("depth post --layers=-1", "--layers: expected integers >= 0"),
    "half a layer": ("depth post --layers 1.5", "--layers: expected integers"),
    "layers in words": ("depth post --layers six", "--layers: expected integers"),
    "empty layers": ("depth post --layers ''", "--layers: expected integers"),
    "one feature": ("depth post --width 1 --layers 1", "width: expected at least 2"),
    "no tokens": ("depth post --tokens 0 --layers 1", "tokens: expected at least 1"),
    "width in words": ("depth post --width wide", "--width"),
    "hidden width 0": ("depth post --hidden 0", "--hidden"),
    "negative std": ("depth post --std=-1", "--std"),
    "std that is no number": ("depth post --std nan --layers 1", "finite"),
    "negative seed": ("depth post --seed=-1", "--seed"),
    "heads": ("depth post --sublayer attention --heads 3 --layers 1", "heads: expected a divisor"),
    "scalar without a value": ("depth 'alpha*x + F(x)' --layers 1", "alpha"),
    "abstract sublayer": ("depth pre --sublayer abstract --layers 1", "F"),
    "plot suffix": ("depth post --layers 1 --plot depth.gif", ".png"),
    "plot without suffix": ("depth post --layers 1 --plot depth", ".png"),
    "plot nowhere": ("depth post --layers 1 --plot /nonexistent/depth.png", "/nonexistent/depth"),
    "unknown system": ("check bret", "system: expected all or some of torch-post"),
    "unknown system beside all": ("check all bret", "got 'bret'"),
    "unknown table": ("list placemnets", "placemnets"),
    "value without a number": ("depth post --value alpha=two", "--value"),
    "report into a file": ("report --out pyproject.toml", "pyproject.toml"),
    "report with bad layers": ("report --layers x", "--layers: expected integers"),
}
BAD_WITH_TORCH = {
    "no layers to check": ("check torch-post --layers 0", "layers: expected at least 1"),
    "heads do not divide": ("check torch-post --width 15", "heads"),
}


@pytest.mark.parametrize(
    ("command", "message"),
    [
        *(pytest.param(*case, id=name) for name, case in BAD.items()),
        *(pytest.param(*case, id=name, marks=EXTRAS) for name, case in BAD_WITH_TORCH.items()),
    ],
)
def test_an_error_is_one_line_and_exit_2(derive, monkeypatch, command, message):
    import shlex

    monkeypatch.chdir(ROOT)
    status, out, err = derive(*shlex.split(command))
    assert (status, out) == (2, ""), err
    assert err.startswith("derive: ")
    assert err.count("\n") == 1
    assert err.endswith("\n")
    assert message in err


def test_the_plot_is_refused_before_anything_is_computed(derive, monkeypatch):
    def compute(*args, **options):
        raise AssertionError("computed")

    monkeypatch.setattr("derive.depth.depth_rows", compute)
    status, _, err = derive("depth", "post", "--plot", "/nonexistent/depth.png")
    assert status == 2
    assert "/nonexistent/depth.png" in err


# -- progress


def test_no_progress_bar_without_a_terminal():
    done = as_process("depth", "post", "--layers", "1,2", *SMALL, "--json")
    assert done.returncode == 0
    assert done.stderr == ""


def test_a_progress_bar_on_a_terminal():
    main_end, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (24, 80))
    process = subprocess.Popen(
        [sys.executable, "-m", "derive.cli", "depth", "post", "--layers", "1,2", *SMALL, "--json"],
        stdout=subprocess.PIPE,
        stderr=terminal,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm"},
    )
    os.close(terminal)
    shown = b""
    while select.select([main_end], [], [], 120)[0]:
        try:
            chunk = os.read(main_end, 4096)
        except OSError:  # the other end is closed
            break
        if not chunk:
            break
        shown += chunk
    out = process.stdout.read()
    process.stdout.close()
    os.close(main_end)
    assert process.wait() == 0
    assert b"depth" in shown
    assert b"/2" in shown
    assert len(strict_json(out.decode())) == 2  # the bar is not in the result


# -- report


@pytest.fixture(scope="session")
def report(tmp_path_factory):
    """A report written by the command, small over depth and complete otherwise.

    The processes of a parallel run share it: the first one writes it, the others wait.
    """
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder, said = shared / "report", shared / "report.json"
    try:
        (shared / "report.lock").mkdir()
    except FileExistsError:
        for _ in range(600):
            if said.exists():
                break
            time.sleep(1)
    else:
        done = as_process("report", "--out", str(folder), "--layers", "0,2,4", "--width", "16")
        draft = said.with_suffix(".draft")
        draft.write_text(json.dumps([done.returncode, done.stdout, done.stderr]))
        draft.rename(said)
    status, out, err = json.loads(said.read_text())
    assert (status, err) == (0, "")
    return folder, {Path(line).name for line in out.splitlines()}


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.transformers
class TestReport:
    def test_says_what_it_wrote(self, report):
        folder, written = report
        assert {"index.html", "report.tex", "depth.svg"} <= written
        assert all((folder / name).stat().st_size for name in written)

    def test_page_shows_equations_figure_and_checks(self, report):
        page = (report[0] / "index.html").read_text(encoding="utf-8")
        assert page.count("<math") > 50
        assert "<svg" in page
        assert all(system in page for system in SYSTEMS)
        for norm in ("layernorm", "rmsnorm"):
            assert re.search(norm, page, re.IGNORECASE)

    def test_page_is_self_contained(self, report):
        page = (report[0] / "index.html").read_text(encoding="utf-8")
        assert "<script" not in page
        assert not re.search(r"""(?:src|href)=["']?(?:https?:)?//""", page)

    @pytest.mark.tex
    def test_tex_compiles(self, report, tmp_path):
        folder = tmp_path / "tex"
        shutil.copytree(report[0], folder)
        for _ in range(2):
            done = subprocess.run(
                ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "report.tex"],
                cwd=folder,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
            )
            assert done.returncode == 0, done.stdout[-2000:]
        assert (folder / "report.pdf").stat().st_size > 50_000

    @pytest.mark.browser
    def test_browser_lays_equations_out(self, report, tmp_path):
        browser = next(
            filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome")))
        )
        shot = tmp_path / "page.png"
        done = subprocess.run(
            [
                browser,
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                f"--user-data-dir={tmp_path / 'profile'}",
                f"--screenshot={shot}",
                "--window-size=1200,2400",
                (report[0] / "index.html").as_uri(),
            ],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        assert shot.read_bytes().startswith(b"\x89PNG")


@pytest.mark.torch
@pytest.mark.transformers
def test_report_exits_1_if_a_check_fails(derive, monkeypatch, tmp_path):
    from derive import report as module

    written = module.Written((tmp_path / "index.html",), ok=False)
    monkeypatch.setattr(module, "write_report", lambda *args, **options: written)
    status, out, err = derive("report", "--out", tmp_path)
    assert status == 1
    assert out == f"{tmp_path / 'index.html'}\n"
    assert err.count("\n") == 1
