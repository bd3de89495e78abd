/* Columns on their way into batches, in C: what rows_in_python.py has, under the same names and with the same results.
 *
 * The rule of this file: what columns say of themselves is not believed. Where a value begins and ends is compared with
 * the data each time it is read, as the buffers are the program's, and may have changed since.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#include "../../../protocol/records/_varints.h"
#include "../_murmur2.h"

#define RECORD_OVERHEAD 21 /* as in appending_in_python.py */
#define FIELDS_MAX (4 * VARLONG_BYTES_MAX + 6 + 1) /* what a record has beside key, value and headers, at most */

/* Keys or values in Arrow's layout: a bit for each that is not null, where each begins and the last one ends, the data. */
typedef struct {
    int there, wide; /* wide: `ends` are int64, and not int32 */
    Py_ssize_t first;
    Py_buffer valid, ends, data; /* obj is NULL where there is none */
} Blobs;

typedef struct {
    PyObject_HEAD
    Py_ssize_t count;
    Blobs keys, values;
    Py_buffer stamps; /* int64; obj is NULL where all have `stamp_ms` */
    int64_t stamp_ms;
    PyObject *headers; /* a list of bytes or None, or NULL */
} Rows;

/* One of them. `size` is -1 for null. */
typedef struct {
    const char *data;
    Py_ssize_t size;
} Blob;

static int bad_end(Py_ssize_t row)
{
    PyErr_Format(PyExc_ValueError, "row %zd: its column says that it lies outside of the data", row);
    return -1;
}

static int read_blob(const Blobs *from, Py_ssize_t row, Blob *blob)
{
    blob->data = NULL;
    blob->size = -1;
    if (!from->there)
        return 0;
    Py_ssize_t at = from->first + row;
    if (from->valid.obj != NULL && !(((const unsigned char *)from->valid.buf)[at / 8] >> at % 8 & 1))
        return 0;
    int64_t begin, end;
    if (from->wide) {
        int64_t ends[2];
        memcpy(ends, (const char *)from->ends.buf + at * 8, sizeof ends);
        begin = ends[0], end = ends[1];
    } else {
        int32_t ends[2];
        memcpy(ends, (const char *)from->ends.buf + at * 4, sizeof ends);
        begin = ends[0], end = ends[1];
    }
    if (begin < 0 || end < begin || end > (from->data.obj == NULL ? 0 : from->data.len))
        return bad_end(row);
    blob->data = end == begin ? "" : (const char *)from->data.buf + begin;
    blob->size = (Py_ssize_t)(end - begin);
    return 0;
}

typedef struct {
    Blob key, value, headers;
    int64_t stamp_ms;
} Row;

static Py_ssize_t more_than_none(Py_ssize_t size)
{
    return size < 0 ? 0 : size;
}

static int read_row(const Rows *self, Py_ssize_t row, Row *into)
{
    static const char none[] = {0};
    if (row < 0 || row >= self->count) {
        PyErr_Format(PyExc_IndexError, "row %zd of %zd", row, self->count);
        return -1;
    }
    if (read_blob(&self->keys, row, &into->key) < 0 || read_blob(&self->values, row, &into->value) < 0)
        return -1;
    into->headers = (Blob){none, sizeof none};
    if (self->headers != NULL) {
        PyObject *headers = row < PyList_GET_SIZE(self->headers) ? PyList_GET_ITEM(self->headers, row) : Py_None;
        if (PyBytes_Check(headers))
            into->headers = (Blob){PyBytes_AS_STRING(headers), PyBytes_GET_SIZE(headers)};
    }
    into->stamp_ms = self->stamp_ms;
    if (self->stamps.obj != NULL)
        memcpy(&into->stamp_ms, (const char *)self->stamps.buf + row * 8, sizeof into->stamp_ms);
    return 0;
}

static Py_ssize_t estimated_bytes(const Row *row)
{
    return RECORD_OVERHEAD + more_than_none(row->key.size) + more_than_none(row->value.size) + row->headers.size - 1;
}

static PyObject *rows_first_above(Rows *self, PyObject *given)
{
    Py_ssize_t limit = PyNumber_AsSsize_t(given, NULL);
    if (limit == -1 && PyErr_Occurred())
        return NULL;
    for (Py_ssize_t at = 0; at < self->count; at++) {
        Row row;
        if (read_row(self, at, &row) < 0)
            return NULL;
        if (estimated_bytes(&row) > limit)
            return Py_BuildValue("nn", at, estimated_bytes(&row));
    }
    Py_RETURN_NONE;
}

static PyObject *rows_by_hash(Rows *self, PyObject *given)
{
    long partitions = PyLong_AsLong(given);
    if (partitions == -1 && PyErr_Occurred())
        return NULL;
    if (partitions <= 0 || partitions > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "a topic has one partition or more");
        return NULL;
    }
    PyObject *chosen = PyByteArray_FromStringAndSize(NULL, self->count * (Py_ssize_t)sizeof(int32_t));
    if (chosen == NULL)
        return NULL;
    int32_t *into = (int32_t *)PyByteArray_AS_STRING(chosen);
    for (Py_ssize_t at = 0; at < self->count; at++) {
        Blob key;
        if (read_blob(&self->keys, at, &key) < 0) {
            Py_DECREF(chosen);
            return NULL;
        }
        into[at] = key.size < 0
                       ? -1
                       : (int32_t)((murmur2((const unsigned char *)key.data, key.size) & 0x7FFFFFFF) % (uint32_t)partitions);
    }
    return chosen;
}

static PyObject *rows_fill(Rows *self, PyObject *given)
{
    PyObject *chosen;
    Py_ssize_t at, left;
    int partition;
    if (!PyArg_ParseTuple(given, "O!nin:fill", &PyByteArray_Type, &chosen, &at, &partition, &left))
        return NULL;
    if (at < 0 || PyByteArray_GET_SIZE(chosen) != self->count * (Py_ssize_t)sizeof(int32_t)) {
        PyErr_SetString(PyExc_ValueError, "fill takes what by_hash gave, and a row");
        return NULL;
    }
    int32_t *into = (int32_t *)PyByteArray_AS_STRING(chosen);
    for (; at < self->count && left > 0; at++) {
        Row row;
        if (into[at] >= 0)
            continue;
        if (read_row(self, at, &row) < 0)
            return NULL;
        into[at] = partition;
        left -= estimated_bytes(&row);
    }
    while (at < self->count && into[at] >= 0)
        at++;
    return Py_BuildValue("nn", at, left);
}

/* How many of the rows `order[at]` and on go into a body of about `limit` bytes, one at least; the memory for them. */
static Py_ssize_t measure(Rows *self, const int32_t *order, Py_ssize_t count, Py_ssize_t limit, Py_ssize_t *size,
                          Py_ssize_t *content)
{
    Py_ssize_t taken = 0;
    *size = *content = 0;
    for (; taken < count; taken++) {
        Row row;
        if (read_row(self, order[taken], &row) < 0)
            return -1;
        Py_ssize_t more = estimated_bytes(&row);
        if (taken > 0 && more > limit - *size)
            break;
        *size += more;
        *content += more - RECORD_OVERHEAD + FIELDS_MAX;
    }
    return taken;
}

static char *put_blob(char *to, const Blob *blob)
{
    to = put_varlong(to, blob->size);
    if (blob->size > 0)
        memcpy(to, blob->data, (size_t)blob->size);
    return to + more_than_none(blob->size);
}

/* One record; -1 with an exception. */
static int put_row(char **to, const Row *row, int64_t delta, int64_t first_ms)
{
    int64_t later_ms = (int64_t)((uint64_t)row->stamp_ms - (uint64_t)first_ms);
    if (((row->stamp_ms ^ first_ms) & (row->stamp_ms ^ later_ms)) < 0) {
        PyErr_SetString(PyExc_OverflowError, "the timestamps of a batch lie within 64 bits of each other");
        return -1;
    }
    Py_ssize_t size = 1 + varlong_size(later_ms) + varlong_size(delta) + varlong_size(row->key.size) +
                      more_than_none(row->key.size) + varlong_size(row->value.size) + more_than_none(row->value.size) +
                      row->headers.size;
    char *at = put_varlong(*to, size);
    *at++ = 0; /* attributes, unused */
    at = put_varlong(put_varlong(at, later_ms), delta);
    at = put_blob(put_blob(at, &row->key), &row->value);
    memcpy(at, row->headers.data, (size_t)row->headers.size);
    *to = at + row->headers.size;
    return 0;
}

static PyObject *rows_encode(Rows *self, PyObject *given)
{
    Py_buffer order;
    Py_ssize_t at, limit, size, content;
    if (!PyArg_ParseTuple(given, "y*nn:encode", &order, &at, &limit))
        return NULL;
    PyObject *body = NULL, *result = NULL;
    Py_ssize_t count = order.len / (Py_ssize_t)sizeof(int32_t) - at;
    if (at < 0 || count <= 0) {
        PyErr_SetString(PyExc_ValueError, "a batch holds one record or more");
        goto done;
    }
    const int32_t *rows = (const int32_t *)order.buf + at;
    count = measure(self, rows, count, limit, &size, &content);
    if (count < 0 || (body = PyBytes_FromStringAndSize(NULL, content)) == NULL)
        goto done;
    char *to = PyBytes_AS_STRING(body), *end = to + content;
    int64_t first_ms = 0, last_ms = 0;
    for (Py_ssize_t index = 0; index < count; index++) {
        Row row;
        if (read_row(self, rows[index], &row) < 0)
            goto done;
        if (FIELDS_MAX - RECORD_OVERHEAD + estimated_bytes(&row) > end - to) { /* another thread writes to the columns */
            PyErr_SetString(PyExc_RuntimeError, "the columns changed while they were encoded");
            goto done;
        }
        if (index == 0)
            first_ms = last_ms = row.stamp_ms;
        else if (row.stamp_ms > last_ms)
            last_ms = row.stamp_ms;
        if (put_row(&to, &row, index, first_ms) < 0)
            goto done;
    }
    if (_PyBytes_Resize(&body, to - PyBytes_AS_STRING(body)) == 0)
        result = Py_BuildValue("OnLLn", body, count, (long long)first_ms, (long long)last_ms, size);
done:
    Py_XDECREF(body);
    PyBuffer_Release(&order);
    return result;
}

/* Making them */

static int open_blobs(PyObject *given, Py_ssize_t count, Blobs *blobs)
{
    if (given == Py_None)
        return 0;
    PyObject *valid, *ends, *data;
    if (!PyArg_ParseTuple(given, "nOOOp", &blobs->first, &valid, &ends, &data, &blobs->wide))
        return -1;
    if (valid != Py_None && PyObject_GetBuffer(valid, &blobs->valid, PyBUF_SIMPLE) < 0)
        return -1;
    if (PyObject_GetBuffer(ends, &blobs->ends, PyBUF_SIMPLE) < 0)
        return -1;
    if (data != Py_None && PyObject_GetBuffer(data, &blobs->data, PyBUF_SIMPLE) < 0)
        return -1;
    Py_ssize_t first = blobs->first;
    if (first < 0 || first > PY_SSIZE_T_MAX / 16 - count ||
        (blobs->valid.obj != NULL && blobs->valid.len < (first + count + 7) / 8) ||
        blobs->ends.len < (first + count + 1) * (blobs->wide ? 8 : 4)) {
        PyErr_Format(PyExc_ValueError, "a column has less than its %zd rows", count);
        return -1;
    }
    blobs->there = 1;
    return 0;
}

static void close_blobs(Blobs *blobs)
{
    PyBuffer_Release(&blobs->valid); /* does nothing where there is none */
    PyBuffer_Release(&blobs->ends);
    PyBuffer_Release(&blobs->data);
}

static PyObject *rows_new(PyTypeObject *type, PyObject *given, PyObject *named)
{
    static char *names[] = {"count", "keys", "values", "stamps", "headers", NULL};
    Py_ssize_t count;
    PyObject *keys, *values, *stamps, *headers = Py_None;
    if (!PyArg_ParseTupleAndKeywords(given, named, "nOOO|O:Rows", names, &count, &keys, &values, &stamps, &headers))
        return NULL;
    if (count < 0 || count > INT32_MAX || (headers != Py_None && !PyList_CheckExact(headers))) {
        PyErr_SetString(PyExc_ValueError, "Rows takes less than 2^31 rows, and headers as a list");
        return NULL;
    }
    Rows *self = (Rows *)type->tp_alloc(type, 0); /* zeroed */
    if (self == NULL)
        return NULL;
    self->count = count;
    if (open_blobs(keys, count, &self->keys) < 0 || open_blobs(values, count, &self->values) < 0)
        goto failed;
    if (PyLong_Check(stamps)) {
        self->stamp_ms = PyLong_AsLongLong(stamps);
        if (self->stamp_ms == -1 && PyErr_Occurred())
            goto failed;
    } else {
        if (PyObject_GetBuffer(stamps, &self->stamps, PyBUF_SIMPLE) < 0)
            goto failed;
        if (self->stamps.len < count * 8) {
            PyErr_Format(PyExc_ValueError, "a column has less than its %zd rows", count);
            goto failed;
        }
    }
    self->headers = headers == Py_None ? NULL : Py_NewRef(headers);
    return (PyObject *)self;
failed:
    Py_DECREF(self);
    return NULL;
}

static void rows_dealloc(Rows *self)
{
    PyTypeObject *type = Py_TYPE(self);
    close_blobs(&self->keys);
    close_blobs(&self->values);
    PyBuffer_Release(&self->stamps);
    Py_XDECREF(self->headers);
    type->tp_free(self);
    Py_DECREF(type);
}

/* The rows of each partition, in their order: a counting sort. */
static PyObject *rows_by_partition(PyObject *Py_UNUSED(module), PyObject *given)
{
    Py_buffer chosen;
    int partitions;
    if (!PyArg_ParseTuple(given, "y*i:rows_by_partition", &chosen, &partitions))
        return NULL;
    PyObject *result = PyDict_New();
    Py_ssize_t count = chosen.len / (Py_ssize_t)sizeof(int32_t);
    const int32_t *of = chosen.buf;
    Py_ssize_t places = partitions < 1 ? 1 : partitions;
    Py_ssize_t *counts = PyMem_Calloc((size_t)places, sizeof *counts);
    int32_t **next = PyMem_Calloc((size_t)places, sizeof *next);
    if (result == NULL || counts == NULL || next == NULL) {
        PyErr_NoMemory();
        goto failed;
    }
    for (Py_ssize_t row = 0; row < count; row++) {
        if (of[row] < 0 || of[row] >= partitions) {
            PyErr_Format(PyExc_ValueError, "row %zd: there is no partition %d among %d", row, of[row], partitions);
            goto failed;
        }
        counts[of[row]]++;
    }
    for (int partition = 0; partition < partitions; partition++) {
        if (counts[partition] == 0)
            continue;
        PyObject *number = PyLong_FromLong(partition);
        PyObject *rows = PyBytes_FromStringAndSize(NULL, counts[partition] * (Py_ssize_t)sizeof(int32_t));
        int failed = number == NULL || rows == NULL || PyDict_SetItem(result, number, rows) < 0;
        if (!failed)
            next[partition] = (int32_t *)PyBytes_AS_STRING(rows);
        Py_XDECREF(number);
        Py_XDECREF(rows);
        if (failed)
            goto failed;
    }
    for (Py_ssize_t row = 0; row < count; row++) {
        int32_t partition = of[row];
        if (partition < 0 || partition >= partitions || counts[partition]-- <= 0) {
            PyErr_SetString(PyExc_RuntimeError, "the partitions changed while rows were put in order");
            goto failed;
        }
        *next[partition]++ = (int32_t)row;
    }
    goto done;
failed:
    Py_CLEAR(result);
done:
    PyMem_Free(counts);
    PyMem_Free(next);
    PyBuffer_Release(&chosen);
    return result;
}

static PyMethodDef methods[] = {
    {"first_above", (PyCFunction)rows_first_above, METH_O, "See rows_in_python.Rows.first_above."},
    {"by_hash", (PyCFunction)rows_by_hash, METH_O, "See rows_in_python.Rows.by_hash."},
    {"fill", (PyCFunction)rows_fill, METH_VARARGS, "See rows_in_python.Rows.fill."},
    {"encode", (PyCFunction)rows_encode, METH_VARARGS, "See rows_in_python.Rows.encode."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot type_slots[] = {
    {Py_tp_doc, "See rows_in_python.Rows."},
    {Py_tp_new, rows_new},
    {Py_tp_dealloc, rows_dealloc},
    {Py_tp_methods, methods},
    {0, NULL},
};

static PyType_Spec type_spec = {
    .name = "ottla.client.producing.columns._rows.Rows",
    .basicsize = sizeof(Rows),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = type_slots,
};

static int exec_module(PyObject *module)
{
    PyObject *type = PyType_FromModuleAndSpec(module, &type_spec, NULL);
    int failed = type == NULL || PyModule_AddObjectRef(module, "Rows", type) < 0;
    Py_XDECREF(type);
    return failed ? -1 : 0;
}

static PyMethodDef functions[] = {
    {"rows_by_partition", rows_by_partition, METH_VARARGS, "See rows_in_python.rows_by_partition."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, exec_module},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "ottla.client.producing.columns._rows",
    .m_doc = "Columns on their way into batches, in C; rows_in_python has the same in Python.",
    .m_methods = functions,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__rows(void)
{
    return PyModuleDef_Init(&definition);
}
