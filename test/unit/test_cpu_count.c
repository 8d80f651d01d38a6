/* SPDX-License-Identifier: Apache-2.0 */
/* How many CPUs and cores a process may use, by files of a root folder that each test writes. */
#define _XOPEN_SOURCE 700
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support.h"

#include "cpu/cgroup.h"
#include "cpu/cpu.h"

static char root[] = "/tmp/swiglu-root-XXXXXX";

static void put(const char *path, const char *text) {
    char name[4096];
    snprintf(name, sizeof name, "%s%s", root, path);
    for (char *slash = name + sizeof root; (slash = strchr(slash, '/')); slash++) {
        *slash = 0;
        assert_true(mkdir(name, 0777) == 0 || errno == EEXIST);
        *slash = '/';
    }
    FILE *f = fopen(name, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *walk) {
    (void)status, (void)type, (void)walk;
    return remove(path);
}

static int begin(void **state) {
    (void)state;
    strcpy(root + sizeof root - 7, "XXXXXX");
    return !mkdtemp(root);
}

static int end(void **state) {
    (void)state;
    return nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

#define V2 "31 23 0:28 / /sys/fs/cgroup rw,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
#define V1 "33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
#define OTHER "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n" "36 31 0:33 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"

static void version_2_with_ancestors(void **state) {
    (void)state;
    put("/proc/self/mountinfo", OTHER V2);
    put("/proc/self/cgroup", "0::/user/job/part\n");
    assert_int_equal(swiglu_cgroup_cpus(root), 0); /* no files at all */
    put("/sys/fs/cgroup/user/job/part/cpu.max", "max 100000\n");
    assert_int_equal(swiglu_cgroup_cpus(root), 0);
    put("/sys/fs/cgroup/user/cpu.max", "1200000 100000\n");
    assert_int_equal(swiglu_cgroup_cpus(root), 12); /* of an ancestor */
    put("/sys/fs/cgroup/user/job/part/cpu.max", "765000 100000\n");
    assert_int_equal(swiglu_cgroup_cpus(root), 7); /* 7.65 rounded down */
    put("/sys/fs/cgroup/user/job/cpu.max", "150000 50000\n");
    assert_int_equal(swiglu_cgroup_cpus(root), 3); /* the smallest, with its own period */
    put("/sys/fs/cgroup/cpu.max", "50000 100000\n"); /* where the hierarchy is mounted: a container's own limit */
    assert_int_equal(swiglu_cgroup_cpus(root), 1);
    put("/sys/fs/cgroup/user/job/other/cpu.max", "1000 100000\n");
    put("/sys/fs/cgroup/cpu.max", "max 100000\n");
    assert_int_equal(swiglu_cgroup_cpus(root), 3); /* a sibling's does not count */
}

static void version_1_with_ancestors(void **state) {
    (void)state;
    put("/proc/self/mountinfo", OTHER V1);
    put("/proc/self/cgroup", "5:cpuset:/elsewhere\n4:cpu,cpuacct:/a/b\n1:name=systemd:/x\n");
    put("/sys/fs/cgroup/cpu,cpuacct/a/b/cpu.cfs_quota_us", "-1\n");
    put("/sys/fs/cgroup/cpu,cpuacct/a/b/cpu.cfs_period_us", "100000\n");
    assert_int_equal(swiglu_cgroup_cpus(root), 0);
    put("/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "290000\n");
    put("/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "100000\n");
    assert_int_equal(swiglu_cgroup_cpus(root), 2);
    put("/sys/fs/cgroup/cpuset/elsewhere/cpu.cfs_quota_us", "100000\n");
    put("/sys/fs/cgroup/cpu,cpuacct/elsewhere/cpu.cfs_quota_us", "100000\n");
    assert_int_equal(swiglu_cgroup_cpus(root), 2);
}

/* A container sees its own part of the hierarchy, but in /proc/self/cgroup the whole path. */
static void a_part_of_the_hierarchy_is_mounted(void **state) {
    (void)state;
    put("/proc/self/mountinfo", "33 31 0:30 /docker/f00 /sys/fs/cgroup/cpu rw master:3 - cgroup cgroup rw,cpu\n");
    put("/proc/self/cgroup", "4:cpu:/docker/f00\n0::/\n");
    put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "250000");
    put("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000");
    assert_int_equal(swiglu_cgroup_cpus(root), 2);
    put("/proc/self/cgroup", "4:cpu:/docker/f00/inner\n");
    put("/sys/fs/cgroup/cpu/inner/cpu.cfs_quota_us", "100000");
    assert_int_equal(swiglu_cgroup_cpus(root), 1);
    put("/proc/self/cgroup", "4:cpu:/docker/f00d\n"); /* a group elsewhere, whose name begins alike */
    assert_int_equal(swiglu_cgroup_cpus(root), 2);
    put("/proc/self/cgroup", "4:cpu:/../..\n");
    assert_int_equal(swiglu_cgroup_cpus(root), 2);
}

/* Version 1 for the CPU controller beside version 2 without it; blanks in names. */
static void both_versions(void **state) {
    (void)state;
    put("/proc/self/mountinfo", "41 31 0:38 / /sys/fs/my\\040cgroup rw - cgroup2 none rw\n" V1);
    put("/proc/self/cgroup", "4:cpu,cpuacct:/\n0::/two words\n");
    put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "800000");
    assert_int_equal(swiglu_cgroup_cpus(root), 8);
    put("/sys/fs/my cgroup/two words/cpu.max", "600000 100000");
    assert_int_equal(swiglu_cgroup_cpus(root), 6);
}

static void what_cannot_be_read_limits_nothing(void **state) {
    (void)state;
    static const char *const bad[] = {"", "\n", "max", "x 100000", "-5 100000", "0 100000", "nan 1", "inf 100000", "100 0",
                                      "100 -1", "99999999999999999999 1"};
    assert_int_equal(swiglu_cgroup_cpus(root), 0); /* no /proc */
    put("/proc/self/cgroup", "0::/a\n");
    put("/proc/self/mountinfo", V2);
    for (size_t i = 0; i < COUNT(bad); i++) {
        put("/sys/fs/cgroup/a/cpu.max", bad[i]);
        assert_int_equal(swiglu_cgroup_cpus(root), 0);
    }
    put("/sys/fs/cgroup/a/cpu.max", "200000"); /* the period that the kernel uses where none is given */
    assert_int_equal(swiglu_cgroup_cpus(root), 2);
    static const char *const mounts[] = {"", "x", "1 2 3 4 5 6 7 8 9", "1 2 3 / /sys - ", "1 2 3 / /sys rw -",
                                         "1 2 3 / /sys rw - cgroup2", " - cgroup2 cgroup2 rw"};
    for (size_t i = 0; i < COUNT(mounts); i++) {
        put("/proc/self/mountinfo", mounts[i]);
        assert_int_equal(swiglu_cgroup_cpus(root), 0);
    }
    static const char *const groups[] = {"", ":", "0", "0:", "0:cpu:/a", "::/a", "1::/a"};
    put("/proc/self/mountinfo", V2);
    for (size_t i = 0; i < COUNT(groups); i++) {
        put("/proc/self/cgroup", groups[i]);
        assert_int_equal(swiglu_cgroup_cpus(root), 0);
    }
    char long_line[20000];
    memset(long_line, 'a', sizeof long_line);
    memcpy(long_line + 9000, "\n0::/a\n", 8);
    memcpy(long_line, "0::/", 4);
    put("/proc/self/cgroup", long_line); /* a line that does not fit is left out, the next one is read */
    assert_int_equal(swiglu_cgroup_cpus(root), 2);
}

static struct swiglu_cpu_set cpus(size_t first, size_t last) {
    struct swiglu_cpu_set set = {{0}};
    const size_t bits = 8 * sizeof set.word[0];
    for (size_t i = first; i <= last; i++) set.word[i / bits] |= 1ul << i % bits;
    return set;
}

static void check_counts(const struct swiglu_cpu_set *set, unsigned n_cpus, unsigned n_cores) {
    const struct swiglu_cpu_counts counts = swiglu_cpu_counts_of(root, set);
    assert_int_equal(counts.n_cpus, n_cpus);
    assert_int_equal(counts.n_cores, n_cores);
}

#define SIBLINGS(cpu) "/sys/devices/system/cpu/cpu" #cpu "/topology/thread_siblings_list"

static void cores_within_the_affinity(void **state) {
    (void)state;
    struct swiglu_cpu_set four = cpus(0, 3), two = cpus(1, 2), far = cpus(8100, 8191);
    check_counts(&four, 4, 4); /* nothing is known */
    put(SIBLINGS(0), "0,2\n");
    put(SIBLINGS(1), "1,3\n");
    put(SIBLINGS(2), "0,2\n");
    put(SIBLINGS(3), "1,3\n");
    check_counts(&four, 4, 2);
    check_counts(&two, 2, 2); /* their siblings are not allowed, so each has a core */
    put(SIBLINGS(0), "0-3\n");
    check_counts(&four, 4, 1);
    put(SIBLINGS(0), "3-0,x\n"); /* no list: a core of its own */
    check_counts(&four, 4, 3);
    check_counts(&far, 92, 92);
    put(SIBLINGS(8100), "0-99999999999999999999\n");
    check_counts(&far, 92, 1);
}

static void quotas_limit_cpus_and_cores(void **state) {
    (void)state;
    struct swiglu_cpu_set eight = cpus(0, 7);
    for (int i = 0; i < 8; i++) {
        char path[128], list[16];
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", i);
        snprintf(list, sizeof list, "%d-%d\n", i & ~1, i | 1);
        put(path, list);
    }
    check_counts(&eight, 8, 4);
    put("/proc/self/mountinfo", V2);
    put("/proc/self/cgroup", "0::/\n");
    static const struct { const char *max; unsigned n_cpus, n_cores; } rows[] = {
        {"900000 100000", 8, 4}, {"700000 100000", 7, 4}, {"390000 100000", 3, 3}, {"20000 100000", 1, 1}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        put("/sys/fs/cgroup/cpu.max", rows[i].max);
        check_counts(&eight, rows[i].n_cpus, rows[i].n_cores);
    }
}

static void this_machine_has_some(void **state) {
    (void)state;
    const struct swiglu_cpu_counts counts = swiglu_cpu_counts();
    assert_true(counts.n_cores >= 1 && counts.n_cores <= counts.n_cpus);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(version_2_with_ancestors, begin, end),
        cmocka_unit_test_setup_teardown(version_1_with_ancestors, begin, end),
        cmocka_unit_test_setup_teardown(a_part_of_the_hierarchy_is_mounted, begin, end),
        cmocka_unit_test_setup_teardown(both_versions, begin, end),
        cmocka_unit_test_setup_teardown(what_cannot_be_read_limits_nothing, begin, end),
        cmocka_unit_test_setup_teardown(cores_within_the_affinity, begin, end),
        cmocka_unit_test_setup_teardown(quotas_limit_cpus_and_cores, begin, end),
        cmocka_unit_test(this_machine_has_some),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
