/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L /* strtok_r */
#include "cpu/cgroup.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE = 2048, PATH = 3 * LINE }; /* a longer line, such as that of a deep overlay, describes no control group */

struct group {
    int version;          /* of control groups: 1 or 2 */
    char mount[LINE];     /* where its hierarchy is mounted */
    char below[LINE];     /* the group's folder there: "" or "/a/b" */
};

/* One line without its end into line; lines that do not fit are left out. 0 after the last. */
static int next_line(FILE *f, char line[LINE]) {
    while (fgets(line, LINE, f)) {
        const size_t n = strlen(line);
        if (n && line[n - 1] == '\n') return line[n - 1] = 0, 1;
        if (feof(f)) return 1;
        for (int c; (c = fgetc(f)) != '\n' && c != EOF;) {}
    }
    return 0;
}

static FILE *open_below(const char *root, const char *path) {
    char name[PATH];
    const int n = snprintf(name, sizeof name, "%s%s", root, path);
    return n > 0 && n < PATH ? fopen(name, "re") : NULL;
}

/* Whether word is one of the words of a list with commas. */
static int listed(const char *list, const char *word) {
    const size_t n = strlen(word);
    for (const char *at = list; at; at = strchr(at, ','), at += !!at)
        if (!strncmp(at, word, n) && (at[n] == ',' || !at[n])) return 1;
    return 0;
}

/* mountinfo writes a space as \040, and so a tab, a line end and a backslash. */
static void unescape(char *text) {
    char *to = text;
    for (const char *from = text; *from; from++) {
        if (from[0] == '\\' && from[1] && from[2] && from[3]) {
            *to++ = (char)((from[1] - '0') * 64 + (from[2] - '0') * 8 + (from[3] - '0'));
            from += 3;
        } else {
            *to++ = *from;
        }
    }
    *to = 0;
}

/* The process's path in the hierarchy of this version, from lines such as "0::/a" and "4:cpu,cpuacct:/a". */
static int find_path(const char *root, int version, char path[LINE]) {
    char line[LINE];
    int found = 0;
    FILE *f = open_below(root, "/proc/self/cgroup");
    while (f && !found && next_line(f, line)) {
        char *controllers = strchr(line, ':'), *name = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!name) continue;
        *controllers++ = *name++ = 0;
        found = version == 2 ? !strcmp(line, "0") && !*controllers : listed(controllers, "cpu");
        if (found) memcpy(path, name, strlen(name) + 1);
    }
    if (f) fclose(f);
    return found;
}

/* Whether a line of mountinfo mounts a hierarchy that can limit CPUs; *mounted gets the folder of it that is mounted. */
static int parse_mount(char *line, struct group *group, char **mounted) {
    char *save, *field[5] = {0}, *type = NULL;
    int n = 0;
    for (char *word = strtok_r(line, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
        if (n < 5) field[n++] = word;
        else if (!strcmp(word, "-")) { type = strtok_r(NULL, " ", &save); break; }
    }
    if (!type) return 0;
    const char *source = strtok_r(NULL, " ", &save), *options = source ? strtok_r(NULL, " ", &save) : NULL;
    group->version = !strcmp(type, "cgroup2") ? 2 : !strcmp(type, "cgroup") && options && listed(options, "cpu") ? 1 : 0;
    unescape(field[3]);
    unescape(field[4]);
    *mounted = field[3];
    memcpy(group->mount, field[4], strlen(field[4]) + 1);
    return group->version;
}

/* Where the group of path lies below the mount. A path elsewhere is not seen here: what is mounted limits it all the same. */
static void place(struct group *group, const char *mounted, const char *path) {
    size_t n = strlen(mounted);
    if (n && mounted[n - 1] == '/') n--;
    const int within = !strncmp(path, mounted, n) && (path[n] == '/' || !path[n]) && strcmp(path, "/..") &&
                       strncmp(path, "/../", 4);
    snprintf(group->below, sizeof group->below, "%s", within ? path + n : "");
    n = strlen(group->below);
    if (n && group->below[n - 1] == '/') group->below[n - 1] = 0;
}

/* Numbers of a file of the group; the rest stays. */
static void read_numbers(const char *root, const struct group *group, const char *file, double *a, double *b) {
    char path[PATH];
    const int n = snprintf(path, sizeof path, "%s%s/%s", group->mount, group->below, file);
    FILE *f = n > 0 && n < PATH ? open_below(root, path) : NULL;
    if (!f) return;
    double first, second;
    const int found = fscanf(f, "%lf %lf", &first, &second); /* "max 100000" holds none */
    if (found > 0) *a = first;
    if (found > 1 && b) *b = second;
    fclose(f);
}

/* The smallest quota of the group and those above it, in CPUs. */
static double smallest(const char *root, struct group *group) {
    for (double least = INFINITY;;) {
        double quota = -1, period = 100000;
        if (group->version == 2) {
            read_numbers(root, group, "cpu.max", &quota, &period);
        } else {
            read_numbers(root, group, "cpu.cfs_quota_us", &quota, NULL);
            read_numbers(root, group, "cpu.cfs_period_us", &period, NULL);
        }
        if (quota > 0 && period > 0) least = fmin(least, quota / period);
        char *last = strrchr(group->below, '/');
        if (!last) return least;
        *last = 0;
    }
}

unsigned swiglu_cgroup_cpus(const char *root) {
    char line[LINE], path[LINE], *mounted;
    struct group group;
    double least = INFINITY;
    FILE *f = open_below(root, "/proc/self/mountinfo");
    while (f && next_line(f, line)) {
        if (!parse_mount(line, &group, &mounted) || !find_path(root, group.version, path)) continue;
        place(&group, mounted, path);
        least = fmin(least, smallest(root, &group));
    }
    if (f) fclose(f);
    return least < UINT_MAX ? (unsigned)fmax(least, 1) : 0;
}
