"""How long the kernels took, per device: what `registry.choose` prefers by. From benchmarks/results/, medians."""

from __future__ import annotations

from .registry import Measurement

# fmt: off
MEASURED: tuple[Measurement, ...] = (
    Measurement(device="NVIDIA H200", step="forward", dtype="bfloat16", head_dim=128, dense=False, paged=True, batch=56, max_query=1, max_key=32768, kernel="triton_decode", milliseconds=0.05136),
    Measurement(device="NVIDIA H200", step="forward", dtype="bfloat16", head_dim=128, dense=False, paged=True, batch=56, max_query=1, max_key=32768, kernel="triton_decode_rotating", milliseconds=0.03957),
    Measurement(device="NVIDIA H200", step="forward", dtype="bfloat16", head_dim=128, dense=False, paged=True, batch=56, max_query=1, max_key=32768, kernel="flash3_window_only", milliseconds=0.06058),
    Measurement(device="NVIDIA H200", step="forward", dtype="bfloat16", head_dim=128, dense=True, paged=False, batch=1, max_query=32768, max_key=32768, kernel="hopper_prefill", milliseconds=13.87261),
    Measurement(device="NVIDIA H200", step="forward", dtype="bfloat16", head_dim=128, dense=True, paged=False, batch=1, max_query=32768, max_key=32768, kernel="triton_prefill", milliseconds=18.59853),
    Measurement(device="NVIDIA H200", step="forward", dtype="bfloat16", head_dim=128, dense=True, paged=False, batch=1, max_query=32768, max_key=32768, kernel="flash3", milliseconds=13.69152),
    Measurement(device="NVIDIA H200", step="forward", dtype="bfloat16", head_dim=128, dense=True, paged=False, batch=1, max_query=32768, max_key=32768, kernel="flex", milliseconds=20.45869),
    Measurement(device="NVIDIA H200", step="forward", dtype="bfloat16", head_dim=128, dense=True, paged=False, batch=1, max_query=32768, max_key=32768, kernel="cudnn", milliseconds=14.90813),
    Measurement(device="NVIDIA H200", step="forward", dtype="bfloat16", head_dim=128, dense=True, paged=False, batch=1, max_query=32768, max_key=32768, kernel="torch_flash", milliseconds=25.70486),
    Measurement(device="NVIDIA H200", step="forward", dtype="bfloat16", head_dim=64, dense=True, paged=False, batch=8, max_query=2048, max_key=2048, kernel="hopper_prefill", milliseconds=0.13286),
    Measurement(device="NVIDIA H200", step="forward", dtype="bfloat16", head_dim=64, dense=True, paged=False, batch=8, max_query=2048, max_key=2048, kernel="triton_prefill", milliseconds=0.16122),
    Measurement(device="NVIDIA H200", step="forward", dtype="bfloat16", head_dim=64, dense=True, paged=False, batch=8, max_query=2048, max_key=2048, kernel="flash3", milliseconds=0.16365),
    Measurement(device="NVIDIA H200", step="forward", dtype="bfloat16", head_dim=64, dense=True, paged=False, batch=8, max_query=2048, max_key=2048, kernel="flex", milliseconds=0.18794),
    Measurement(device="NVIDIA H200", step="forward", dtype="bfloat16", head_dim=64, dense=True, paged=False, batch=8, max_query=2048, max_key=2048, kernel="cudnn", milliseconds=0.14512),
    Measurement(device="NVIDIA H200", step="forward", dtype="bfloat16", head_dim=64, dense=True, paged=False, batch=8, max_query=2048, max_key=2048, kernel="torch_flash", milliseconds=0.22253),
    Measurement(device="NVIDIA H200", step="forward", dtype="bfloat16", head_dim=128, dense=False, paged=False, batch=1, max_query=131072, max_key=131072, kernel="hopper_prefill", milliseconds=2.41168),
    Measurement(device="NVIDIA H200", step="forward", dtype="bfloat16", head_dim=128, dense=False, paged=False, batch=1, max_query=131072, max_key=131072, kernel="triton_prefill", milliseconds=3.55174),
    Measurement(device="NVIDIA H200", step="forward", dtype="bfloat16", head_dim=128, dense=False, paged=False, batch=1, max_query=131072, max_key=131072, kernel="flash3_window_only", milliseconds=3.15078),
    Measurement(device="NVIDIA H200", step="forward", dtype="bfloat16", head_dim=128, dense=False, paged=False, batch=1, max_query=131072, max_key=131072, kernel="flex", milliseconds=5.10317),
    Measurement(device="NVIDIA H200", step="forward", dtype="bfloat16", head_dim=128, dense=False, paged=False, batch=1, max_query=16384, max_key=16384, kernel="hopper_prefill", milliseconds=0.29456),
    Measurement(device="NVIDIA H200", step="forward", dtype="bfloat16", head_dim=128, dense=False, paged=False, batch=1, max_query=16384, max_key=16384, kernel="triton_prefill", milliseconds=0.44899),
    Measurement(device="NVIDIA H200", step="forward", dtype="bfloat16", head_dim=128, dense=False, paged=False, batch=1, max_query=16384, max_key=16384, kernel="flash3_window_only", milliseconds=0.3696),
    Measurement(device="NVIDIA H200", step="forward", dtype="bfloat16", head_dim=128, dense=False, paged=False, batch=1, max_query=16384, max_key=16384, kernel="flex", milliseconds=0.64285),
    Measurement(device="NVIDIA H200", step="backward", dtype="bfloat16", head_dim=128, dense=False, paged=False, batch=1, max_query=32768, max_key=32768, kernel="triton_backward", milliseconds=3.11139),
    Measurement(device="NVIDIA H200", step="backward", dtype="bfloat16", head_dim=128, dense=False, paged=False, batch=1, max_query=32768, max_key=32768, kernel="flex", milliseconds=8.76608),
    Measurement(device="NVIDIA H200", step="forward", dtype="bfloat16", head_dim=128, dense=False, paged=False, batch=1, max_query=32768, max_key=32768, kernel="hopper_prefill", milliseconds=0.56992),
    Measurement(device="NVIDIA H200", step="forward", dtype="bfloat16", head_dim=128, dense=False, paged=False, batch=1, max_query=32768, max_key=32768, kernel="triton_prefill", milliseconds=0.87014),
    Measurement(device="NVIDIA H200", step="forward", dtype="bfloat16", head_dim=128, dense=False, paged=False, batch=1, max_query=32768, max_key=32768, kernel="flash3_window_only", milliseconds=0.72726),
    Measurement(device="NVIDIA H200", step="forward", dtype="bfloat16", head_dim=128, dense=False, paged=False, batch=1, max_query=32768, max_key=32768, kernel="flex", milliseconds=1.28445),
    Measurement(device="NVIDIA H200", step="forward", dtype="bfloat16", head_dim=64, dense=False, paged=False, batch=1, max_query=32768, max_key=32768, kernel="hopper_prefill", milliseconds=0.2273),
    Measurement(device="NVIDIA H200", step="forward", dtype="bfloat16", head_dim=64, dense=False, paged=False, batch=1, max_query=32768, max_key=32768, kernel="triton_prefill", milliseconds=0.26134),
    Measurement(device="NVIDIA H200", step="forward", dtype="bfloat16", head_dim=64, dense=False, paged=False, batch=1, max_query=32768, max_key=32768, kernel="flash3_window_only", milliseconds=0.34358),
    Measurement(device="NVIDIA H200", step="forward", dtype="bfloat16", head_dim=64, dense=False, paged=False, batch=1, max_query=32768, max_key=32768, kernel="flex", milliseconds=0.38602),
    Measurement(device="NVIDIA H200", step="forward", dtype="bfloat16", head_dim=128, dense=False, paged=False, batch=1, max_query=65536, max_key=65536, kernel="hopper_prefill", milliseconds=1.13094),
    Measurement(device="NVIDIA H200", step="forward", dtype="bfloat16", head_dim=128, dense=False, paged=False, batch=1, max_query=65536, max_key=65536, kernel="triton_prefill", milliseconds=1.73498),
    Measurement(device="NVIDIA H200", step="forward", dtype="bfloat16", head_dim=128, dense=False, paged=False, batch=1, max_query=65536, max_key=65536, kernel="flash3_window_only", milliseconds=1.47539),
    Measurement(device="NVIDIA H200", step="forward", dtype="bfloat16", head_dim=128, dense=False, paged=False, batch=1, max_query=65536, max_key=65536, kernel="flex", milliseconds=2.55494),
)
