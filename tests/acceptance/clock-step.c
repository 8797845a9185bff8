// Gives every node of a local cluster a wall clock of its own, which a script sets while the nodes run. Preloaded into the launcher, whose children inherit it:
//   cc -shared -fPIC -O2 -o clock-step.so clock-step.c -ldl
//   CLOCK_STEP_FOLDER=FOLDER LD_PRELOAD=$PWD/clock-step.so kv-local --processes
// Only the process `kv-node ... --node N` is affected. FOLDER/node-N has 8 bytes: the seconds that its clock is ahead, and their complement, 32 bits each,
// little-endian. The file is mapped, so that a write to it is a step, and reading the clock costs no system call. Only the wall clock is ahead. CLOCK_MONOTONIC
// and CLOCK_BOOTTIME are the machine's.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

// Of a process that is no node, and of a node until its libraries have been initialized.
static const uint64_t not_ahead = (uint64_t)UINT32_MAX << 32;
static const volatile uint64_t *clock_file = &not_ahead;

// A node that kept the machine's clock would pass every test, so it does not start.
__attribute__((constructor)) static void map_file(int argc, char **argv)
{
    const char *folder = getenv("CLOCK_STEP_FOLDER"), *slash = argc > 0 ? strrchr(argv[0], '/') : NULL;
    if (folder == NULL || slash == NULL || strcmp(slash, "/kv-node") != 0)
        return;
    for (int i = 1; i + 1 < argc; i++) {
        char path[4096];
        if (strcmp(argv[i], "--node") != 0)
            continue;
        snprintf(path, sizeof path, "%s/node-%s", folder, argv[i + 1]);
        int file = open(path, O_RDONLY | O_CLOEXEC);
        void *mapped = file < 0 ? MAP_FAILED : mmap(NULL, sizeof *clock_file, PROT_READ, MAP_SHARED, file, 0);
        if (mapped == MAP_FAILED) {
            perror(path);
            exit(2);
        }
        clock_file = mapped;
    }
}

static int32_t seconds_ahead(void)
{
    uint64_t value;
    // The halves disagree for as long as half of a step has been written.
    do
        value = *clock_file;
    while ((uint32_t)(value >> 32) != ~(uint32_t)value);
    return (int32_t)(uint32_t)value;
}

int clock_gettime(clockid_t clock, struct timespec *time)
{
    // Found at the first call, which may come before the constructor. Several threads find the same. It reads the clock in user space.
    static int (*next)(clockid_t, struct timespec *);
    if (__atomic_load_n(&next, __ATOMIC_RELAXED) == NULL)
        __atomic_store_n(&next, (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime"), __ATOMIC_RELAXED);
    int failed = next(clock, time);
    if (failed == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        time->tv_sec += seconds_ahead();
    return failed;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    *time = (struct timeval){now.tv_sec, now.tv_nsec / 1000};
    if (zone != NULL)
        memset(zone, 0, sizeof(struct timezone));
    return 0;
}

time_t time(time_t *result)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME_COARSE, &now);
    if (result != NULL)
        *result = now.tv_sec;
    return now.tv_sec;
}
