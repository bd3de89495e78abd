// replay PORT CONNECTIONS DEPTH COUNT FRAMES: a load generator that costs next to nothing.
//
// FRAMES is a file of request frames with their sizes. Every connection sends them in turn, COUNT in all, with DEPTH in
// flight, and reads the replies. Prints one JSON object.
#include <fcntl.h>
#include <sys/stat.h>

#include "common.h"

static int port, depth, count;
static uint8_t *frames;
static size_t frames_size;
static double *latencies;
static int latency_count;
static long received;
static int failed;

static double read_clock(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void *run(void *unused) {
    (void)unused;
    struct sockaddr_in address = loopback(port);
    struct timeval patience = {30, 0};
    int on = 1, server = socket(AF_INET, SOCK_STREAM, 0), sent = 0, got = 0;
    setsockopt(server, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(server, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    setsockopt(server, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    uint8_t *reply = malloc(FRAME_MAX);
    double *started = calloc((size_t)depth, sizeof *started);
    size_t at = 0;
    long bytes = 0;
    if (connect(server, (struct sockaddr *)&address, sizeof address)) goto fail;
    while (got < count) {
        while (sent < count && sent - got < depth) {
            uint32_t size;
            memcpy(&size, frames + at, 4);
            size = ntohl(size) + 4;
            started[sent++ % depth] = read_clock(CLOCK_MONOTONIC);
            if (write_all(server, frames + at, size, 0)) goto fail;
            at = at + size < frames_size ? at + size : 0;
        }
        uint32_t size = read_frame(server, reply);
        if (size == 0) goto fail;
        bytes += size;
        latencies[__sync_fetch_and_add(&latency_count, 1)] = read_clock(CLOCK_MONOTONIC) - started[got++ % depth];
    }
    __sync_fetch_and_add(&received, bytes);
    goto done;
fail:
    __sync_fetch_and_add(&failed, 1);
done:
    close(server);
    free(reply);
    free(started);
    return NULL;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

int main(int arguments, char **values) {
    if (arguments != 6) return 2;
    port = atoi(values[1]);
    int connections = atoi(values[2]);
    depth = atoi(values[3]);
    count = atoi(values[4]);
    int file = open(values[5], O_RDONLY);
    struct stat status;
    if (file < 0 || fstat(file, &status)) return 1;
    frames_size = (size_t)status.st_size;
    frames = malloc(frames_size);
    if (read(file, frames, frames_size) != (ssize_t)frames_size) return 1;
    latencies = calloc((size_t)connections * (size_t)count, sizeof *latencies);
    pthread_t *threads = calloc((size_t)connections, sizeof *threads);
    double start = read_clock(CLOCK_MONOTONIC);
    for (int i = 0; i < connections; i++) pthread_create(&threads[i], NULL, run, NULL);
    for (int i = 0; i < connections; i++) pthread_join(threads[i], NULL);
    double seconds = read_clock(CLOCK_MONOTONIC) - start;
    int n = latency_count;
    qsort(latencies, (size_t)n, sizeof *latencies, compare);
    printf("{\"seconds\": %.6f, \"cpu_seconds\": %.6f, \"replies\": %d, \"bytes\": %ld, \"failed\": %d, \"p50_us\": %.1f, \"p99_us\": %.1f}\n",
           seconds, read_clock(CLOCK_PROCESS_CPUTIME_ID), n, received, failed, n ? latencies[n / 2] * 1e6 : 0, n ? latencies[n * 99L / 100] * 1e6 : 0);
    return failed != 0;
}
