"""sglang's own norms, under the name that it looks for on a CPU."""

import sys

_own = sys.modules["sglang.srt.layers.layernorm"]
RMSNorm, GemmaRMSNorm = _own.RMSNorm, _own.GemmaRMSNorm
