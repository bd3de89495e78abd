/* Fields of batch headers, and integers of calls, for the extensions that walk over segments. */
#ifndef OTTLA_HEADERS_H
#define OTTLA_HEADERS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

#define HEADER_SIZE 61 /* record_batch.HEADER_SIZE */
#define LOG_OVERHEAD 12 /* record_batch.LOG_OVERHEAD */
#define MAGIC 2
#define BATCH_LENGTH_AT 8
#define MAGIC_AT 16
#define LAST_OFFSET_DELTA_AT 23

/* A number of 4 or 8 bytes, with its sign. */
static inline int64_t number_at(const unsigned char *bytes, int size)
{
    uint64_t bits = bytes[0] & 0x80 ? UINT64_MAX : 0;
    for (int at = 0; at < size; at++)
        bits = bits << 8 | bytes[at];
    return (int64_t)bits;
}

/* Sets the arguments, which are all integers; 0 with an exception where one is none. */
static inline int read_integers(PyObject *const *given, Py_ssize_t count, int64_t *values)
{
    for (Py_ssize_t at = 0; at < count; at++) {
        values[at] = PyLong_AsLongLong(given[at]);
        if (values[at] == -1 && PyErr_Occurred())
            return 0;
    }
    return 1;
}

#endif
