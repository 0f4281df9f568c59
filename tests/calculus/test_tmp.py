from .oracles import A
def test_a():
    assert A==1
    import sys; print(__name__, __package__)
