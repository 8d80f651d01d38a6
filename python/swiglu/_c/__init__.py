# SPDX-License-Identifier: Apache-2.0
"""The C library from Python, without arrays: its ABI, the loaded library, descriptions, prepared blocks, activations, sizes,
threads and memory. The other packages stand on this one."""
