/* The record codec in C: the same names as in record_codec.py, with the same results and the same errors.
 *
 * The rule of this file: decoded bytes come from unauthenticated peers. No byte is read before it is known to exist, no
 * length is used before it was compared with the bytes left, and nothing is allocated for a number that a peer claims.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#include "_columns.h"
#include "_varints.h"

#define RECORD_OVERHEAD 32 /* most records take no more bytes beside key, value and headers */
#define RECORD_FIELDS 5 /* fields of a row: offset, timestamp_ms, key, value, headers */

typedef struct {
    PyObject *cursor_type;
    PyObject *columns_type;
    PyObject *kafka_error;
    PyObject *corrupt; /* ErrorCode.CORRUPT_MESSAGE */
    PyObject *no_headers;
} State;

/* Encoding */

/* A buffer that grows; `bytes` is NULL while it is empty. */
typedef struct {
    PyObject *bytes;
    Py_ssize_t size;
} Out;

/* Returns the position of the next `more` bytes, or NULL with MemoryError. */
static char *room(Out *out, Py_ssize_t more)
{
    Py_ssize_t capacity = out->bytes == NULL ? 0 : PyBytes_GET_SIZE(out->bytes);
    if (more > capacity - out->size) {
        if (more > PY_SSIZE_T_MAX / 4 - out->size) {
            PyErr_NoMemory();
            return NULL;
        }
        capacity = (out->size + more) * 2;
        if (out->bytes == NULL)
            out->bytes = PyBytes_FromStringAndSize(NULL, capacity);
        else
            _PyBytes_Resize(&out->bytes, capacity);
        if (out->bytes == NULL)
            return NULL;
    }
    return PyBytes_AS_STRING(out->bytes) + out->size;
}

/* Sets the size in use; `end` is the position after the last byte written. */
static void grown(Out *out, const char *end)
{
    out->size = end - PyBytes_AS_STRING(out->bytes);
}

/* A key or value. `size` is -1 for None, as in the format. */
typedef struct {
    const char *data;
    Py_ssize_t size;
    Py_buffer view; /* view.obj is NULL if nothing has to be released */
} Field;

static int open_field(PyObject *given, Field *field)
{
    field->view.obj = NULL;
    if (given == Py_None) {
        field->data = NULL;
        field->size = -1;
    } else if (PyBytes_CheckExact(given)) {
        field->data = PyBytes_AS_STRING(given);
        field->size = PyBytes_GET_SIZE(given);
    } else {
        if (PyObject_GetBuffer(given, &field->view, PyBUF_SIMPLE) < 0)
            return -1;
        field->data = field->view.buf;
        field->size = field->view.len;
    }
    return 0;
}

static void close_field(Field *field)
{
    if (field->view.obj != NULL)
        PyBuffer_Release(&field->view);
}

static Py_ssize_t field_bytes(const Field *field)
{
    return field->size < 0 ? 0 : field->size;
}

static char *put_field(char *to, const Field *field)
{
    to = put_varlong(to, field->size);
    if (field->size > 0)
        memcpy(to, field->data, (size_t)field->size);
    return to + field_bytes(field);
}

/* Appends one header, a pair of name and value, to `out`. */
static int encode_header(PyObject *given, Out *out)
{
    Py_INCREF(given); /* unpacking it may run code that removes it from the list */
    PyObject *pair = PySequence_Tuple(given);
    Py_DECREF(given);
    if (pair == NULL)
        return -1;
    int result = -1;
    Field name = {.size = 0}, value = {.size = 0};
    if (PyTuple_GET_SIZE(pair) != 2) {
        PyErr_Format(PyExc_ValueError, "a header is a name and a value, not %zd values", PyTuple_GET_SIZE(pair));
        goto done;
    }
    if (!PyUnicode_Check(PyTuple_GET_ITEM(pair, 0))) {
        PyErr_Format(PyExc_TypeError, "the name of a header is a str, not %.100s",
                     Py_TYPE(PyTuple_GET_ITEM(pair, 0))->tp_name);
        goto done;
    }
    name.data = PyUnicode_AsUTF8AndSize(PyTuple_GET_ITEM(pair, 0), &name.size);
    if (name.data == NULL || open_field(PyTuple_GET_ITEM(pair, 1), &value) < 0)
        goto done;
    char *to = room(out, 2 * VARLONG_BYTES_MAX + name.size + field_bytes(&value));
    if (to != NULL) {
        to = put_field(put_field(to, &name), &value);
        grown(out, to);
        result = 0;
    }
    close_field(&value);
done:
    Py_DECREF(pair);
    return result;
}

/* Replaces the content of `out` by all headers of a record. */
static int encode_headers(PyObject *given, Out *out)
{
    PyObject *headers = PySequence_Fast(given, "the headers of a record are a sequence");
    if (headers == NULL)
        return -1;
    int result = -1;
    out->size = 0;
    char *to = room(out, VARLONG_BYTES_MAX);
    if (to == NULL)
        goto done;
    Py_ssize_t count = PySequence_Fast_GET_SIZE(headers);
    grown(out, put_varlong(to, count));
    for (Py_ssize_t index = 0; index < count; index++) {
        if (PySequence_Fast_GET_SIZE(headers) != count) { /* encoding the caller's objects may run their code */
            PyErr_SetString(PyExc_RuntimeError, "headers changed while they were encoded");
            goto done;
        }
        PyObject *item = Py_NewRef(PySequence_Fast_GET_ITEM(headers, index));
        int failed = encode_header(item, out);
        Py_DECREF(item);
        if (failed < 0)
            goto done;
    }
    result = 0;
done:
    Py_DECREF(headers);
    return result;
}

typedef struct {
    Out body, headers;
    int64_t count, first_ms, last_ms;
} Encoding;

/* Encodes the record `given`, a tuple (key, value, timestamp_ms[, headers]). */
static int encode_record(Encoding *into, PyObject *given)
{
    Py_ssize_t fields = PyTuple_GET_SIZE(given);
    if (fields != 3 && fields != 4) {
        PyErr_Format(PyExc_ValueError, "a record is key, value, timestamp and perhaps headers, not %zd values", fields);
        return -1;
    }
    int64_t timestamp_ms = PyLong_AsLongLong(PyTuple_GET_ITEM(given, 2));
    if (timestamp_ms == -1 && PyErr_Occurred())
        return -1;
    if (into->count == 0)
        into->first_ms = into->last_ms = timestamp_ms;
    else if (timestamp_ms > into->last_ms)
        into->last_ms = timestamp_ms;
    int64_t later_ms = (int64_t)((uint64_t)timestamp_ms - (uint64_t)into->first_ms);
    if (((timestamp_ms ^ into->first_ms) & (timestamp_ms ^ later_ms)) < 0) {
        PyErr_SetString(PyExc_OverflowError, "the timestamps of a batch lie within 64 bits of each other");
        return -1;
    }
    static const char none[] = {0};
    const char *headers = none;
    Py_ssize_t headers_size = sizeof none;
    if (fields == 4) {
        int some = PyObject_IsTrue(PyTuple_GET_ITEM(given, 3));
        if (some < 0 || (some && encode_headers(PyTuple_GET_ITEM(given, 3), &into->headers) < 0))
            return -1;
        if (some) {
            headers = PyBytes_AS_STRING(into->headers.bytes);
            headers_size = into->headers.size;
        }
    }
    int result = -1;
    Field key, value;
    if (open_field(PyTuple_GET_ITEM(given, 0), &key) < 0)
        return -1;
    if (open_field(PyTuple_GET_ITEM(given, 1), &value) < 0)
        goto close_key;
    Py_ssize_t content = field_bytes(&key);
    if (field_bytes(&value) > PY_SSIZE_T_MAX / 4 - content || headers_size > PY_SSIZE_T_MAX / 4) {
        PyErr_NoMemory();
        goto close_value;
    }
    content += field_bytes(&value) + headers_size;
    Py_ssize_t size = 1 + varlong_size(later_ms) + varlong_size(into->count) + varlong_size(key.size) +
                      varlong_size(value.size) + content;
    char *to = room(&into->body, VARLONG_BYTES_MAX + size);
    if (to == NULL)
        goto close_value;
    to = put_varlong(to, size);
    *to++ = 0; /* attributes, unused */
    to = put_varlong(to, later_ms);
    to = put_varlong(to, into->count);
    to = put_field(put_field(to, &key), &value);
    memcpy(to, headers, (size_t)headers_size);
    grown(&into->body, to + headers_size);
    into->count++;
    result = 0;
close_value:
    close_field(&value);
close_key:
    close_field(&key);
    return result;
}

/* Estimates the size of the encoded records: growing by copies would take longer than encoding. */
static Py_ssize_t likely_size(PyObject *records)
{
    Py_ssize_t size = 0, count = PySequence_Fast_GET_SIZE(records);
    for (Py_ssize_t index = 0; index < count && size < PY_SSIZE_T_MAX / 4; index++) {
        PyObject *record = PySequence_Fast_GET_ITEM(records, index);
        size += RECORD_OVERHEAD;
        for (Py_ssize_t place = 0; PyTuple_CheckExact(record) && place < 2 && place < PyTuple_GET_SIZE(record); place++) {
            PyObject *field = PyTuple_GET_ITEM(record, place);
            size += PyBytes_CheckExact(field) ? PyBytes_GET_SIZE(field) : 0;
        }
    }
    return size;
}

static PyObject *encode_records(PyObject *Py_UNUSED(module), PyObject *given)
{
    PyObject *records = PySequence_Fast(given, "records are iterable");
    if (records == NULL)
        return NULL;
    PyObject *result = NULL;
    Encoding into = {.count = 0};
    into.body.bytes = PyBytes_FromStringAndSize(NULL, likely_size(records));
    if (into.body.bytes == NULL)
        goto done;
    /* The caller's objects may run code that changes the list: so each item is held, and the size is read each time. */
    for (Py_ssize_t index = 0; index < PySequence_Fast_GET_SIZE(records); index++) {
        PyObject *item = Py_NewRef(PySequence_Fast_GET_ITEM(records, index));
        PyObject *record = PySequence_Tuple(item);
        Py_DECREF(item);
        if (record == NULL)
            goto done;
        int failed = encode_record(&into, record);
        Py_DECREF(record);
        if (failed < 0)
            goto done;
    }
    if (into.count == 0)
        PyErr_SetString(PyExc_ValueError, "a batch holds one record or more");
    else if (_PyBytes_Resize(&into.body.bytes, into.body.size) == 0)
        result = Py_BuildValue("OLLL", into.body.bytes, (long long)into.count, (long long)into.first_ms,
                               (long long)into.last_ms);
done:
    Py_XDECREF(into.body.bytes);
    Py_XDECREF(into.headers.bytes);
    Py_DECREF(records);
    return result;
}

/* Decoding */

typedef struct {
    PyObject_HEAD
    Py_buffer body;
    Py_ssize_t position; /* position of the next record */
    int64_t left;        /* records that were not decoded yet */
    int64_t base_offset, base_ms;
    int64_t from_offset;
    int rising; /* whether records below `from_offset` are skipped */
    PyObject *stamp;
    PyTypeObject *row;
    PyObject *before, *after;
} Cursor;

/* The part of the body that was not read yet. All reads use the functions below. */
typedef struct {
    State *state;
    const unsigned char *at, *end;
} Source;

static int raise_corrupt(State *state, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    PyObject *text = PyUnicode_FromFormatV(format, values);
    va_end(values);
    if (text == NULL)
        return -1;
    PyObject *error = PyObject_CallFunctionObjArgs(state->kafka_error, state->corrupt, text, NULL);
    Py_DECREF(text);
    if (error != NULL) {
        PyErr_SetObject(state->kafka_error, error);
        Py_DECREF(error);
    }
    return -1;
}

static int ends_within(Source *from)
{
    return raise_corrupt(from->state, "a record is damaged: the data ends within it");
}

static int read_varlong(Source *from, int64_t *value)
{
    uint64_t bits = 0;
    for (int shift = 0;; shift += 7) {
        if (from->at == from->end)
            return ends_within(from);
        unsigned char byte = *from->at++;
        if (shift == 63 && byte > 1)
            return raise_corrupt(from->state, "a record is damaged: a varint is longer than 64 bits");
        bits |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80)
            break;
    }
    *value = (int64_t)(bits >> 1) ^ -(int64_t)(bits & 1);
    return 0;
}

/* `size` is -1 for null. */
static int read_bytes(Source *from, const unsigned char **data, Py_ssize_t *size)
{
    int64_t length = 0;
    if (read_varlong(from, &length) < 0)
        return -1;
    if (length < 0) {
        *data = NULL;
        *size = -1;
        return 0;
    }
    if (length > from->end - from->at)
        return raise_corrupt(from->state, "a record is damaged: a length of %lld, %zd bytes are left",
                             (long long)length, (Py_ssize_t)(from->end - from->at));
    *data = from->at;
    *size = (Py_ssize_t)length;
    from->at += length;
    return 0;
}

static PyObject *as_bytes(const unsigned char *data, Py_ssize_t size)
{
    if (size < 0)
        return Py_NewRef(Py_None);
    return PyBytes_FromStringAndSize((const char *)data, size);
}

/* Turns the present exception, about the name of a header, into the error of a damaged record. */
static void raise_undecodable(State *state)
{
    if (!PyErr_ExceptionMatches(PyExc_UnicodeDecodeError))
        return;
    PyObject *type, *error, *trace;
    PyErr_Fetch(&type, &error, &trace);
    PyErr_NormalizeException(&type, &error, &trace);
    raise_corrupt(state, "a record is damaged: %S", error);
    Py_XDECREF(type);
    Py_XDECREF(error);
    Py_XDECREF(trace);
}

static PyObject *read_header(Source *from)
{
    const unsigned char *name, *value;
    Py_ssize_t name_size, value_size;
    if (read_bytes(from, &name, &name_size) < 0)
        return NULL;
    if (name_size < 0) {
        raise_corrupt(from->state, "a record is damaged: a header without a name");
        return NULL;
    }
    if (read_bytes(from, &value, &value_size) < 0)
        return NULL;
    PyObject *text = PyUnicode_DecodeUTF8((const char *)name, name_size, NULL);
    if (text == NULL) {
        raise_undecodable(from->state);
        return NULL;
    }
    PyObject *content = as_bytes(value, value_size);
    PyObject *header = content == NULL ? NULL : PyTuple_Pack(2, text, content);
    Py_DECREF(text);
    Py_XDECREF(content);
    return header;
}

/* Returns a list of headers, or the shared empty tuple if there are none. */
static PyObject *read_headers(Source *from)
{
    if (from->at == from->end) {
        ends_within(from);
        return NULL;
    }
    if (*from->at == 0) {
        from->at++;
        return Py_NewRef(from->state->no_headers);
    }
    int64_t count = 0;
    if (read_varlong(from, &count) < 0)
        return NULL;
    if (count < 0 || count > from->end - from->at) {
        raise_corrupt(from->state, "a record is damaged: %lld headers, %zd bytes are left", (long long)count,
                      (Py_ssize_t)(from->end - from->at));
        return NULL;
    }
    PyObject *headers = PyList_New(0);
    for (; headers != NULL && count > 0; count--) {
        PyObject *header = read_header(from);
        if (header == NULL || PyList_Append(headers, header) < 0)
            Py_CLEAR(headers);
        Py_XDECREF(header);
    }
    return headers;
}

typedef struct {
    int64_t later_ms, delta;
    const unsigned char *key, *value;
    Py_ssize_t key_size, value_size;
    PyObject *headers;
} Parsed;

/* Decodes one record. After success the caller has to release `headers`. */
static int read_record(Source *from, Parsed *record)
{
    int64_t size = 0;
    if (read_varlong(from, &size) < 0)
        return -1;
    const unsigned char *begin = from->at;
    if (from->at == from->end)
        return ends_within(from);
    from->at++; /* attributes, unused */
    if (read_varlong(from, &record->later_ms) < 0 || read_varlong(from, &record->delta) < 0)
        return -1;
    if (record->delta < INT32_MIN || record->delta > INT32_MAX)
        return raise_corrupt(from->state, "a record is damaged: an offset delta of %lld", (long long)record->delta);
    if (read_bytes(from, &record->key, &record->key_size) < 0 ||
        read_bytes(from, &record->value, &record->value_size) < 0)
        return -1;
    record->headers = read_headers(from);
    if (record->headers == NULL)
        return -1;
    if (from->at - begin != size) {
        Py_CLEAR(record->headers);
        return raise_corrupt(from->state, "a record is damaged: it claims %lld bytes, and has %zd", (long long)size,
                             (Py_ssize_t)(from->at - begin));
    }
    return 0;
}

/* Returns base + delta, of any size. */
static PyObject *sum(int64_t base, int64_t delta)
{
    int64_t total = (int64_t)((uint64_t)base + (uint64_t)delta);
    if (((base ^ total) & (delta ^ total)) >= 0)
        return PyLong_FromLongLong(total);
    PyObject *left = PyLong_FromLongLong(base), *right = PyLong_FromLongLong(delta), *result = NULL;
    if (left != NULL && right != NULL)
        result = PyNumber_Add(left, right);
    Py_XDECREF(left);
    Py_XDECREF(right);
    return result;
}

static PyObject *make_row(Cursor *self, State *state, const Parsed *record)
{
    Py_ssize_t before = PyTuple_GET_SIZE(self->before), after = PyTuple_GET_SIZE(self->after);
    PyObject *row = self->row->tp_alloc(self->row, before + RECORD_FIELDS + after);
    if (row == NULL)
        return NULL;
    Py_ssize_t place = 0;
    for (Py_ssize_t index = 0; index < before; index++)
        PyTuple_SET_ITEM(row, place++, Py_NewRef(PyTuple_GET_ITEM(self->before, index)));
    PyObject *fields[RECORD_FIELDS] = {
        PyLong_FromLongLong(self->base_offset + record->delta),
        self->stamp == Py_None ? sum(self->base_ms, record->later_ms) : Py_NewRef(self->stamp),
        as_bytes(record->key, record->key_size),
        as_bytes(record->value, record->value_size),
        Py_NewRef(record->headers),
    };
    int whole = 1;
    for (int index = 0; index < RECORD_FIELDS; index++) {
        whole = whole && fields[index] != NULL;
        PyTuple_SET_ITEM(row, place++, fields[index]);
    }
    for (Py_ssize_t index = 0; index < after; index++)
        PyTuple_SET_ITEM(row, place++, Py_NewRef(PyTuple_GET_ITEM(self->after, index)));
    if (!whole) {
        Py_DECREF(row);
        return NULL;
    }
    /* Such a row cannot be part of a cycle, so the garbage collector does not have to scan it. */
    if (record->headers == state->no_headers)
        PyObject_GC_UnTrack(row);
    return row;
}

/* Adds the record to `columns`. */
static int append_row(Cursor *self, State *state, const Parsed *record, Columns *columns)
{
    int64_t base_ms = self->base_ms, later_ms = record->later_ms;
    if (self->stamp != Py_None) {
        base_ms = PyLong_AsLongLong(self->stamp);
        later_ms = 0;
        if (base_ms == -1 && PyErr_Occurred())
            return -1;
    }
    int64_t timestamp_ms = (int64_t)((uint64_t)base_ms + (uint64_t)later_ms);
    if (((base_ms ^ timestamp_ms) & (later_ms ^ timestamp_ms)) < 0)
        return raise_corrupt(state, "a record is damaged: its timestamp has more than 64 bits");
    return columns_append(columns, self->base_offset + record->delta, timestamp_ms, (const char *)record->key,
                          record->key_size, (const char *)record->value, record->value_size, record->headers);
}

/* Adds the record to a list of rows. */
static int append_object(Cursor *self, State *state, const Parsed *record, PyObject *rows)
{
    PyObject *row = make_row(self, state, record);
    int failed = row == NULL || PyList_Append(rows, row) < 0;
    Py_XDECREF(row);
    return failed ? -1 : 0;
}

/* Decodes the next record and adds it to the list `rows`, or to `columns` if that is NULL. Returns 1 if it was added, 0
 * if it was skipped, -1 with an exception set and nothing changed. */
static int next_record(Cursor *self, State *state, PyObject *rows, Columns *columns)
{
    const unsigned char *body = self->body.buf;
    Source from = {state, body + self->position, body + self->body.len};
    Parsed record = {.headers = NULL};
    if (read_record(&from, &record) < 0)
        return -1;
    int64_t offset = self->base_offset + record.delta;
    int taken = !self->rising || offset >= self->from_offset;
    if (taken) {
        int failed = rows != NULL ? append_object(self, state, &record, rows)
                                  : append_row(self, state, &record, columns);
        if (failed < 0) {
            Py_DECREF(record.headers);
            return -1;
        }
        self->from_offset = offset + 1;
    }
    Py_DECREF(record.headers);
    self->position = from.at - body;
    self->left--;
    return taken;
}

/* Adds up to `count` records to `rows` or `columns`. Returns their number, or -1 with an exception set and the cursor
 * unchanged. */
static Py_ssize_t take(Cursor *self, Py_ssize_t count, PyObject *rows, Columns *columns)
{
    State *state = PyType_GetModuleState(Py_TYPE(self));
    const Cursor began = *self;
    Py_ssize_t taken = 0;
    while (self->left > 0 && taken < count) {
        int some = next_record(self, state, rows, columns);
        if (some >= 0) {
            taken += some;
            continue;
        }
        if (taken > 0 && PyErr_ExceptionMatches(state->kafka_error)) {
            PyErr_Clear(); /* records before the damage come first; the next call finds it again */
            return taken;
        }
        self->position = began.position;
        self->left = began.left;
        self->from_offset = began.from_offset;
        return -1;
    }
    if (count > 0 && taken == 0 && self->position != self->body.len)
        return raise_corrupt(state, "%zd bytes follow the last record", self->body.len - self->position);
    return taken;
}

static PyObject *cursor_take(Cursor *self, PyObject *given)
{
    Py_ssize_t count = PyNumber_AsSsize_t(given, NULL);
    if (count == -1 && PyErr_Occurred())
        return NULL;
    PyObject *rows = PyList_New(0);
    if (rows != NULL && take(self, count, rows, NULL) < 0)
        Py_CLEAR(rows);
    return rows;
}

static PyObject *cursor_take_into(Cursor *self, PyObject *const *given, Py_ssize_t fields)
{
    State *state = PyType_GetModuleState(Py_TYPE(self));
    if (fields != 2 || !Py_IS_TYPE(given[0], (PyTypeObject *)state->columns_type)) {
        PyErr_SetString(PyExc_TypeError, "take_into takes Columns of this codec, and how many records");
        return NULL;
    }
    Py_ssize_t count = PyNumber_AsSsize_t(given[1], NULL);
    if (count == -1 && PyErr_Occurred())
        return NULL;
    Py_ssize_t taken = take(self, count, NULL, (Columns *)given[0]);
    return taken < 0 ? NULL : PyLong_FromSsize_t(taken);
}

static int check_claims(Cursor *self, State *state, PyObject *from_offset)
{
    if (self->left < 0 || self->left > self->body.len)
        return raise_corrupt(state, "%lld records in %zd bytes", (long long)self->left, self->body.len);
    if (self->base_offset < 0 || self->base_offset > INT64_MAX - ((int64_t)1 << 32))
        return raise_corrupt(state, "a batch at offset %lld", (long long)self->base_offset);
    if (!PyType_IsSubtype(self->row, &PyTuple_Type)) {
        PyErr_Format(PyExc_TypeError, "a row is a tuple, not %.100s", self->row->tp_name);
        return -1;
    }
    self->rising = from_offset != Py_None;
    if (self->rising) {
        self->from_offset = PyLong_AsLongLong(from_offset);
        if (self->from_offset == -1 && PyErr_Occurred())
            return -1;
    }
    return 0;
}

static PyObject *cursor_new(PyTypeObject *type, PyObject *given, PyObject *named)
{
    static char *names[] = {"body",  "count", "base_offset", "base_timestamp_ms", "row",
                            "before", "after", "from_offset", "stamp_ms",          NULL};
    State *state = PyType_GetModuleState(type);
    Py_buffer body;
    long long count, base_offset, base_ms;
    PyObject *row, *before = NULL, *after = NULL, *from_offset = Py_None, *stamp = Py_None;
    if (!PyArg_ParseTupleAndKeywords(given, named, "y*LLLO!|O!O!$OO:RecordCursor", names, &body, &count, &base_offset,
                                     &base_ms, &PyType_Type, &row, &PyTuple_Type, &before, &PyTuple_Type, &after,
                                     &from_offset, &stamp))
        return NULL;
    Cursor *self = (Cursor *)type->tp_alloc(type, 0);
    if (self == NULL) {
        PyBuffer_Release(&body);
        return NULL;
    }
    self->body = body;
    self->left = count;
    self->base_offset = base_offset;
    self->base_ms = base_ms;
    self->row = (PyTypeObject *)Py_NewRef(row);
    self->before = Py_NewRef(before == NULL ? state->no_headers : before);
    self->after = Py_NewRef(after == NULL ? state->no_headers : after);
    self->stamp = Py_NewRef(stamp);
    if (check_claims(self, state, from_offset) < 0)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static void cursor_dealloc(Cursor *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyBuffer_Release(&self->body);
    Py_XDECREF(self->row);
    Py_XDECREF(self->before);
    Py_XDECREF(self->after);
    Py_XDECREF(self->stamp);
    type->tp_free(self);
    Py_DECREF(type);
}

/* The module */

static PyMethodDef cursor_methods[] = {
    {"take", (PyCFunction)cursor_take, METH_O, "See record_codec.RecordCursor.take."},
    {"take_into", (PyCFunction)(void (*)(void))cursor_take_into, METH_FASTCALL,
     "See record_codec.RecordCursor.take_into."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot cursor_slots[] = {
    {Py_tp_doc, "See record_codec.RecordCursor."},
    {Py_tp_new, cursor_new},
    {Py_tp_dealloc, cursor_dealloc},
    {Py_tp_methods, cursor_methods},
    {0, NULL},
};

static PyType_Spec cursor_spec = {
    .name = "ottla.protocol.records._record_codec.RecordCursor",
    .basicsize = sizeof(Cursor),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = cursor_slots,
};

static int exec_module(PyObject *module)
{
    State *state = PyModule_GetState(module);
    PyObject *errors = PyImport_ImportModule("ottla.protocol.errors");
    if (errors == NULL)
        return -1;
    PyObject *codes = PyObject_GetAttrString(errors, "ErrorCode");
    state->kafka_error = PyObject_GetAttrString(errors, "KafkaError");
    state->corrupt = codes == NULL ? NULL : PyObject_GetAttrString(codes, "CORRUPT_MESSAGE");
    Py_XDECREF(codes);
    Py_DECREF(errors);
    state->no_headers = PyTuple_New(0);
    state->cursor_type = PyType_FromModuleAndSpec(module, &cursor_spec, NULL);
    state->columns_type = PyType_FromModuleAndSpec(module, &columns_spec, NULL);
    if (!state->kafka_error || !state->corrupt || !state->no_headers || !state->cursor_type || !state->columns_type)
        return -1;
    if (PyModule_AddObjectRef(module, "Columns", state->columns_type) < 0)
        return -1;
    return PyModule_AddObjectRef(module, "RecordCursor", state->cursor_type);
}

static int traverse_module(PyObject *module, visitproc visit, void *arg)
{
    State *state = PyModule_GetState(module);
    Py_VISIT(state->cursor_type);
    Py_VISIT(state->columns_type);
    Py_VISIT(state->kafka_error);
    Py_VISIT(state->corrupt);
    Py_VISIT(state->no_headers);
    return 0;
}

static int clear_module(PyObject *module)
{
    State *state = PyModule_GetState(module);
    Py_CLEAR(state->cursor_type);
    Py_CLEAR(state->columns_type);
    Py_CLEAR(state->kafka_error);
    Py_CLEAR(state->corrupt);
    Py_CLEAR(state->no_headers);
    return 0;
}

static void free_module(void *module)
{
    clear_module(module);
}

static PyMethodDef functions[] = {
    {"encode_records", encode_records, METH_O, "See record_codec.encode_records."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, exec_module},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "ottla.protocol.records._record_codec",
    .m_doc = "The record codec in C; record_codec does the same in Python.",
    .m_size = sizeof(State),
    .m_methods = functions,
    .m_slots = slots,
    .m_traverse = traverse_module,
    .m_clear = clear_module,
    .m_free = free_module,
};

PyMODINIT_FUNC PyInit__record_codec(void)
{
    return PyModuleDef_Init(&definition);
}
