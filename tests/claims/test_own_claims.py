"""Claims that a user states: proved, refuted with a witness that refutes, or not decided."""

from pathlib import Path

import numpy as np
import pytest

from derive.claims import decide, read_claim
from derive.errors import DomainError, ParseError


@pytest.fixture
def stated(tmp_path: Path):
    def write(text: str):
        path = tmp_path / "claim.toml"
        path.write_text(text)
        return read_claim(path)

    return write


PROVED = {
    "keeps its input": 'block = "pre"\nassume = ["eps == 0"]\nrelation = "J*x == x"',
    "keeps ones": 'block = "x + F(N(x))"\nrelation = "J*ones == ones"',
    "attention keeps ones": 'block = "pre"\nsublayer = "attention"\nrelation = "J*ones == ones"',
    "left null vector": 'block = "post"\nrelation = "ones.T*diag(inv(gain))*J == 0"',
    "norm of the norm": 'block = "N(x)"\nrelation = "norm(J) <= max_abs(gain)/sqrt(eps)"',
    "product": 'relation = "norm((I + A)*(I + B)) <= exp(norm(A) + norm(B))"',
    "sign of a number": 'relation = "norm(A + A.T) <= sqrt(5)*norm(A)"',
    "a square": 'relation = "norm(A + B)**2 <= 2*norm(A)**2 + 2*norm(B)**2"',
    "turned round": 'relation = "norm(A) + norm(B) >= norm(A + B)"',
    "two blocks": 'block = "N(alpha*x + F(x))"\nother = "post"\nassume = ["alpha == 1"]\n'
    'relation = "J == K"',
}

REFUTED = {
    "eps dropped": 'block = "pre"\nrelation = "J*x == x"',
    "rmsnorm does not kill ones": 'block = "N(x)"\nnorm = "rmsnorm"\nrelation = "J*ones == 0"',
    "not the same": 'block = "pre"\nother = "post"\nrelation = "J == K"',
    "too small": 'relation = "norm(A*B) <= norm(A)"',
    "a sum": 'block = "x + F(N(x))"\nrelation = "norm(J) <= norm(D(F, N(x)))"',
}


@pytest.mark.parametrize("text", PROVED.values(), ids=PROVED.keys())
def test_true_claims_are_proved(stated, text):
    decision = decide(stated(text))
    assert decision.verdict == "proved", str(decision)
    assert decision.strength in ("identity", "bound")


@pytest.mark.parametrize("text", REFUTED.values(), ids=REFUTED.keys())
def test_false_claims_are_refuted_with_a_witness(stated, text):
    decision = decide(stated(text))
    assert decision.verdict == "refuted", str(decision)
    assert decision.witness["d"] == 2
    assert decision.as_dict()["holds"] is False


def test_the_witness_refutes_without_the_toolkit(stated):
    """At the printed values the plain matrices do what the decision says."""
    decision = decide(stated('relation = "norm(A*B) <= norm(A)"'))
    A, B = (np.array(decision.witness[name], dtype=float) for name in "AB")
    assert np.linalg.norm(A @ B, 2) > np.linalg.norm(A, 2)


def test_what_is_true_and_not_shown_is_not_decided(stated):
    decision = decide(stated('relation = "norm(A)**2 <= norm(A*A.T)"'))
    assert decision.verdict == "not decided"
    assert decision.why == "holds in 10,000 trials at d = 2, 3, 4, 5"
    assert decision.as_dict()["holds"] is None


BAD = {
    "no relation": ('block = "pre"', "expected a relation, got none"),
    "no toml": ("block = ", "expected TOML"),
    "unknown key": ('relation = "A == A"\nlemma = "x"', "got 'lemma'"),
    "no sign": ('relation = "A + B"', "expected one of ==, <=, >="),
    "chain": ('relation = "0 <= norm(A) <= 1"', "expected one of ==, <=, >="),
    "unknown name": ('relation = "Q*x == x"', "got 'Q'"),
    "unknown function": ('relation = "open(x) == x"', "got 'open(x)'"),
    "attribute": ('relation = "x.__class__ == x"', "expected a sum"),
    "shapes": ('relation = "A*x == A"', "do not have one shape: d x 1 and d x d"),
    "order of vectors": ('relation = "x <= ones"', "expected scalars on both sides"),
    "not a text": ("relation = 3", "relation: expected a text, got 3"),
    "assume a number": ('relation = "A == A"\nassume = ["3 == 4"]', "assume: expected"),
    "assume what cannot be": ('relation = "A == A"\nassume = ["eps == -1"]', "that eps can have"),
    "huge power": ('relation = "eps**1000000 == 0"', "expected"),
}


@pytest.mark.parametrize(("text", "message"), BAD.values(), ids=BAD.keys())
def test_bad_files_are_refused_with_their_reason(stated, text, message):
    with pytest.raises((ParseError, DomainError)) as found:
        stated(text)
    assert message in str(found.value)


def test_contradicting_assumptions_are_reported(stated):
    with pytest.raises(DomainError, match="no input satisfies both"):
        stated('relation = "A == A"\nassume = ["eps == 0", "eps == 1"]')
