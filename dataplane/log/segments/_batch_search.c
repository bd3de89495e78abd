/* Looking for a batch in C: what batch_search_in_python.py does, with the same results.
 *
 * The bytes are those of this broker's files, which may be damaged, and nothing is read beyond what was given. What is no
 * batch ends the walk without an error of its own: the search in Python says what is wrong.
 */
#include "_headers.h"

/* Indexes */

static PyObject *count_until(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count)
{
    int64_t values[4];
    int beyond;
    if (count != 6) {
        PyErr_SetString(PyExc_TypeError, "entries, length, entry_bytes, at, field_bytes and target are expected");
        return NULL;
    }
    if (!read_integers(given + 1, 4, values))
        return NULL;
    int64_t target = PyLong_AsLongLongAndOverflow(given[5], &beyond);
    if (target == -1 && PyErr_Occurred())
        return NULL;
    int64_t length = values[0], entry = values[1], at = values[2], field = values[3];
    Py_buffer entries;
    if (PyObject_GetBuffer(given[0], &entries, PyBUF_SIMPLE) < 0)
        return NULL;
    if (entry <= 0 || length < 0 || length > entries.len / entry || at < 0 || (field != 4 && field != 8) ||
        at > entry - field) {
        PyBuffer_Release(&entries);
        PyErr_SetString(PyExc_ValueError, "the entries are not as many, or have no such field");
        return NULL;
    }
    const unsigned char *bytes = entries.buf;
    int64_t low = beyond > 0 ? length : 0, high = beyond < 0 ? 0 : length;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (number_at(bytes + middle * entry + at, (int)field) <= target)
            low = middle + 1;
        else
            high = middle;
    }
    PyBuffer_Release(&entries);
    return PyLong_FromLongLong(low);
}

/* Batches */

typedef struct {
    const unsigned char *bytes;
    int64_t size, held_at; /* Where in the file the bytes begin. */
} Held;

typedef struct {
    int64_t position, next_offset, base_offset; /* The last is -1 until a batch is found that reaches beyond the limit. */
} Walk;

/* Goes on from header to header as far as these are held. 0 at what is no batch. */
static int walk_on(const Held *held, int64_t limit, int64_t end, Walk *walk)
{
    while (walk->position < end) {
        int64_t left = end - walk->position, within = walk->position - held->held_at;
        if (left < HEADER_SIZE)
            return 0;
        if (within > held->size - HEADER_SIZE)
            return within > 0; /* Where the first header is not whole the file ends early. */
        const unsigned char *header = held->bytes + within;
        int64_t base_offset = number_at(header, 8);
        int64_t size = number_at(header + BATCH_LENGTH_AT, 4) + LOG_OVERHEAD;
        int64_t delta = number_at(header + LAST_OFFSET_DELTA_AT, 4);
        if (header[MAGIC_AT] != MAGIC || size < HEADER_SIZE || size > left || base_offset < walk->next_offset ||
            delta < 0 || base_offset > INT64_MAX - delta - 1)
            return 0;
        if (size > limit - walk->position) {
            walk->base_offset = base_offset;
            return 1;
        }
        walk->position += size;
        walk->next_offset = base_offset + delta + 1;
    }
    return 1;
}

static PyObject *walk_headers(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count)
{
    int64_t values[4];
    if (count != 5) {
        PyErr_SetString(PyExc_TypeError, "held, position, limit, end and next_offset are expected");
        return NULL;
    }
    if (!read_integers(given + 1, 4, values))
        return NULL;
    int64_t limit = values[1], end = values[2];
    Walk walk = {.position = values[0], .next_offset = values[3], .base_offset = -1};
    if (walk.position < 0 || limit < walk.position) {
        PyErr_SetString(PyExc_ValueError, "a limit behind a position is expected");
        return NULL;
    }
    Py_buffer bytes;
    if (PyObject_GetBuffer(given[0], &bytes, PyBUF_SIMPLE) < 0)
        return NULL;
    Held held = {.bytes = bytes.buf, .size = bytes.len, .held_at = walk.position};
    int whole = walk_on(&held, limit, end, &walk);
    PyBuffer_Release(&bytes);
    if (!whole)
        Py_RETURN_NONE;
    return Py_BuildValue("LLL", (long long)walk.position, (long long)walk.base_offset, (long long)walk.next_offset);
}

/* The module */

static PyMethodDef functions[] = {
    {"count_until", (PyCFunction)(void (*)(void))count_until, METH_FASTCALL, "See batch_search_in_python.count_until."},
    {"walk_headers", (PyCFunction)(void (*)(void))walk_headers, METH_FASTCALL, "See _batch_search.pyi."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "ottla.dataplane.log.segments._batch_search",
    .m_doc = "Looks for a batch in C; batch_search_in_python does the same in Python.",
    .m_size = 0,
    .m_methods = functions,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__batch_search(void)
{
    return PyModuleDef_Init(&definition);
}
