"""Random weights and inputs for the numeric tests; no gain is one, no bias zero."""

import numpy as np
import pytest

TOKENS, WIDTH, HIDDEN, HEADS, HEAD_WIDTH = 4, 8, 10, 2, 3


def random_weights(seed=0):
    rng = np.random.default_rng(seed)
    draw = rng.normal
    weights = {
        "eps": 1e-5,
        "alpha": 1.7,
        "W_1": draw(size=(HIDDEN, WIDTH)),
        "b_1": draw(size=HIDDEN),
        "W_2": draw(size=(WIDTH, HIDDEN)),
        "b_2": draw(size=WIDTH),
        "W_gate": draw(size=(HIDDEN, WIDTH)),
        "W_up": draw(size=(HIDDEN, WIDTH)),
        "W_down": draw(size=(WIDTH, HIDDEN)),
        "W_O": draw(size=(HEADS, WIDTH, HEAD_WIDTH)),
        "R": np.stack([np.linalg.qr(draw(size=(HEAD_WIDTH,) * 2))[0] for _ in range(TOKENS)]),
    }
    for letter in "QKV":
        weights[f"W_{letter}"] = draw(size=(HEADS, HEAD_WIDTH, WIDTH))
    for suffix in ("", "_1", "_2"):
        weights["gain" + suffix] = rng.uniform(0.5, 1.5, size=WIDTH)
        weights["bias" + suffix] = draw(size=WIDTH)
    return weights


@pytest.fixture
def weights():
    return random_weights()


@pytest.fixture
def state():
    return np.random.default_rng(1).normal(size=(TOKENS, WIDTH))
