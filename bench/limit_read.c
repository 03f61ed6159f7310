/* The floor of any aggregation: read N files once and write one of the same size, with T threads, no arithmetic.
 *
 *     gcc -O2 -pthread limit_read.c -o limit_read
 *     ./limit_read OUT THREADS KIB FILE...
 *
 * All files have the size of the first. Prints the seconds, and the seconds of all processors.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static int *inputs, output, count;
static size_t total, step, next_chunk;

static void *lane(void *unused) {
    char *buffer = NULL;
    if (posix_memalign((void **)&buffer, 4096, step)) exit(3);
    for (;;) {
        size_t at = step * __atomic_fetch_add(&next_chunk, 1, __ATOMIC_RELAXED);
        if (at >= total) break;
        size_t length = total - at < step ? total - at : step;
        for (int i = 0; i < count; i++)
            if (pread(inputs[i], buffer, length, at) != (ssize_t)length) exit(4);
        if (pwrite(output, buffer, length, at) != (ssize_t)length) exit(5);
    }
    free(buffer);
    return unused;
}

int main(int argc, char **argv) {
    if (argc < 5) return 2;
    int threads = atoi(argv[2]);
    step = (size_t)atoi(argv[3]) << 10;
    count = argc - 4;
    inputs = malloc(count * sizeof *inputs);
    pthread_t *lanes = malloc(threads * sizeof *lanes);
    for (int i = 0; i < count; i++)
        if ((inputs[i] = open(argv[4 + i], O_RDONLY)) < 0) return 1;
    struct stat facts;
    fstat(inputs[0], &facts);
    total = facts.st_size;
    output = open(argv[1], O_CREAT | O_TRUNC | O_WRONLY, 0644);
    struct timespec a, b, used;
    clock_gettime(CLOCK_MONOTONIC, &a);
    for (int i = 0; i < threads; i++) pthread_create(&lanes[i], NULL, lane, NULL);
    for (int i = 0; i < threads; i++) pthread_join(lanes[i], NULL);
    clock_gettime(CLOCK_MONOTONIC, &b);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    printf("%.4f %.4f\n", (b.tv_sec - a.tv_sec) + 1e-9 * (b.tv_nsec - a.tv_nsec), used.tv_sec + 1e-9 * used.tv_nsec);
    return 0;
}
