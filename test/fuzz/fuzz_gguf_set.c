/* SPDX-License-Identifier: Apache-2.0 */
/* A set of two shards, opened by its second. */
#include "fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    fuzz_pair("x-00001-of-00002.gguf", "x-00002-of-00002.gguf", data, n);
    return 0;
}
