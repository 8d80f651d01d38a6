/* SPDX-License-Identifier: Apache-2.0 */
/* Files that people take for checkpoints. */
#ifndef SWIGLU_FOREIGN_H
#define SWIGLU_FOREIGN_H

#include "io/file.h"

/* E_UNSUPPORTED with what the file is and what to do, where it begins as one of these; else OK, and the format's reader judges.
 */
enum swiglu_status swiglu_foreign_check(const struct swiglu_file *file, struct swiglu_error *error);

#endif
