/* SPDX-License-Identifier: Apache-2.0 */
#include "fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    fuzz_model(fuzz_file("x.gguf", data, n), n);
    return 0;
}
