"""The rotary kernel that sglang imports on a CPU and never calls."""


def rotary_embedding(*_arguments, **_named):
    raise RuntimeError("the stand-in for vllm._custom_ops.rotary_embedding was called")
