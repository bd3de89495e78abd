// What the reference programs share: whole reads and writes, CRC-32C, and the big-endian size before a frame.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define FRAME_MAX (64u << 20)

static int read_all(int fd, void *buffer, size_t size) {
    uint8_t *at = buffer;
    while (size) {
        ssize_t got = recv(fd, at, size, MSG_WAITALL);
        if (got <= 0) return -1;
        at += got;
        size -= (size_t)got;
    }
    return 0;
}

static inline int write_all(int fd, const void *buffer, size_t size, int flags) {
    const uint8_t *at = buffer;
    while (size) {
        ssize_t put = send(fd, at, size, flags | MSG_NOSIGNAL);
        if (put <= 0) return -1;
        at += put;
        size -= (size_t)put;
    }
    return 0;
}

// The next frame without its size, into `buffer` of FRAME_MAX bytes; its size, or 0 at the end.
static uint32_t read_frame(int fd, uint8_t *buffer) {
    uint32_t size;
    if (read_all(fd, &size, 4)) return 0;
    size = ntohl(size);
    if (size == 0 || size > FRAME_MAX || read_all(fd, buffer, size)) return 0;
    return size;
}

static uint32_t crc_table[256];

static inline void crc_init(void) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int k = 0; k < 8; k++) c = c & 1 ? 0x82f63b78u ^ (c >> 1) : c >> 1;
        crc_table[i] = c;
    }
}

#if defined(__x86_64__)
#include <nmmintrin.h>
__attribute__((target("sse4.2"))) static uint32_t crc32c_hardware(const uint8_t *at, size_t size) {
    uint64_t c = 0xffffffffu;
    for (; size >= 8; at += 8, size -= 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        c = _mm_crc32_u64(c, word);
    }
    for (; size; at++, size--) c = _mm_crc32_u8((uint32_t)c, *at);
    return ~(uint32_t)c;
}
#endif

static inline uint32_t crc32c(const uint8_t *at, size_t size) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("sse4.2")) return crc32c_hardware(at, size);
#endif
    uint32_t c = 0xffffffffu;
    for (; size; at++, size--) c = crc_table[(c ^ *at) & 0xff] ^ (c >> 8);
    return ~c;
}

static struct sockaddr_in loopback(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

// Serve every connection with a thread of its own that runs `serve`; prints the port once it listens.
static inline void serve_forever(void *(*serve)(void *)) {
    struct sockaddr_in address = loopback(0);
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&address, length) || listen(listener, 64)) {
        perror("listen");
        exit(1);
    }
    getsockname(listener, (struct sockaddr *)&address, &length);
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    for (;;) {
        int on = 1, client = accept(listener, NULL, NULL);
        if (client < 0) continue;
        setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        pthread_t thread;
        pthread_create(&thread, NULL, serve, (void *)(intptr_t)client);
        pthread_detach(thread);
    }
}
