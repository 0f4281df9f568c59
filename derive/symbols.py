r"""The shared scalar symbols and the names that expressions print under.

Nobody else makes these symbols, so that ``d`` in one expression is ``d`` in every other.

=========  =========================================================  ==================
symbol     meaning                                                    assumptions
=========  =========================================================  ==================
``d``      width of a token, the number of features                   positive integer
``n``      number of tokens                                           positive integer
``f``      hidden width of a feed-forward sublayer                    positive integer
``d_h``    width of an attention head                                 positive integer
``H``      number of attention heads                                  positive integer
``L``      number of blocks                                           positive integer
``l``      number of a block, counted from 1                          positive integer
``M``      number of memory tokens in cross-attention                 positive integer
``G``      number of groups of a group norm                           positive integer
``X``      number of experts                                          positive integer
``eps``    the constant added to the variance                         positive
``alpha``  weight of the residual path                                real
``beta``   weight of the branch                                       real
``scale``  factor of the attention scores                             positive
=========  =========================================================  ==================
"""

from __future__ import annotations

import re

import sympy as sp

__all__ = [
    "G",
    "H",
    "L",
    "M",
    "X",
    "alpha",
    "beta",
    "d",
    "d_h",
    "eps",
    "f",
    "l",
    "latex_name",
    "n",
    "scale",
]


class _Named(sp.Symbol):
    """A symbol that prints in LaTeX by `latex_name`."""

    def _latex(self, printer: object, **_: object) -> str:
        return latex_name(self.name)


d = sp.Symbol("d", positive=True, integer=True)
n = sp.Symbol("n", positive=True, integer=True)
f = sp.Symbol("f", positive=True, integer=True)
d_h = sp.Symbol("d_h", positive=True, integer=True)
H = sp.Symbol("H", positive=True, integer=True)
M = sp.Symbol("M", positive=True, integer=True)
G = sp.Symbol("G", positive=True, integer=True)
X = sp.Symbol("X", positive=True, integer=True)
L = sp.Symbol("L", positive=True, integer=True)
l = sp.Symbol("l", positive=True, integer=True)
eps = _Named("eps", positive=True)
alpha = sp.Symbol("alpha", real=True)
beta = sp.Symbol("beta", real=True)
scale = _Named("scale", positive=True)

_STEMS = {
    "gain": r"\gamma",
    "bias": r"\beta",
    "mean": r"\mu",
    "var": r"\sigma^{2}",
    "xhat": r"\hat{x}",
    "eps": r"\epsilon",
    "scale": r"\lambda",
}
_WHOLE = {"sigma2": r"\sigma^{2}"}
# fmt: off
_GREEK = frozenset((
    "alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "kappa", "lambda", "mu",
    "nu", "xi", "pi", "rho", "sigma", "tau", "phi", "chi", "psi", "omega", "Gamma", "Delta",
    "Theta", "Lambda", "Xi", "Pi", "Sigma", "Phi", "Psi", "Omega",
))
# fmt: on


def latex_name(name: str) -> str:
    r"""LaTeX of an identifier: compilable, unambiguous, never an empty subscript.

    A stem and one subscript are split at the first inner underscore; a stem that is a known
    quantity or a Greek letter becomes its command, a longer stem is set upright, and an
    underscore inside the subscript is escaped. Trailing digits are a subscript.

    Parameters
    ----------
    name : str
        A Python identifier, for example ``"W_O"``, ``"xhat_1"`` or ``"W_out_proj"``.

    Returns
    -------
    str
        For example ``W_{O}``, ``\hat{x}_{1}``, ``W_{\mathrm{out\_proj}}``.

    Examples
    --------
    >>> print(latex_name("xhat_1"), latex_name("W_out_proj"), latex_name("s2"))
    \hat{x}_{1} W_{\mathrm{out\_proj}} s_{2}
    """
    if name in _WHOLE:
        return _WHOLE[name]
    match = re.fullmatch(r"([^\W\d_]+)_?(.*)", name)
    if match is None or name.endswith("_"):
        return _upright(name)
    stem, subscript = match.groups()
    body = _STEMS.get(stem)
    if body is None:
        body = "\\" + stem if stem in _GREEK else stem if len(stem) == 1 else _upright(stem)
    if not subscript:
        return body
    base, caret, power = body.partition("^")  # \sigma^{2} takes its index before the power
    return f"{base}_{{{_subscript(subscript)}}}{caret}{power}"


def _subscript(text: str) -> str:
    numbered = re.fullmatch(r"(.+)_(\d+)", text)
    if numbered:  # the weight W_Q of the first layer
        return f"{_subscript(numbered[1])},{numbered[2]}"
    if re.fullmatch("[a-z]_[a-z]", text):  # the mean square of c_q
        return f"{text[0]}_{{{text[2]}}}"
    return text if len(text) == 1 or text.isdigit() else _upright(text)


def _upright(text: str) -> str:
    return r"\mathrm{" + text.replace("_", r"\_") + "}"
