/* SPDX-License-Identifier: Apache-2.0 */
#include "io/foreign.h"

#include <string.h>

enum { HEAD_BYTES = 32 };

#define UNPACK "a compressed file: unpack it first, with "
#define PICKLE                                                                                                        \
    "a PyTorch file, which runs code of its writer when it is read: have its owner store it as safetensors " \
    "(safetensors.torch.save_file)"

static const struct foreign { const char *begins; size_t bytes; const char *what; } foreigners[] = {
    {"\x1f\x8b", 2, UNPACK "gunzip"},
    {"BZh", 3, UNPACK "bunzip2"},
    {"\xfd" "7zXZ", 5, UNPACK "unxz"},
    {"\x28\xb5\x2f\xfd", 4, UNPACK "unzstd"},
    {"PK\3\4", 4, PICKLE},   /* torch.save is a ZIP archive of pickles */
    {"\x80\2", 2, PICKLE},   /* as it was before */
    {"\x80\4\x95", 3, PICKLE},
    {"version https://git-lfs", 23, "a pointer of Git LFS in place of the file: fetch it with git lfs pull"},
    {"<!DOCTYPE", 9, "a page of HTML, such as a server sends in place of a file"},
    {"<!doctype", 9, "a page of HTML, such as a server sends in place of a file"},
    {"<html", 5, "a page of HTML, such as a server sends in place of a file"},
    {"\x93NUMPY", 6, "a NumPy array, not a checkpoint; `swiglu run --input` takes it as x"},
    {"\x89HDF", 4, "an HDF5 file: store the model as safetensors"},
    {"{", 1, "a JSON file: name the .safetensors file, or the folder that holds it"},
};

enum swiglu_status swiglu_foreign_check(const struct swiglu_file *file, struct swiglu_error *error) {
    char head[HEAD_BYTES] = {0};
    const size_t n = file->bytes < sizeof head ? (size_t)file->bytes : sizeof head;
    TRY(swiglu_file_read(file, 0, head, n, error));
    /* The length of a safetensors header may look like some of them. */
    if (n > 8 && head[8] == '{' && !memcmp(head + 4, "\0\0\0\0", 4)) return SWIGLU_OK;
    for (size_t i = 0; i < sizeof foreigners / sizeof foreigners[0]; i++) {
        const struct foreign *f = &foreigners[i];
        if (n < f->bytes || memcmp(head, f->begins, f->bytes)) continue;
        return swiglu_fail(error, SWIGLU_E_UNSUPPORTED, 0, 0, "%s: %s (at byte 0)", file->shown, f->what);
    }
    return SWIGLU_OK;
}
