/* SPDX-License-Identifier: Apache-2.0 */
/* A quantised checkpoint: config.json, then the .safetensors file. */
#include "fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    fuzz_pair("config.json", "x.safetensors", data, n);
    return 0;
}
