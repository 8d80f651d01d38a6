/* SPDX-License-Identifier: Apache-2.0 */
/* A set of two shards: four bytes with the length of the first, the first, the second. Opened by its second. */
#include <string.h>

#include "fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    uint32_t first;
    if (n < sizeof first) return 0;
    memcpy(&first, data, sizeof first);
    data += sizeof first, n -= sizeof first;
    if (first > n) first = (uint32_t)n;
    fuzz_file("x-00001-of-00002.gguf", data, first);
    fuzz_model(fuzz_file("x-00002-of-00002.gguf", data + first, n - first), fuzz_folder(), n);
    return 0;
}
