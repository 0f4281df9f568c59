"""Real layers beyond the five of `derive.backends.systems`: torch.nn, transformers and others."""

from derive.backends.zoo import (  # noqa: F401  (each module registers its layers)
    decoders_layernorm,
    decoders_moe,
    decoders_rms,
    decoders_sandwich,
    encoder_decoder,
    encoders,
    vision_and_scale,
)
from derive.backends.zoo.registry import NOT_BUILT, ZOO, ZooSystem, build_zoo

__all__ = ["NOT_BUILT", "ZOO", "ZooSystem", "build_zoo"]
