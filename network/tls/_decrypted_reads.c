/* The reader of decrypted TLS data in C: the function of decrypted_reads_in_python.py, with the same results. A peer
 * chooses the size of its TLS records, and here a record costs no Python frame and no slice.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* The unfilled part of a buffer, for one call of `read_decrypted`. */
typedef struct {
    PyObject_HEAD
    Py_buffer space;
    Py_ssize_t taken;
} Rest;

static int rest_get_buffer(PyObject *self, Py_buffer *view, int flags)
{
    Rest *rest = (Rest *)self;
    char *begin = (char *)rest->space.buf + rest->taken;
    return PyBuffer_FillInfo(view, self, begin, rest->space.len - rest->taken, 0, flags);
}

static void rest_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyBuffer_Release(&((Rest *)self)->space);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyType_Slot rest_slots[] = {
    {Py_bf_getbuffer, rest_get_buffer},
    {Py_tp_dealloc, rest_dealloc},
    {0, NULL},
};

static PyType_Spec rest_spec = {
    .name = "ottla.network.tls._decrypted_reads.Rest",
    .basicsize = sizeof(Rest),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = rest_slots,
};

typedef struct {
    PyTypeObject *rest_type;
} State;

static Rest *rest_of(PyObject *module, PyObject *space, PyObject *taken)
{
    State *state = PyModule_GetState(module);
    Py_ssize_t begin = PyLong_AsSsize_t(taken);
    if (begin == -1 && PyErr_Occurred())
        return NULL;
    Rest *rest = PyObject_New(Rest, state->rest_type);
    if (rest == NULL)
        return NULL;
    rest->space.obj = NULL; /* nothing to release later */
    rest->taken = begin;
    if (PyObject_GetBuffer(space, &rest->space, PyBUF_WRITABLE) < 0) {
        Py_DECREF(rest);
        return NULL;
    }
    if (begin < 0 || begin > rest->space.len) {
        PyErr_SetString(PyExc_ValueError, "more is taken than there is space");
        Py_DECREF(rest);
        return NULL;
    }
    return rest;
}

/* Take the raised OSError and clear it; NULL for another exception, which stays raised. */
static PyObject *taken_error(void)
{
    if (!PyErr_ExceptionMatches(PyExc_OSError))
        return NULL;
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    PyErr_NormalizeException(&type, &error, &traceback);
    Py_XDECREF(type);
    Py_XDECREF(traceback);
    return error;
}

/* Read until the space is full. Return None, or the error that stopped it; NULL with any other exception raised. */
static PyObject *fill(PyObject *read, Rest *rest)
{
    while (rest->taken < rest->space.len) {
        Py_ssize_t room = rest->space.len - rest->taken;
        PyObject *size = PyLong_FromSsize_t(room);
        if (size == NULL)
            return NULL;
        PyObject *given[] = {size, (PyObject *)rest};
        PyObject *told = PyObject_Vectorcall(read, given, 2, NULL);
        Py_DECREF(size);
        if (told == NULL)
            return taken_error();
        Py_ssize_t received = PyLong_AsSsize_t(told);
        Py_DECREF(told);
        if (received == -1 && PyErr_Occurred())
            return NULL;
        if (received == 0)
            return PyObject_CallNoArgs(PyExc_EOFError);
        if (received < 0 || received > room) {
            PyErr_SetString(PyExc_ValueError, "more was read than there was space");
            return NULL;
        }
        rest->taken += received;
    }
    Py_RETURN_NONE;
}

static PyObject *read_decrypted(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
    if (count != 3) {
        PyErr_SetString(PyExc_TypeError, "read_decrypted takes a function, a space, and how much of it is taken");
        return NULL;
    }
    Rest *rest = rest_of(module, given[1], given[2]);
    if (rest == NULL)
        return NULL;
    PyObject *stopped = fill(given[0], rest);
    Py_ssize_t taken = rest->taken;
    Py_DECREF(rest);
    return stopped == NULL ? NULL : Py_BuildValue("nN", taken, stopped);
}

/* The module */

static int exec_module(PyObject *module)
{
    State *state = PyModule_GetState(module);
    state->rest_type = (PyTypeObject *)PyType_FromSpec(&rest_spec);
    return state->rest_type == NULL ? -1 : 0;
}

static int traverse_module(PyObject *module, visitproc visit, void *arg)
{
    State *state = PyModule_GetState(module);
    Py_VISIT(state->rest_type);
    return 0;
}

static int clear_module(PyObject *module)
{
    State *state = PyModule_GetState(module);
    Py_CLEAR(state->rest_type);
    return 0;
}

static PyMethodDef functions[] = {
    {"read_decrypted", (PyCFunction)(void (*)(void))read_decrypted, METH_FASTCALL,
     "See decrypted_reads_in_python.read_decrypted."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, exec_module},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "ottla.network.tls._decrypted_reads",
    .m_doc = "Reads what TLS has decrypted in C; decrypted_reads_in_python does the same in Python.",
    .m_size = sizeof(State),
    .m_methods = functions,
    .m_slots = slots,
    .m_traverse = traverse_module,
    .m_clear = clear_module,
};

PyMODINIT_FUNC PyInit__decrypted_reads(void)
{
    return PyModuleDef_Init(&definition);
}
