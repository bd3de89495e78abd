/* Records as columns, filled by the cursor of _record_codec.c. */
#ifndef OTTLA_COLUMNS_H
#define OTTLA_COLUMNS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

typedef struct Columns Columns;

/* Adds a record. A `size` of -1 stands for None; `headers` is a sequence, empty without headers. Returns -1 with an
 * exception set, and then changes nothing. */
int columns_append(Columns *self, int64_t offset, int64_t timestamp_ms, const char *key, Py_ssize_t key_size,
                   const char *value, Py_ssize_t value_size, PyObject *headers);

extern PyType_Spec columns_spec;

#endif
