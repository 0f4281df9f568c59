r"""The law of a placement over depth: its recursion, its solution in L, its numbers.

For a stack of L blocks with independent weights, :math:`v_l = \mathbb E|x_l|^2/d` and the gradient
:math:`g_l = \partial\mathcal L/\partial x_l` obey

.. math:: v_l = \Phi_l(v_{l-1}), \qquad
    \frac{\mathbb E|g_{l-1}|^2}{\mathbb E|g_l|^2} = G_l(v_{l-1}), \qquad l = 1, \dots, L,

with :math:`\Phi` and G composed from the block by `derive.laws.meanfield`. Where attention mixes
tokens, the correlations of tokens and of gradients are part of the state, and the law is evaluated
as a recursion.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
import sympy as sp

from derive.blocks.build import block, layer, state, stream_blocks, sublayer
from derive.blocks.placements import MIXES, PLACEMENTS, STREAMS, canonical
from derive.calculus.maps import Apply, Map
from derive.errors import DomainError, UnknownNameError, UnknownNodeError
from derive.laws.components import Moments, Setting, backward
from derive.laws.initial import Scheme, scheme, sizes
from derive.laws.meanfield import BlockMoments, StreamMoments
from derive.laws.modes import TokenSolution, solve_modes
from derive.laws.moments import TokenMoments
from derive.laws.setting import SCORES
from derive.laws.solve import Solution, solve, tidy
from derive.laws.weight_gradients import weight_gradients
from derive.symbols import L, d, f, l, n

__all__ = ["DepthLaw", "Prediction"]

_v = sp.Symbol("v", positive=True)
_c = sp.Symbol("c", real=True)
GRADIENT = (sp.Symbol("v_g", positive=True), sp.Symbol("c_g", real=True))

LARGEST = 1e150
"""Mean square up to which a law is evaluated: its square still fits into a float."""
ENTRIES = 10**8
"""Of all the matrices of tokens over depth, about 3 GB."""
PROFILED = {"admin": "omega"}
r"""Shortcut weights that are profiled: :math:`\omega_l^2 = 1 + \sum_{k<l}\operatorname{Var}F_k`.

Liu et al., 2020, arXiv:2004.08249, as in the authors' code (read as text): from 1 on,
the square of each ratio is that before it plus the variance of the branch.
"""
INDEPENDENT = Moments(1.0, 0.0)
"""Tokens of mean square 1 without correlation."""


@dataclass(frozen=True)
class Prediction:
    r"""A law at one depth.

    Attributes
    ----------
    forward : tuple of Moments
        The moments of the first stream at l = 0..L, averaged over tokens.
    gradient : tuple of Moments
        Those of the gradient at l = 0..L, added over the streams; at L each has mean square 1.
    forward_tokens, gradient_tokens : array or None
        Mean squares at l = 0..L of each token, ``(L + 1, n)``; None where tokens do not differ.
    blocks : tuple of (BlockMoments, mapping)
        Block l = 1..L, each with the gradient at the output of its sublayers.
    """

    forward: tuple[Moments, ...]
    gradient: tuple[Moments, ...]
    forward_tokens: np.ndarray | None = field(default=None, repr=False, compare=False)
    gradient_tokens: np.ndarray | None = field(default=None, repr=False, compare=False)
    blocks: tuple[tuple[BlockMoments, Mapping[Apply, Any]], ...] = field(
        default=(), repr=False, compare=False
    )

    @property
    def growth(self) -> float:
        r"""Return :math:`v_L/v_0`."""
        return float(self.forward[-1].v / self.forward[0].v)

    @property
    def gradient_ratio(self) -> float:
        r"""Return :math:`\mathbb E|g_0|^2/\mathbb E|g_L|^2`."""
        return float(self.gradient[0].v / self.gradient[-1].v)

    @cached_property
    def weights(self) -> tuple[dict[str, float], ...]:
        r"""Return the gradients of the matrices of block l = 1..L, by name.

        .. math:: \frac{\mathbb E\lVert\partial\mathcal L/\partial W_l\rVert_F^2}
            {\mathbb E|g_L|^2}

        Raises
        ------
        UnknownNodeError
            As for `derive.laws.weight_gradients.weight_gradients`.
        """
        total = self.gradient[-1].v
        return tuple(
            {name: float(value / total) for name, value in weight_gradients(*one).items()}
            for one in self.blocks
        )


class Component(NamedTuple):
    """What a sublayer does: mean square of its input, of its output, of the gradient behind it."""

    name: str
    input: sp.Expr
    output: sp.Expr
    gradient: sp.Expr


@dataclass(frozen=True)
class DepthLaw:
    r"""The law of a placement.

    Parameters
    ----------
    placement : str
        A placement of any kind, or an equation.
    norm : str
        Kind of its norms.
    sublayers : sequence of str
        The sublayers of the blocks in turn, as for `derive.sublayer`; a placement that is a whole
        layer takes its attention and its feed-forward sublayer from among them.
    init : str or Scheme
        The initialisation.
    tokens : int
        n.
    values : mapping, optional
        Values of scalars, in place of those at the start of training.
    memory : Moments
        The moments of a cross-attention's memory.
    scores : str
        ``uniform`` attention weights, or the softmax of ``gaussian`` scores of random queries and
        keys (`derive.laws.mixing`).
    dropout : float
        Rate of dropout, from 0 to below 1, as in training: on attention weights, hidden features
        and outputs of sublayers.
    start : float
        :math:`v_0`, the mean square of the embeddings.

    Raises
    ------
    UnknownNameError
        If a name is not known.
    DomainError
        If `tokens` is below 1, a rate or a mean square out of range, or there is no sublayer.
    """

    placement: str
    norm: str = "layernorm"
    sublayers: tuple[str, ...] = ("ffn:relu",)
    init: str | Scheme = "lecun"
    tokens: int = 1
    values: Mapping[str, float] | None = None
    memory: Moments = INDEPENDENT
    scores: str = "uniform"
    dropout: float = 0.0
    start: float = 1.0

    def __post_init__(self) -> None:
        if self.scores not in SCORES:
            raise UnknownNameError(
                f"scores: expected one of {', '.join(SCORES)}, got {self.scores!r}"
            )
        if not 0 <= self.dropout < 1:
            raise DomainError(f"dropout: expected from 0 to below 1, got {self.dropout}")
        _check_start(self.start)
        if self.tokens < 1:
            raise DomainError(f"tokens: expected at least 1, got {self.tokens}")
        if not self.sublayers:
            raise DomainError("sublayers: expected at least one, got none")
        v, c = self.memory
        if not (v > 0 and -1 / max(self.tokens - 1, 1) <= c / v <= 1):
            raise DomainError(
                f"memory: expected v > 0 and a correlation that {self.tokens} tokens can have, got "
                f"v = {v}, c = {c}"
            )
        scheme(self.init)
        self.blocks_of(1, 1)

    @property
    def key(self) -> str:
        """The name under which the catalogue has the placement."""
        return canonical(self.placement)

    # -- blocks

    def blocks_of(self, number: int, layers: int) -> dict[str, sp.Basic]:
        """Return the new value of each stream in block `number` of `layers`."""
        return _blocks(self._name_of(number, layers), self.norm, self._sublayers_of(number))

    def _name_of(self, number: int, layers: int) -> str:
        key = self.key
        return MIXES[key].layout(layers)[number - 1] if key in MIXES else self.placement

    def _sublayers_of(self, number: int) -> tuple[str, ...]:
        entry = PLACEMENTS.get(self.key)
        if entry is not None and entry.is_layer:
            return self.sublayers
        return (self.sublayers[(number - 1) % len(self.sublayers)],)

    def scalars_of(self, number: int, layers: int) -> dict[str, Any]:
        """Return the values of the scalars of block `number` of `layers`."""
        return self._scalars(self._name_of(number, layers), number, layers)

    def _scalars(self, name: str, number: Any, layers: Any) -> dict[str, Any]:
        entry = PLACEMENTS.get(canonical(name)) or STREAMS.get(canonical(name))
        declared = {} if entry is None else entry.scalars
        at = {l: number, L: layers}
        return {
            **{k: sp.sympify(e).subs(at) for k, e in declared.items()},
            "l": number,
            "L": layers,
            "eps": 0,
            **(self.values or {}),
        }

    # -- numbers

    def predict(
        self,
        layers: int,
        *,
        width: int | None = None,
        hidden: int | None = None,
        correlation: float = 0.0,
        gradient_correlation: float = 0.0,
        start: float | None = None,
    ) -> Prediction:
        r"""Evaluate the law at one depth.

        Parameters
        ----------
        layers : int
            L, the number of blocks, at least 1.
        width, hidden : int, optional
            d and f (1024 and 4 d by default). The law is for infinite width: they matter only where
            an initialisation or a norm depends on them.
        correlation, gradient_correlation : float
            Of two tokens of the input, and of the gradient at the output.
        start : float, optional
            :math:`v_0`, in place of the law's.

        Raises
        ------
        DomainError
            If a size or a correlation is out of range, a mean square grows beyond 1e150, or the
            tokens of a causal stack are too many to be kept apart at every block.
        UnknownNodeError
            If a component has no moments.
        """
        for name, value in (
            ("correlation", correlation),
            ("gradient_correlation", gradient_correlation),
        ):
            least = -1 / max(self.tokens - 1, 1)  # n vectors cannot be further apart
            if not least <= value <= 1:
                raise DomainError(
                    f"{name}: expected {least:.4g} to 1 for {self.tokens} tokens, got {value}"
                )
        if layers < 1:
            raise DomainError(f"layers: expected at least 1, got {layers}")
        start = self.start if start is None else start
        _check_start(start)
        at = sizes(1024 if width is None else width, hidden, layers)
        setting = Setting(
            scheme(self.init), self.tokens, self.memory, at, self.scores, self.dropout
        )
        names = tuple(self.blocks_of(1, layers))
        signal = self._of_tokens(Moments(float(start), float(start) * correlation), layers)
        moments: StreamMoments = {(a, b): signal for a in names for b in names}
        passed: list[BlockMoments] = []
        forward, profiled = [signal], 1.0
        for number in range(1, layers + 1):
            scalars = self.scalars_of(number, layers)
            if self._profiled is not None:
                scalars.setdefault(self._profiled, math.sqrt(profiled))
            passed.append(BlockMoments(self.blocks_of(number, layers), moments, setting, scalars))
            moments = passed[-1].forward()
            profiled += sum(made.v for _, made in passed[-1].branches.values())
            _held(moments, f"the mean square after block {number} of {layers}")
            forward.append(moments[names[0], names[0]])
        unit = self._of_tokens(Moments(1.0, gradient_correlation), layers)
        none = unit.times(0, 0)
        flow: StreamMoments = {(a, b): unit if a == b else none for a in names for b in names}
        gradient, blocks = [_added(flow, names)], []
        for one in reversed(passed):
            flow, arriving = one.reverse(flow)
            blocks.append((one, arriving))
            _held(flow, f"the mean square of a gradient over {layers} blocks")
            gradient.append(_added(flow, names))
        gradient.reverse()
        return Prediction(
            tuple(one.mean() for one in forward),
            tuple(one.mean() for one in gradient),
            _each_token(forward),
            _each_token(gradient),
            tuple(reversed(blocks)),
        )

    @property
    def _profiled(self) -> str | None:
        return PROFILED.get(self.key)

    def _of_tokens(self, moments: Moments, layers: int) -> Any:
        """Return the moments token by token where a causal mask tells tokens apart."""
        if not self.causal:
            return moments
        if self.tokens**2 * layers > ENTRIES:
            raise DomainError(
                f"tokens: expected at most {math.isqrt(ENTRIES // layers)} behind a causal mask at "
                f"{layers} layers, got {self.tokens}"
            )
        return TokenMoments.exchangeable(moments, self.tokens)

    @cached_property
    def _attends(self) -> bool:
        return any(
            isinstance(e, Apply) and e.mapping.family == "attention"
            for expr in self.blocks_of(1, 1).values()
            for e in sp.preorder_traversal(expr)
        )

    @cached_property
    def causal(self) -> bool:
        """Return whether an attention has a causal mask, behind which tokens differ."""
        made = (sublayer(one) for one in self.sublayers)
        return any(getattr(mapping, "causal", False) for mapping in made)

    # -- symbols

    @property
    def open_state(self) -> str:
        """Return why the state is more than v, so that no closed form is sought; "" if it is v."""
        if self.causal:
            return "behind a causal mask every token has moments of its own"
        key = self.key
        entry = PLACEMENTS.get(key)
        if key in STREAMS:
            return "the streams have moments of their own and between them"
        if key in MIXES:
            return "the placement changes with depth"
        if (entry is not None and entry.is_layer) or len(self.sublayers) > 1:
            return "sublayers of several kinds take turns"
        if self.scores != "uniform" and self._attends:
            return "the moments of the attention weights are integrals"
        if self._profiled is not None and self.symbolic is None:
            return f"{self._profiled} is profiled block by block"
        if self.symbolic is None:
            return "the activation has no moments in closed form where v is a variable"
        return "attention mixes tokens, whose correlations change" if self._mixes_tokens else ""

    @cached_property
    def _mixes_tokens(self) -> bool:
        branches = () if self.symbolic is None else self.symbolic.branches
        return any(branch.mapping.mixes_tokens for branch in branches)

    @cached_property
    def symbolic(self) -> BlockMoments | None:
        """Return the moments of one block in symbols: v, c, n, and the block's number l.

        None for streams, mixtures and layers, and where an activation has no closed form.
        """
        key = self.key
        entry = PLACEMENTS.get(key)
        if key in STREAMS or key in MIXES or len(self.sublayers) > 1:
            return None
        if entry is not None and entry.is_layer:
            return None
        blocks = self.blocks_of(1, 1)
        mixes = any(
            isinstance(e, Apply) and e.mapping.mixes_tokens
            for e in sp.preorder_traversal(blocks["x"])
        )
        memory = Moments(*(sp.nsimplify(m) for m in self.memory))
        setting = Setting(
            scheme(self.init),
            n if mixes else sp.Integer(self.tokens),
            memory,
            {},
            self.scores,
            sp.nsimplify(self.dropout, rational=True),
        )
        state_of = {("x", "x"): Moments(_v, _c if mixes else sp.S.Zero)}
        scalars = {
            name: sp.nsimplify(value, rational=True)
            for name, value in self._scalars(self.placement, l, L).items()
        }
        try:
            if self._profiled is not None and self._profiled not in scalars:
                if mixes or self.start != 1:
                    return None
                branch = self._branch_at_one(blocks, setting, {**scalars, self._profiled: sp.S.One})
                scalars[self._profiled] = sp.sqrt(1 + (l - 1) * branch)
            return BlockMoments(blocks, state_of, setting, scalars)
        except UnknownNodeError:
            return None

    @staticmethod
    def _branch_at_one(
        blocks: Mapping[str, sp.Basic], setting: Setting, scalars: Mapping[str, Any]
    ) -> sp.Expr:
        """Return the variance of the branches where every block gets mean square 1."""
        state_of = {("x", "x"): Moments(sp.S.One, sp.S.Zero)}
        branches = BlockMoments(blocks, state_of, setting, scalars).branches
        return sum((made.v for _, made in branches.values()), sp.S.Zero)

    @cached_property
    def components(self) -> tuple[Component, ...]:
        """Return what the sublayers do to the moments, in symbols; empty where nothing is known."""
        if self.symbolic is None:
            return ()
        found = []
        for branch, (argument, made) in self.symbolic.branches.items():
            z = self.symbolic.between(argument, argument)
            back = backward(branch.mapping, Moments(*GRADIENT), z, self.symbolic.setting)
            found.append(Component(branch.mapping.name, *map(_sized, (z.v, made.v, back.v))))
        return tuple(found)

    @cached_property
    def recursion(self) -> tuple[sp.Expr, sp.Expr] | None:
        r"""Return :math:`\Phi_l(v)` and :math:`G_l(v)`, or None where the state is more than v."""
        if self.symbolic is None or self._mixes_tokens:
            return None
        gradient = self.symbolic.backward({("x", "x"): Moments(sp.S.One, sp.S.Zero)})
        return _sized(self.symbolic.forward()["x", "x"].v), _sized(gradient["x", "x"].v)

    @cached_property
    def correlated(self) -> tuple[Moments, Moments] | None:
        """Return the next (v, c) of signal and gradient where attention mixes tokens, or None.

        The gradient's are in its own v and c, which print as v_g and c_g.
        """
        if self.symbolic is None or not self._mixes_tokens:
            return None
        behind = self.symbolic.backward({("x", "x"): Moments(*GRADIENT)})["x", "x"]
        ahead = self.symbolic.forward()["x", "x"]
        return Moments(*map(_sized, ahead)), Moments(*map(_sized, behind))

    @cached_property
    def turns(self) -> tuple[DepthLaw, ...]:
        """Return the law of each sublayer alone where several take turns; empty otherwise."""
        entry = PLACEMENTS.get(self.key)
        whole = self.key in STREAMS or (entry is not None and entry.is_layer)
        if len(self.sublayers) == 1 or whole or self.key in MIXES or self.causal:
            return ()
        return tuple(replace(self, sublayers=(one,)) for one in dict.fromkeys(self.sublayers))

    @cached_property
    def _forward_in_turn(self) -> Solution | None:
        """Return the forward law where every sublayer does the same to the mean square."""
        steps = []
        for one in self.turns:
            if one.recursion is not None:
                steps.append(one.recursion[0])
            elif one.correlated is not None:
                steps.append(one.correlated[0].v)
        if not steps or len(steps) != len(self.turns) or any(s.has(_c) for s in steps):
            return None
        if any(tidy(s - steps[0]) != 0 for s in steps[1:]):
            return None
        solved = solve(steps[0], sp.S.One, _v, sp.nsimplify(self.start, rational=True))
        if solved is None:
            return None
        rule = "every sublayer does the same to the mean square"
        return Solution(solved.forward, None, rule, solved.where)

    @cached_property
    def solution(self) -> Solution | None:
        """Return the recursion solved in L, or None where there is no closed form.

        Where sublayers take turns, the forward law alone, if it is the same for all of them.
        """
        if self.recursion is None:
            return self._forward_in_turn
        return solve(*self.recursion, _v, sp.nsimplify(self.start, rational=True))

    @cached_property
    def token_solution(self) -> TokenSolution | None:
        """Return the recursion of uniform attention solved in L, or None.

        For placements with one stream whose sublayers are all attention without dropout.
        """
        if self.correlated is None or self.dropout or not self._only_attention:
            return None
        return solve_modes(self.correlated[0], _v, _c, sp.nsimplify(self.start, rational=True))

    @cached_property
    def _only_attention(self) -> bool:
        branches = () if self.symbolic is None else self.symbolic.branches
        return all(branch.mapping.mixes_tokens for branch in branches)


def _each_token(moments: Sequence[Any]) -> np.ndarray | None:
    """Return the mean squares of each token where tokens differ."""
    if not isinstance(moments[0], TokenMoments):
        return None
    return np.array([one.squares for one in moments])


def _check_start(start: float) -> None:
    if not 0 < start < math.inf:
        raise DomainError(f"start: expected above 0, got {start}")


def _held(moments: StreamMoments, what: str) -> None:
    """Refuse what a float cannot go on with."""
    largest = max(np.max(found.squares) for found in moments.values())
    if not largest <= LARGEST:
        raise DomainError(f"layers: expected fewer, {what} is beyond {LARGEST:g}")


def _added(flow: StreamMoments, names: Sequence[str]) -> Any:
    total, *others = (flow[a, a] for a in names)
    for other in others:
        total = total.plus(other)
    return total


def _sized(expr: Any) -> sp.Expr:
    return tidy(sp.sympify(expr).subs(f, 4 * d))


@lru_cache(maxsize=256)
def _blocks(name: str, norm: str, sublayers: tuple[str, ...]) -> dict[str, sp.Basic]:
    key = canonical(name)
    if key in STREAMS:
        return stream_blocks(key, norm, sublayers[0])
    entry = PLACEMENTS.get(key)
    if entry is None or not entry.is_layer:
        return {"x": block(name, norm, sublayers[0], state("x"))}
    made: list[Map] = [sublayer(one) for one in sublayers]
    attention = next((m for m in made if m.mixes_tokens), None)
    feed_forward = next((m for m in made if not m.mixes_tokens), None)
    return {"x": layer(name, norm, attention, feed_forward, state("x"))}
