"""Real layers of torch.nn and transformers beyond the five of `derive.backends.systems`."""

from derive.backends.zoo.registry import ZOO, ZooSystem, build_zoo

__all__ = ["ZOO", "ZooSystem", "build_zoo"]
