/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file that appears whole or not at all: written beside its target under a name of its own, synced, renamed. An
 * older target stays as it is until then; SIGINT, SIGTERM, SIGHUP and SIGPIPE remove the unfinished file. One at a
 * time.
 */
#ifndef CLI_OUTPUT_H
#define CLI_OUTPUT_H

#include <stddef.h>

void cli_output_judge(const char *path); /* fails where cli_output_open would, and leaves nothing behind */
void cli_output_open(const char *path); /* fails with CLI_USAGE when path cannot be made */
void cli_output_write(const void *data, size_t n_bytes);
void cli_output_commit(void);
void cli_output_discard(void); /* removes the unfinished file, if there is one */

#endif
