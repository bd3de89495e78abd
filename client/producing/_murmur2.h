#ifndef OTTLA_MURMUR2_H
#define OTTLA_MURMUR2_H

#include <Python.h>
#include <stdint.h>

/* Kafka's murmur2, as in partitioner.py. */
static inline uint32_t murmur2(const unsigned char *data, Py_ssize_t length)
{
    const uint32_t m = 0x5BD1E995;
    uint32_t h = 0x9747B28C ^ (uint32_t)length;
    for (; length >= 4; data += 4, length -= 4) {
        uint32_t k = (uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24;
        k *= m;
        k ^= k >> 24;
        h = (h * m) ^ (k * m);
    }
    uint32_t tail = 0;
    for (Py_ssize_t i = length; i > 0; i--)
        tail = tail << 8 | data[i - 1];
    if (length)
        h = (h ^ tail) * m;
    h ^= h >> 13;
    h *= m;
    return h ^ h >> 15;
}

#endif
