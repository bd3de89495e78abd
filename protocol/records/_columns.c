/* Columns in C: the same class as in record_columns.py, with the same results. */
#include "_columns.h"

#include <string.h>

#define FIRST_ROWS 256 /* a multiple of 8 */
#define FIRST_BYTES 4096

/* Keys or values, in Arrow's layout: the data of all values in a row, the end of each value, and a bit for each value
 * that is not null. `ends` has one number more than there are rows; the first is 0. */
typedef struct {
    PyObject *valid, *ends, *data;
    Py_ssize_t size; /* bytes of the data so far */
    Py_ssize_t nulls;
} Blobs;

struct Columns {
    PyObject_HEAD
    Py_ssize_t rows, capacity;
    PyObject *offsets, *timestamps; /* all buffers are bytes objects, NULL while there are no rows */
    Blobs keys, values;
    PyObject *headers; /* a list, or NULL if headers are not wanted */
};

/* Resizes `bytes`, which keeps its content. */
static int resize(PyObject **bytes, Py_ssize_t size)
{
    if (*bytes == NULL)
        *bytes = PyBytes_FromStringAndSize(NULL, size);
    else
        _PyBytes_Resize(bytes, size);
    return *bytes == NULL ? -1 : 0;
}

static int resize_blobs(Blobs *blobs, Py_ssize_t rows)
{
    if (resize(&blobs->valid, rows / 8) < 0)
        return -1;
    return resize(&blobs->ends, (rows + 1) * (Py_ssize_t)sizeof(int32_t));
}

static void clear(Columns *self)
{
    Blobs *both[] = {&self->keys, &self->values};
    for (int index = 0; index < 2; index++) {
        Py_CLEAR(both[index]->valid);
        Py_CLEAR(both[index]->ends);
        Py_CLEAR(both[index]->data);
        both[index]->size = both[index]->nulls = 0;
    }
    Py_CLEAR(self->offsets);
    Py_CLEAR(self->timestamps);
    self->rows = self->capacity = 0;
}

static int grow(Columns *self)
{
    Py_ssize_t rows = self->capacity == 0 ? FIRST_ROWS : self->capacity * 2;
    if (rows > INT32_MAX) {
        PyErr_SetString(PyExc_OverflowError, "columns hold less than 2^31 rows");
        return -1;
    }
    if (resize(&self->offsets, rows * (Py_ssize_t)sizeof(int64_t)) < 0 ||
        resize(&self->timestamps, rows * (Py_ssize_t)sizeof(int64_t)) < 0 || resize_blobs(&self->keys, rows) < 0 ||
        resize_blobs(&self->values, rows) < 0) {
        clear(self); /* resizing has dropped a buffer, so the others no longer match */
        return -1;
    }
    if (self->capacity == 0)
        ((int32_t *)PyBytes_AS_STRING(self->keys.ends))[0] = ((int32_t *)PyBytes_AS_STRING(self->values.ends))[0] = 0;
    self->capacity = rows;
    return 0;
}

/* Makes room for `more` bytes of data. */
static int reserve(Columns *self, Blobs *blobs, Py_ssize_t size)
{
    if (size <= 0)
        return 0;
    if (size > INT32_MAX - blobs->size) {
        PyErr_SetString(PyExc_OverflowError, "columns hold less than 2 GiB of keys, and of values");
        return -1;
    }
    Py_ssize_t capacity = blobs->data == NULL ? 0 : PyBytes_GET_SIZE(blobs->data);
    if (size <= capacity - blobs->size)
        return 0;
    capacity = (blobs->size + size) * 2;
    if (resize(&blobs->data, capacity < FIRST_BYTES ? FIRST_BYTES : capacity) < 0) {
        clear(self);
        return -1;
    }
    return 0;
}

/* The caller has made room. */
static void put(Blobs *blobs, Py_ssize_t row, const char *data, Py_ssize_t size)
{
    unsigned char *bits = (unsigned char *)PyBytes_AS_STRING(blobs->valid) + row / 8;
    if (row % 8 == 0)
        *bits = 0;
    if (size < 0)
        blobs->nulls++;
    else
        *bits |= (unsigned char)(1 << row % 8);
    if (size > 0) {
        memcpy(PyBytes_AS_STRING(blobs->data) + blobs->size, data, (size_t)size);
        blobs->size += size;
    }
    ((int32_t *)PyBytes_AS_STRING(blobs->ends))[row + 1] = (int32_t)blobs->size;
}

int columns_append(Columns *self, int64_t offset, int64_t timestamp_ms, const char *key, Py_ssize_t key_size,
                   const char *value, Py_ssize_t value_size, PyObject *headers)
{
    if (self->rows == self->capacity && grow(self) < 0)
        return -1;
    if (reserve(self, &self->keys, key_size) < 0 || reserve(self, &self->values, value_size) < 0)
        return -1;
    if (self->headers != NULL && PyList_Append(self->headers, headers) < 0)
        return -1;
    ((int64_t *)PyBytes_AS_STRING(self->offsets))[self->rows] = offset;
    ((int64_t *)PyBytes_AS_STRING(self->timestamps))[self->rows] = timestamp_ms;
    put(&self->keys, self->rows, key, key_size);
    put(&self->values, self->rows, value, value_size);
    self->rows++;
    return 0;
}

/* Takes a buffer out, cut to the size in use. */
static PyObject *taken_out(PyObject **bytes, Py_ssize_t size)
{
    PyObject *out = *bytes;
    *bytes = NULL;
    if (out == NULL)
        return PyBytes_FromStringAndSize(NULL, 0);
    _PyBytes_Resize(&out, size);
    return out;
}

static PyObject *blobs_out(Blobs *blobs, Py_ssize_t rows)
{
    PyObject *valid = taken_out(&blobs->valid, (rows + 7) / 8);
    if (valid != NULL && blobs->nulls == 0)
        Py_SETREF(valid, Py_NewRef(Py_None));
    PyObject *ends = taken_out(&blobs->ends, (rows + 1) * (Py_ssize_t)sizeof(int32_t));
    PyObject *data = taken_out(&blobs->data, blobs->size);
    if (valid == NULL || ends == NULL || data == NULL) {
        Py_XDECREF(valid);
        Py_XDECREF(ends);
        Py_XDECREF(data);
        return NULL;
    }
    return Py_BuildValue("nNNN", blobs->nulls, valid, ends, data);
}

static PyObject *columns_finish(Columns *self, PyObject *Py_UNUSED(unused))
{
    Py_ssize_t rows = self->rows;
    if (rows == 0 && grow(self) < 0)
        return NULL;
    PyObject *offsets = taken_out(&self->offsets, rows * (Py_ssize_t)sizeof(int64_t));
    PyObject *timestamps = taken_out(&self->timestamps, rows * (Py_ssize_t)sizeof(int64_t));
    PyObject *keys = blobs_out(&self->keys, rows), *values = blobs_out(&self->values, rows);
    PyObject *headers = Py_NewRef(Py_None);
    clear(self);
    if (self->headers != NULL) {
        Py_SETREF(headers, self->headers);
        self->headers = PyList_New(0);
    }
    if (offsets == NULL || timestamps == NULL || keys == NULL || values == NULL || PyErr_Occurred()) {
        Py_XDECREF(offsets);
        Py_XDECREF(timestamps);
        Py_XDECREF(keys);
        Py_XDECREF(values);
        Py_DECREF(headers);
        return NULL;
    }
    return Py_BuildValue("nNNNNN", rows, offsets, timestamps, keys, values, headers);
}

static PyObject *columns_new(PyTypeObject *type, PyObject *given, PyObject *named)
{
    static char *names[] = {"with_headers", NULL};
    int with_headers = 0;
    if (!PyArg_ParseTupleAndKeywords(given, named, "|$p:Columns", names, &with_headers))
        return NULL;
    Columns *self = (Columns *)type->tp_alloc(type, 0); /* zeroed */
    if (self != NULL && with_headers && (self->headers = PyList_New(0)) == NULL)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static void columns_dealloc(Columns *self)
{
    PyTypeObject *type = Py_TYPE(self);
    clear(self);
    Py_XDECREF(self->headers);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *columns_rows(Columns *self, void *Py_UNUSED(unused))
{
    return PyLong_FromSsize_t(self->rows);
}

static PyObject *columns_size(Columns *self, void *Py_UNUSED(unused))
{
    return PyLong_FromSsize_t(self->keys.size + self->values.size);
}

static PyObject *columns_last_offset(Columns *self, void *Py_UNUSED(unused))
{
    if (self->rows == 0)
        return PyLong_FromLong(-1);
    return PyLong_FromLongLong(((int64_t *)PyBytes_AS_STRING(self->offsets))[self->rows - 1]);
}

static PyGetSetDef columns_fields[] = {
    {"rows", (getter)columns_rows, NULL, NULL, NULL},
    {"size", (getter)columns_size, NULL, NULL, NULL},
    {"last_offset", (getter)columns_last_offset, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef columns_methods[] = {
    {"finish", (PyCFunction)columns_finish, METH_NOARGS, "See record_columns.Columns.finish."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot columns_slots[] = {
    {Py_tp_doc, "See record_columns.Columns."},
    {Py_tp_new, columns_new},
    {Py_tp_dealloc, columns_dealloc},
    {Py_tp_getset, columns_fields},
    {Py_tp_methods, columns_methods},
    {0, NULL},
};

PyType_Spec columns_spec = {
    .name = "ottla.protocol.records._record_codec.Columns",
    .basicsize = sizeof(Columns),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = columns_slots,
};
