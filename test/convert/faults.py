# SPDX-License-Identifier: Apache-2.0
"""The environment in which the n-th call of a kind fails (shim.c)."""
import os


def fault(shim, hit, call_name, n, do, every=False):
    asan = os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"
    return {**os.environ, "LD_PRELOAD": str(shim), "ASAN_OPTIONS": asan, "SHIM_CALL": call_name, "SHIM_N": str(n),
            "SHIM_DO": str(do), "SHIM_HIT": str(hit), **({"SHIM_ALL": "1"} if every else {})}
