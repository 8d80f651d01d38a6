/* SPDX-License-Identifier: Apache-2.0 */
/* Named values that are written in several formats: a JSON object, or a line of CSV. */
#ifndef CLI_RECORD_H
#define CLI_RECORD_H

#include <stddef.h>
#include <stdint.h>

enum { CLI_RECORD_FIELDS = 40 };

struct cli_field {
    const char *name;
    enum { CLI_FIELD_COUNT, CLI_FIELD_NUMBER, CLI_FIELD_STRING, CLI_FIELD_PAIR } kind;
    uint64_t count[2];
    double number;
    const char *text;
};

struct cli_record {
    struct cli_field field[CLI_RECORD_FIELDS];
    size_t n;
};

void cli_record_count(struct cli_record *record, const char *name, uint64_t value);
void cli_record_pair(struct cli_record *record, const char *name, uint64_t first, uint64_t second);
void cli_record_number(struct cli_record *record, const char *name, double value);
void cli_record_string(struct cli_record *record, const char *name, const char *value); /* kept, not copied */

void cli_record_json(const struct cli_record *record, const char *kind);
/* Names, or values: texts in quotes, a pair as first/second, nothing for a number that is not finite (RFC 4180). */
void cli_record_csv(const struct cli_record *record, int names);

#endif
