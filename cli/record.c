/* SPDX-License-Identifier: Apache-2.0 */
#include "record.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "cli.h"
#include "json.h"

static struct cli_field *add(struct cli_record *record, const char *name, int kind) {
    if (record->n == CLI_RECORD_FIELDS) cli_fail(CLI_IO, "a record of more than %d fields", CLI_RECORD_FIELDS);
    struct cli_field *field = &record->field[record->n++];
    *field = (struct cli_field){.name = name, .kind = kind};
    return field;
}

void cli_record_count(struct cli_record *record, const char *name, uint64_t value) {
    add(record, name, CLI_FIELD_COUNT)->count[0] = value;
}

void cli_record_pair(struct cli_record *record, const char *name, uint64_t first, uint64_t second) {
    struct cli_field *field = add(record, name, CLI_FIELD_PAIR);
    field->count[0] = first, field->count[1] = second;
}

void cli_record_number(struct cli_record *record, const char *name, double value) {
    add(record, name, CLI_FIELD_NUMBER)->number = value;
}

void cli_record_string(struct cli_record *record, const char *name, const char *value) {
    add(record, name, CLI_FIELD_STRING)->text = value;
}

void cli_record_json(const struct cli_record *record, const char *kind) {
    cli_json_open(kind);
    for (size_t i = 0; i < record->n; i++) {
        const struct cli_field *f = &record->field[i];
        switch (f->kind) {
        case CLI_FIELD_COUNT: cli_json_count(f->name, f->count[0]); break;
        case CLI_FIELD_NUMBER: cli_json_number(f->name, f->number); break;
        case CLI_FIELD_STRING: cli_json_string(f->name, f->text); break;
        case CLI_FIELD_PAIR:
            cli_json_list(f->name);
            cli_json_count(NULL, f->count[0]);
            cli_json_count(NULL, f->count[1]);
            cli_json_list_end();
        }
    }
    cli_json_close();
}

static void write_quoted(const char *text) {
    putchar('"');
    for (; *text; text++) {
        if (*text == '"') putchar('"');
        putchar(*text);
    }
    putchar('"');
}

void cli_record_csv(const struct cli_record *record, int names) {
    for (size_t i = 0; i < record->n; i++) {
        const struct cli_field *f = &record->field[i];
        if (i) putchar(',');
        if (names) fputs(f->name, stdout);
        else if (f->kind == CLI_FIELD_COUNT) printf("%" PRIu64, f->count[0]);
        else if (f->kind == CLI_FIELD_PAIR) printf("%" PRIu64 "/%" PRIu64, f->count[0], f->count[1]);
        else if (f->kind == CLI_FIELD_STRING) write_quoted(f->text);
        else if (isfinite(f->number)) printf("%.9g", f->number);
    }
    putchar('\n');
    fflush(stdout);
}
