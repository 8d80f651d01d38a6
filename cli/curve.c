/* SPDX-License-Identifier: Apache-2.0 */
#include "curve.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { STEPS = 20, WIDTH = 96 }; /* a line of text is 1/20; columns move together to keep within the width */

/* The line of a share: the nearest one. Above 1.05 there is none. */
static int line_of(double share) {
    const int line = (int)lround(share * STEPS);
    return line < 0 ? 0 : line > STEPS + 1 ? STEPS + 1 : line;
}

static int lowest_line(const struct cli_curve *curves, size_t n_curves, size_t n_rows) {
    int lowest = STEPS;
    for (size_t c = 0; c < n_curves; c++)
        for (size_t i = 0; i < n_rows; i++)
            if (line_of(curves[c].shares[i]) < lowest) lowest = line_of(curves[c].shares[i]);
    return lowest > 1 ? lowest - 1 : 0;
}

/* Numbers of rows under their columns, as many as have room. */
static void print_axis(const size_t *rows, size_t n_rows, size_t step) {
    char text[CLI_CURVE_ROWS + 32] = "", number[24];
    for (size_t i = 0; i < n_rows; i++) {
        const size_t at = i * step;
        const int n = snprintf(number, sizeof number, "%zu", rows[i]);
        if (strlen(text) > at || at + (size_t)n >= sizeof text) continue;
        memset(text + strlen(text), ' ', at - strlen(text));
        snprintf(text + at, sizeof text - at, "%s ", number);
    }
    printf("      +");
    for (size_t i = 0; i < n_rows * step; i++) putchar('-');
    printf(" rows\n       %s\n", text);
}

void cli_curves_print(const struct cli_curve *curves, size_t n_curves, const size_t *rows, size_t n_rows) {
    const size_t step = n_rows <= WIDTH / 3 ? 3 : n_rows <= WIDTH / 2 ? 2 : 1;
    printf("share of the limit over rows:");
    for (size_t c = 0; c < n_curves; c++) printf("%s %c %s", c ? "," : "", curves[c].mark, curves[c].name);
    putchar('\n');
    for (int line = STEPS + 1, end = lowest_line(curves, n_curves, n_rows); line >= end; line--) {
        if (line % 2) printf("      |");
        else printf(" %4.2f |", (double)line / STEPS);
        for (size_t i = 0; i < n_rows; i++) {
            char mark = ' ';
            for (size_t c = 0; c < n_curves; c++)
                if (line_of(curves[c].shares[i]) == line) mark = mark == ' ' ? curves[c].mark : '*';
            printf("%c%*s", mark, i + 1 < n_rows ? (int)step - 1 : 0, "");
        }
        putchar('\n');
    }
    print_axis(rows, n_rows, step);
}
