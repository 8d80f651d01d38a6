/* SPDX-License-Identifier: Apache-2.0 */
/* One JSON object a line on stdout: open, members, close. Lists hold numbers or strings. */
#ifndef CLI_JSON_H
#define CLI_JSON_H

#include <stddef.h>
#include <stdint.h>

void cli_json_open(const char *kind); /* the first member tells what the object describes */
void cli_json_close(void); /* ends the line and flushes, so that a reader of a pipe sees each object at once */
void cli_json_string(const char *key, const char *value);
void cli_json_number(const char *key, double value); /* NaN and infinities become null */
void cli_json_count(const char *key, uint64_t value);
void cli_json_flag(const char *key, int value);
void cli_json_list(const char *key); /* members up to cli_json_list_end have key NULL */
void cli_json_list_end(void);

#endif
