"""Check the closed form against a BertLayer of your own. Needs normderive[transformers]."""

import numpy as np
import torch
from transformers import BertConfig
from transformers.models.bert.modeling_bert import BertLayer

from derive import crosscheck
from derive.backends import read_block

config = BertConfig(
    hidden_size=24, num_attention_heads=3, intermediate_size=48, attn_implementation="eager"
)
torch.manual_seed(0)
layer = BertLayer(config).to(torch.float64).eval()
with torch.no_grad():
    for parameter in layer.parameters():  # gains and biases too, so that none can be left out
        parameter.copy_(0.3 * torch.randn_like(parameter) + (parameter.ndim == 1))

real = read_block(layer, tokens=4)
print(real)

row = crosscheck.check(layer)
print(f"max |J_closed - J_autodiff| / max |J_autodiff| = {row.max_rel_error:.1e} in {row.dtype}")
print("ok:", row.ok)

# The comparison fails when the closed form is wrong: here the other placement.
x = np.random.default_rng(0).normal(size=(4, 24))
wrong = crosscheck.check_block(real, x, placement="pre")
print(f"as pre-norm: {wrong.max_rel_error:.1f}, ok: {wrong.ok}")
