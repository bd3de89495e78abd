/* Varints in the form that records use: zigzag, seven bits a byte, the lowest bits first. */
#ifndef OTTLA_VARINTS_H
#define OTTLA_VARINTS_H

#include <stdint.h>

#define VARLONG_BYTES_MAX 10

/* Writes at most VARLONG_BYTES_MAX bytes; returns the position after them. */
static inline char *put_varlong(char *to, int64_t value)
{
    uint64_t bits = ((uint64_t)value << 1) ^ (value < 0 ? UINT64_MAX : 0);
    while (bits > 0x7F) {
        *to++ = (char)(bits | 0x80);
        bits >>= 7;
    }
    *to++ = (char)bits;
    return to;
}

static inline int varlong_size(int64_t value)
{
    uint64_t bits = ((uint64_t)value << 1) ^ (value < 0 ? UINT64_MAX : 0);
    int size = 1;
    while (bits > 0x7F) {
        size++;
        bits >>= 7;
    }
    return size;
}

#endif
