"""sglang's own activations, under the name that it looks for on a CPU."""

import sys

_own = sys.modules["sglang.srt.layers.activation"]
GeluAndMul, SiluAndMul = _own.GeluAndMul, _own.SiluAndMul
