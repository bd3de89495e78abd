/* Decoding of usual Produce requests in C: the same function as in produce_frames_in_python.py, with the same results.
 *
 * The bytes come from unauthenticated peers. Every length is compared with the bytes that are left before anything of
 * that length is read or made. Decoding stops at anything unusual, and the decoder of messages decodes the request
 * again: so this module reports no errors.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

#define FIRST_WITH_TRANSACTIONAL_ID 3
#define FIRST_FLEXIBLE 9
#define FIRST_WITH_TOPIC_IDS 13
#define LAST_VERSION 13
#define TOPIC_ID_BYTES 16
#define STRING_BYTES_MAX 32767 /* primitives.STRING_BYTES_MAX */
#define BATCHES_MAX 64         /* produce_frames_in_python.BATCHES_MAX */

/* The part of the frame that was not read yet. `unusual` is set at the first unusual value, and never reset. */
typedef struct {
    const unsigned char *begin, *at, *end;
    int flexible;
    int unusual;
} Reader;

static int64_t unusual(Reader *reader)
{
    reader->unusual = 1;
    return 0;
}

static int64_t left(const Reader *reader)
{
    return reader->end - reader->at;
}

/* Reads a signed number of 1 to 8 bytes. */
static int64_t read_number(Reader *reader, int bytes)
{
    if (left(reader) < bytes)
        return unusual(reader);
    uint64_t bits = reader->at[0] & 0x80 ? UINT64_MAX : 0;
    for (int at = 0; at < bytes; at++)
        bits = bits << 8 | reader->at[at];
    reader->at += bytes;
    return (int64_t)bits;
}

/* Reads an unsigned varint of at most 32 bits; it may take more bytes than it needs. */
static int64_t read_uvarint(Reader *reader)
{
    uint64_t value = 0;
    for (int shift = 0; shift < 35; shift += 7) {
        if (left(reader) < 1)
            return unusual(reader);
        unsigned char byte = *reader->at++;
        if (shift == 28 && byte > 0x0F)
            return unusual(reader);
        value |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80)
            return (int64_t)value;
    }
    return unusual(reader);
}

/* Reads the length of a string, of records or of an array: below 0 for null. Without varints it takes `bytes`. */
static int64_t read_length(Reader *reader, int bytes)
{
    return reader->flexible ? read_uvarint(reader) - 1 : read_number(reader, bytes);
}

static void read_no_tags(Reader *reader)
{
    if (reader->flexible && read_number(reader, 1) != 0)
        unusual(reader);
}

/* Sets the position of the next `size` bytes; returns 0 if fewer are left. */
static int take(Reader *reader, int64_t size, const unsigned char **bytes)
{
    if (reader->unusual || size < 0 || size > left(reader)) {
        unusual(reader);
        return 0;
    }
    *bytes = reader->at;
    reader->at += size;
    return 1;
}

/* Returns a new reference, or NULL: without an exception for an unusual value, otherwise with one. */
static PyObject *read_text(Reader *reader, int64_t size)
{
    const unsigned char *bytes;
    if (size > STRING_BYTES_MAX || !take(reader, size, &bytes)) {
        unusual(reader);
        return NULL;
    }
    PyObject *text = PyUnicode_DecodeUTF8((const char *)bytes, (Py_ssize_t)size, NULL);
    if (text == NULL && PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) {
        PyErr_Clear();
        unusual(reader);
    }
    return text;
}

static PyObject *read_topic(Reader *reader, int64_t version)
{
    if (version < FIRST_WITH_TOPIC_IDS)
        return read_text(reader, read_length(reader, 2));
    const unsigned char *bytes;
    if (!take(reader, TOPIC_ID_BYTES, &bytes))
        return NULL;
    return PyBytes_FromStringAndSize((const char *)bytes, TOPIC_ID_BYTES);
}

/* Returns a view of a part of the frame. */
static PyObject *view_of(PyObject *frame, Py_ssize_t start, Py_ssize_t stop)
{
    return PySequence_GetSlice(frame, start, stop);
}

/* Adds the batches of one topic; returns 0 if decoding stops. */
static int read_batches(Reader *reader, PyObject *frame, PyObject *topic, PyObject *batches)
{
    int64_t count = read_length(reader, 4);
    if (reader->unusual || count < 1 || count > BATCHES_MAX - PyList_GET_SIZE(batches)) {
        unusual(reader);
        return 0;
    }
    for (; count > 0; count--) {
        const unsigned char *records;
        int64_t index = read_number(reader, 4), size = read_length(reader, 4);
        if (!take(reader, size, &records))
            return 0;
        read_no_tags(reader);
        if (reader->unusual)
            return 0;
        Py_ssize_t start = records - reader->begin;
        PyObject *view = view_of(frame, start, start + (Py_ssize_t)size);
        PyObject *batch = view == NULL ? NULL : Py_BuildValue("OiN", topic, (int)index, view);
        if (batch == NULL)
            return 0;
        int failed = PyList_Append(batches, batch);
        Py_DECREF(batch);
        if (failed)
            return 0;
    }
    return 1;
}

/* Adds the batches of all topics; returns 0 if decoding stops. */
static int read_topics(Reader *reader, PyObject *frame, int64_t version, PyObject *batches)
{
    int64_t count = read_length(reader, 4);
    if (reader->unusual || count < 1 || count > BATCHES_MAX)
        return 0;
    PyObject *before = NULL;
    int fine = 1;
    for (; fine && count > 0; count--) {
        PyObject *topic = read_topic(reader, version);
        fine = topic != NULL && (before == NULL || PyObject_RichCompareBool(topic, before, Py_NE) == 1) &&
               read_batches(reader, frame, topic, batches);
        read_no_tags(reader);
        fine = fine && !reader->unusual;
        Py_XDECREF(before);
        before = topic;
    }
    Py_XDECREF(before);
    return fine;
}

/* Decodes the fields after the transactional id; steals the reference to that id. */
static PyObject *read_rest(Reader *reader, PyObject *frame, int64_t version, PyObject *transactional_id)
{
    int64_t acks = read_number(reader, 2), timeout_ms = read_number(reader, 4);
    PyObject *batches = PyList_New(0);
    if (batches != NULL && !reader->unusual && read_topics(reader, frame, version, batches)) {
        read_no_tags(reader);
        if (!reader->unusual)
            return Py_BuildValue("NiiN", transactional_id, (int)acks, (int)timeout_ms, batches);
    }
    Py_DECREF(transactional_id);
    Py_XDECREF(batches);
    if (PyErr_Occurred())
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *read_buffer(PyObject *frame, const Py_buffer *bytes, Py_ssize_t offset, int64_t version)
{
    if (version < FIRST_WITH_TRANSACTIONAL_ID || version > LAST_VERSION || offset < 0 || offset > bytes->len)
        Py_RETURN_NONE;
    const unsigned char *begin = bytes->buf;
    Reader reader = {begin, begin + offset, begin + bytes->len, version >= FIRST_FLEXIBLE, 0};
    int64_t length = read_length(&reader, 2);
    PyObject *transactional_id = NULL;
    if (!reader.unusual)
        transactional_id = length < 0 ? Py_NewRef(Py_None) : read_text(&reader, length);
    if (transactional_id == NULL) {
        if (PyErr_Occurred())
            return NULL;
        Py_RETURN_NONE;
    }
    return read_rest(&reader, frame, version, transactional_id);
}

static PyObject *read_produce(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count)
{
    if (count != 3) {
        PyErr_SetString(PyExc_TypeError, "read_produce takes a frame, an offset and a version");
        return NULL;
    }
    if (!PyMemoryView_Check(given[0])) {
        PyErr_SetString(PyExc_TypeError, "the frame is to be a memoryview");
        return NULL;
    }
    Py_ssize_t offset = PyLong_AsSsize_t(given[1]);
    long long version = PyLong_AsLongLong(given[2]);
    Py_buffer bytes;
    if (PyErr_Occurred() || PyObject_GetBuffer(given[0], &bytes, PyBUF_SIMPLE) < 0)
        return NULL;
    PyObject *result = read_buffer(given[0], &bytes, offset, version);
    PyBuffer_Release(&bytes);
    return result;
}

/* The module */

static PyMethodDef functions[] = {
    {"read_produce", (PyCFunction)(void (*)(void))read_produce, METH_FASTCALL,
     "See produce_frames_in_python.read_produce."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "ottla.protocol.direct_codecs._produce_frames",
    .m_doc = "Decoding of usual Produce requests in C; produce_frames_in_python does the same in Python.",
    .m_size = 0,
    .m_methods = functions,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__produce_frames(void)
{
    return PyModuleDef_Init(&definition);
}
