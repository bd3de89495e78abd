/* Hashes of the keys of records in C: what key_hashes_in_python.py does, with the same results.
 *
 * The records come from producers, in pieces that may end anywhere, since compressed records are expanded piece by piece.
 * Nothing is read beyond a piece. Of a record only the beginning is needed, up to the end of its key.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

#define KEY_BYTES_MAX 65536 /* key_hashes_in_python.KEY_BYTES_MAX */
#define LENGTH_BYTES_MAX 5  /* bytes of a varint of 32 bits */
#define TIME_BYTES_MAX 10   /* bytes of a varint of 64 bits */

typedef enum { READ, INCOMPLETE, DAMAGED, FAILED } Outcome;

typedef struct {
    const unsigned char *at, *end;
} Piece;

static Outcome read_varint(Piece *piece, int bytes_max, int64_t *value)
{
    uint64_t bits = 0;
    for (int read = 0; read < bytes_max; read++) {
        if (piece->at == piece->end)
            return INCOMPLETE;
        unsigned char byte = *piece->at++;
        bits |= (uint64_t)(byte & 0x7F) << 7 * read;
        if (byte < 0x80) {
            *value = (int64_t)(bits >> 1) ^ -(int64_t)(bits & 1);
            return READ;
        }
    }
    return DAMAGED;
}

typedef struct {
    int64_t offset_delta, hash;
    int64_t left; /* Bytes of the record behind the bytes that were read. */
    int has_key;
} Record;

/* Reads the beginning of a record. */
static Outcome read_record(Piece *piece, Record *record)
{
    int64_t size, time, key_size;
    Outcome outcome = read_varint(piece, LENGTH_BYTES_MAX, &size);
    if (outcome != READ)
        return outcome;
    if (size < 0)
        return DAMAGED;
    const unsigned char *begin = piece->at;
    if (piece->at == piece->end)
        return INCOMPLETE;
    piece->at++; /* Attributes, which are unused. */
    if ((outcome = read_varint(piece, TIME_BYTES_MAX, &time)) != READ ||
        (outcome = read_varint(piece, LENGTH_BYTES_MAX, &record->offset_delta)) != READ ||
        (outcome = read_varint(piece, LENGTH_BYTES_MAX, &key_size)) != READ)
        return outcome;
    int64_t left = size - (piece->at - begin);
    if (record->offset_delta < 0 || record->offset_delta > INT32_MAX || key_size < -1 || key_size > left)
        return DAMAGED;
    record->has_key = key_size >= 0;
    record->left = left;
    if (key_size < 0)
        return READ;
    int64_t hashed = key_size < KEY_BYTES_MAX ? key_size : KEY_BYTES_MAX;
    if (hashed > piece->end - piece->at)
        return INCOMPLETE;
    PyObject *key = PyBytes_FromStringAndSize((const char *)piece->at, (Py_ssize_t)hashed);
    if (key == NULL)
        return FAILED;
    record->hash = (int64_t)PyObject_Hash(key);
    Py_DECREF(key);
    return READ;
}

typedef struct {
    int64_t base_offset, from_offset, records_max, keys_max; /* Given. */
    int64_t records, keys, skip;
    int64_t *offsets, *hashes; /* Room for `keys_max`. */
} Walk;

/* Reads records as long as their beginnings are whole. Sets `used` to the bytes of the records that were read. */
static Outcome walk_on(Walk *walk, const unsigned char *bytes, Py_ssize_t size, Py_ssize_t *used)
{
    Piece piece = {bytes, bytes + size};
    *used = 0;
    while (walk->records < walk->records_max && walk->keys < walk->keys_max) {
        Record record;
        Outcome outcome = read_record(&piece, &record);
        if (outcome != READ)
            return outcome;
        walk->records++;
        if (record.has_key && walk->base_offset + record.offset_delta >= walk->from_offset) {
            walk->offsets[walk->keys] = walk->base_offset + record.offset_delta;
            walk->hashes[walk->keys++] = record.hash;
        }
        int64_t there = piece.end - piece.at;
        if (record.left > there) {
            walk->skip = record.left - there;
            *used = size;
            return READ;
        }
        piece.at += record.left;
        *used = piece.at - bytes;
    }
    return READ;
}

static PyObject *walked(const Walk *walk, Py_ssize_t used)
{
    Py_ssize_t bytes = (Py_ssize_t)(walk->keys * (int64_t)sizeof(int64_t));
    return Py_BuildValue("nLLy#y#", used, (long long)walk->skip, (long long)walk->records, (const char *)walk->offsets,
                         bytes, (const char *)walk->hashes, bytes);
}

static PyObject *hash_keys(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count)
{
    int64_t values[4];
    if (count != 5) {
        PyErr_SetString(PyExc_TypeError, "data, base_offset, from_offset, records_max and keys_max are expected");
        return NULL;
    }
    for (int at = 0; at < 4; at++) {
        values[at] = PyLong_AsLongLong(given[at + 1]);
        if (values[at] == -1 && PyErr_Occurred())
            return NULL;
    }
    Walk walk = {.base_offset = values[0], .from_offset = values[1], .records_max = values[2], .keys_max = values[3]};
    if (walk.base_offset < 0 || walk.base_offset > INT64_MAX - UINT32_MAX || walk.keys_max < 0 ||
        walk.keys_max > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "an offset and a number of keys are expected");
        return NULL;
    }
    Py_buffer data;
    if (PyObject_GetBuffer(given[0], &data, PyBUF_SIMPLE) < 0)
        return NULL;
    /* The beginning of a record has five bytes at least, so the data cannot reach this number. */
    if (walk.keys_max > data.len / 5)
        walk.keys_max = data.len / 5 + 1;
    walk.offsets = PyMem_Malloc(2 * sizeof(int64_t) * (size_t)(walk.keys_max + 1));
    if (walk.offsets == NULL) {
        PyBuffer_Release(&data);
        return PyErr_NoMemory();
    }
    walk.hashes = walk.offsets + walk.keys_max;
    Py_ssize_t used;
    Outcome outcome = walk_on(&walk, data.buf, data.len, &used);
    PyBuffer_Release(&data);
    PyObject *result = NULL;
    if (outcome == DAMAGED)
        PyErr_Format(PyExc_ValueError, "record %lld of the data is damaged", (long long)walk.records);
    else if (outcome != FAILED)
        result = walked(&walk, used);
    PyMem_Free(walk.offsets);
    return result;
}

/* The module */

static PyMethodDef functions[] = {
    {"hash_keys", (PyCFunction)(void (*)(void))hash_keys, METH_FASTCALL, "See key_hashes_in_python.hash_keys."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "ottla.dataplane.share.leader._key_hashes",
    .m_doc = "Hashes the keys of records in C; key_hashes_in_python does the same in Python.",
    .m_size = 0,
    .m_methods = functions,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__key_hashes(void)
{
    return PyModuleDef_Init(&definition);
}
