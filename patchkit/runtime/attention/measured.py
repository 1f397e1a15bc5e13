"""How long the kernels took, per device: what `registry.choose` prefers by. From benchmarks/results/, medians."""

from __future__ import annotations

from .registry import Measurement

# fmt: off
MEASURED: tuple[Measurement, ...] = (
    Measurement(device="NVIDIA H200", step="forward", dtype="bfloat16", head_dim=128, dense=False, paged=True, batch=56, max_query=1, max_key=32768, kernel="triton_decode", milliseconds=0.04829),
    Measurement(device="NVIDIA H200", step="forward", dtype="bfloat16", head_dim=128, dense=False, paged=True, batch=56, max_query=1, max_key=32768, kernel="triton_decode_rotating", milliseconds=0.03954),
    Measurement(device="NVIDIA H200", step="forward", dtype="bfloat16", head_dim=128, dense=False, paged=True, batch=56, max_query=1, max_key=32768, kernel="flash3_window_only", milliseconds=0.06042),
    Measurement(device="NVIDIA H200", step="forward", dtype="bfloat16", head_dim=128, dense=True, paged=False, batch=1, max_query=32768, max_key=32768, kernel="hopper_prefill", milliseconds=17.16877),
    Measurement(device="NVIDIA H200", step="forward", dtype="bfloat16", head_dim=128, dense=True, paged=False, batch=1, max_query=32768, max_key=32768, kernel="triton_prefill", milliseconds=18.04672),
    Measurement(device="NVIDIA H200", step="forward", dtype="bfloat16", head_dim=128, dense=True, paged=False, batch=1, max_query=32768, max_key=32768, kernel="flash3", milliseconds=13.43024),
    Measurement(device="NVIDIA H200", step="forward", dtype="bfloat16", head_dim=128, dense=True, paged=False, batch=1, max_query=32768, max_key=32768, kernel="flex", milliseconds=20.71814),
    Measurement(device="NVIDIA H200", step="forward", dtype="bfloat16", head_dim=128, dense=True, paged=False, batch=1, max_query=32768, max_key=32768, kernel="cudnn", milliseconds=14.78746),
    Measurement(device="NVIDIA H200", step="forward", dtype="bfloat16", head_dim=128, dense=True, paged=False, batch=1, max_query=32768, max_key=32768, kernel="torch_flash", milliseconds=25.55482),
    Measurement(device="NVIDIA H200", step="forward", dtype="bfloat16", head_dim=64, dense=True, paged=False, batch=8, max_query=2048, max_key=2048, kernel="triton_prefill", milliseconds=0.16266),
    Measurement(device="NVIDIA H200", step="forward", dtype="bfloat16", head_dim=64, dense=True, paged=False, batch=8, max_query=2048, max_key=2048, kernel="flash3", milliseconds=0.16346),
    Measurement(device="NVIDIA H200", step="forward", dtype="bfloat16", head_dim=64, dense=True, paged=False, batch=8, max_query=2048, max_key=2048, kernel="flex", milliseconds=0.18614),
    Measurement(device="NVIDIA H200", step="forward", dtype="bfloat16", head_dim=64, dense=True, paged=False, batch=8, max_query=2048, max_key=2048, kernel="cudnn", milliseconds=0.14394),
    Measurement(device="NVIDIA H200", step="forward", dtype="bfloat16", head_dim=64, dense=True, paged=False, batch=8, max_query=2048, max_key=2048, kernel="torch_flash", milliseconds=0.22112),
    Measurement(device="NVIDIA H200", step="forward", dtype="bfloat16", head_dim=128, dense=False, paged=False, batch=1, max_query=131072, max_key=131072, kernel="hopper_prefill", milliseconds=2.97693),
    Measurement(device="NVIDIA H200", step="forward", dtype="bfloat16", head_dim=128, dense=False, paged=False, batch=1, max_query=131072, max_key=131072, kernel="triton_prefill", milliseconds=3.48832),
    Measurement(device="NVIDIA H200", step="forward", dtype="bfloat16", head_dim=128, dense=False, paged=False, batch=1, max_query=131072, max_key=131072, kernel="flash3_window_only", milliseconds=3.1505),
    Measurement(device="NVIDIA H200", step="forward", dtype="bfloat16", head_dim=128, dense=False, paged=False, batch=1, max_query=131072, max_key=131072, kernel="flex", milliseconds=5.13062),
    Measurement(device="NVIDIA H200", step="forward", dtype="bfloat16", head_dim=128, dense=False, paged=False, batch=1, max_query=16384, max_key=16384, kernel="hopper_prefill", milliseconds=0.36048),
    Measurement(device="NVIDIA H200", step="forward", dtype="bfloat16", head_dim=128, dense=False, paged=False, batch=1, max_query=16384, max_key=16384, kernel="triton_prefill", milliseconds=0.44797),
    Measurement(device="NVIDIA H200", step="forward", dtype="bfloat16", head_dim=128, dense=False, paged=False, batch=1, max_query=16384, max_key=16384, kernel="flash3_window_only", milliseconds=0.36906),
    Measurement(device="NVIDIA H200", step="forward", dtype="bfloat16", head_dim=128, dense=False, paged=False, batch=1, max_query=16384, max_key=16384, kernel="flex", milliseconds=0.64406),
    Measurement(device="NVIDIA H200", step="backward", dtype="bfloat16", head_dim=128, dense=False, paged=False, batch=1, max_query=32768, max_key=32768, kernel="triton_backward", milliseconds=3.08694),
    Measurement(device="NVIDIA H200", step="backward", dtype="bfloat16", head_dim=128, dense=False, paged=False, batch=1, max_query=32768, max_key=32768, kernel="flex", milliseconds=8.70986),
    Measurement(device="NVIDIA H200", step="forward", dtype="bfloat16", head_dim=128, dense=False, paged=False, batch=1, max_query=32768, max_key=32768, kernel="hopper_prefill", milliseconds=0.69936),
    Measurement(device="NVIDIA H200", step="forward", dtype="bfloat16", head_dim=128, dense=False, paged=False, batch=1, max_query=32768, max_key=32768, kernel="triton_prefill", milliseconds=0.86845),
    Measurement(device="NVIDIA H200", step="forward", dtype="bfloat16", head_dim=128, dense=False, paged=False, batch=1, max_query=32768, max_key=32768, kernel="flash3_window_only", milliseconds=0.72291),
    Measurement(device="NVIDIA H200", step="forward", dtype="bfloat16", head_dim=128, dense=False, paged=False, batch=1, max_query=32768, max_key=32768, kernel="flex", milliseconds=1.28301),
    Measurement(device="NVIDIA H200", step="forward", dtype="bfloat16", head_dim=64, dense=False, paged=False, batch=1, max_query=32768, max_key=32768, kernel="triton_prefill", milliseconds=0.27366),
    Measurement(device="NVIDIA H200", step="forward", dtype="bfloat16", head_dim=64, dense=False, paged=False, batch=1, max_query=32768, max_key=32768, kernel="flash3_window_only", milliseconds=0.34262),
    Measurement(device="NVIDIA H200", step="forward", dtype="bfloat16", head_dim=64, dense=False, paged=False, batch=1, max_query=32768, max_key=32768, kernel="flex", milliseconds=0.38746),
    Measurement(device="NVIDIA H200", step="forward", dtype="bfloat16", head_dim=128, dense=False, paged=False, batch=1, max_query=65536, max_key=65536, kernel="hopper_prefill", milliseconds=1.40006),
    Measurement(device="NVIDIA H200", step="forward", dtype="bfloat16", head_dim=128, dense=False, paged=False, batch=1, max_query=65536, max_key=65536, kernel="triton_prefill", milliseconds=1.74106),
    Measurement(device="NVIDIA H200", step="forward", dtype="bfloat16", head_dim=128, dense=False, paged=False, batch=1, max_query=65536, max_key=65536, kernel="flash3_window_only", milliseconds=1.45901),
    Measurement(device="NVIDIA H200", step="forward", dtype="bfloat16", head_dim=128, dense=False, paged=False, batch=1, max_query=65536, max_key=65536, kernel="flex", milliseconds=2.57264),
)
