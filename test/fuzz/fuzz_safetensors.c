/* SPDX-License-Identifier: Apache-2.0 */
#include "fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    const char *path = fuzz_file("x.safetensors", data, n);
    fuzz_model(path, path, n);
    return 0;
}
