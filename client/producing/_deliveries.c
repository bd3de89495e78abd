/* Deliveries of records in C: ResultFields and DeliveryFields of appending_in_python.py. A program that awaits millions of
 * records, one after the other, finds nearly all of them settled; for these no Python code runs. */
#include "_deliveries.h"

#include <structmember.h>

/* Functions of all types of the module */

void free_instance(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    type->tp_clear(self);
    type->tp_free(self);
    Py_DECREF(type);
}

PyObject *generic(PyObject *type, PyObject *item)
{
    return Py_NewRef(type);
}

PyTypeObject *add_type(PyObject *module, PyType_Spec *spec, int has_name)
{
    PyTypeObject *type = (PyTypeObject *)PyType_FromModuleAndSpec(module, spec, NULL);
    if (type != NULL && has_name && PyModule_AddType(module, type) < 0)
        Py_CLEAR(type);
    return type;
}

/* The definition of the module whose state has the types. It is static there, and shared by all interpreters. */
static PyModuleDef *module_def;

/* Return the types of the module that a class derived from DeliveryFields belongs to. */
static DeliveryTypes *delivery_types_of(PyTypeObject *type)
{
    return PyModule_GetState(PyType_GetModuleByDef(type, module_def));
}

/* ResultFields */

typedef struct {
    PyObject_HEAD
    PyObject *topic;
    PyObject *error;
    long long base_offset;
    long long append_time_ms;
    int partition;
    char is_settled;
} Result;

static PyMemberDef Result_members[] = {
    {"topic", T_OBJECT_EX, offsetof(Result, topic), 0, NULL},
    {"partition", T_INT, offsetof(Result, partition), 0, NULL},
    {"is_settled", T_BOOL, offsetof(Result, is_settled), 0, NULL},
    {"error", T_OBJECT, offsetof(Result, error), 0, NULL},
    {"base_offset", T_LONGLONG, offsetof(Result, base_offset), 0, NULL},
    {"append_time_ms", T_LONGLONG, offsetof(Result, append_time_ms), 0, NULL},
    {NULL},
};

static int Result_init(Result *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"topic", "partition", NULL};
    PyObject *topic;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "Ui", names, &topic, &self->partition))
        return -1;
    Py_XSETREF(self->topic, Py_NewRef(topic));
    self->base_offset = self->append_time_ms = -1;
    return 0;
}

static int Result_traverse(Result *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->topic);
    Py_VISIT(self->error);
    return 0;
}

static int Result_clear(Result *self)
{
    Py_CLEAR(self->topic);
    Py_CLEAR(self->error);
    return 0;
}

static PyType_Slot Result_slots[] = {
    {Py_tp_doc, "How a batch fared."},
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_init, Result_init},
    {Py_tp_dealloc, free_instance},
    {Py_tp_traverse, Result_traverse},
    {Py_tp_clear, Result_clear},
    {Py_tp_members, Result_members},
    {0, NULL},
};

static PyType_Spec Result_spec = {
    .name = "ottla.client.producing._appending.ResultFields",
    .basicsize = sizeof(Result),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = Result_slots,
};

/* Arrived: the iterator for awaiting an acknowledged record. It never waits. */

typedef struct {
    PyObject_HEAD
    PyObject *metadata;
} Arrived;

static PySendResult Arrived_send(Arrived *self, PyObject *value, PyObject **result)
{
    *result = Py_NewRef(self->metadata);
    return PYGEN_RETURN;
}

static PyObject *Arrived_next(Arrived *self)
{
    PyObject *stop = PyObject_CallOneArg(PyExc_StopIteration, self->metadata);
    if (stop != NULL) {
        PyErr_SetObject(PyExc_StopIteration, stop);
        Py_DECREF(stop);
    }
    return NULL;
}

static void Arrived_free(Arrived *self)
{
    PyTypeObject *type = Py_TYPE(self);
    Py_DECREF(self->metadata);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyType_Slot Arrived_slots[] = {
    {Py_tp_doc, "Brings what is there already."},
    {Py_tp_iter, PyObject_SelfIter},
    {Py_tp_iternext, Arrived_next},
    {Py_am_send, Arrived_send},
    {Py_tp_dealloc, Arrived_free},
    {0, NULL},
};

static PyType_Spec Arrived_spec = {
    .name = "ottla.client.producing._appending.Arrived",
    .basicsize = sizeof(Arrived),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = Arrived_slots,
};

/* DeliveryFields */

static PyMemberDef Delivery_members[] = {
    {"batch", T_OBJECT_EX, offsetof(Delivery, batch), 0, NULL},
    {"index", T_PYSSIZET, offsetof(Delivery, index), 0, NULL},
    {"timestamp_ms", T_LONGLONG, offsetof(Delivery, timestamp_ms), 0, NULL},
    {"_cancelled", T_BOOL, offsetof(Delivery, cancelled), 0, NULL},
    {"_asyncio_future_blocking", T_BOOL, offsetof(Delivery, future_blocking), 0, NULL},
    {NULL},
};

/* Exclude a delivery from garbage collection if it has no callbacks and no other references, since no cycle can contain it.
 * There is a delivery for each record, so the collector would often be triggered and scan all objects of the program. */
void leave_to_counting(Delivery *self)
{
    PyTypeObject *type = Py_TYPE(self);
    int holds_more = type->tp_basicsize != sizeof(Delivery) || type->tp_dictoffset || type->tp_weaklistoffset;
    if (self->callbacks == NULL && !holds_more)
        PyObject_GC_UnTrack(self);
}

static PyObject *Delivery_callbacks(Delivery *self, void *closure)
{
    return Py_NewRef(self->callbacks == NULL ? Py_None : self->callbacks);
}

/* Callbacks may refer to the delivery, so the garbage collector tracks it from now on. */
static int Delivery_set_callbacks(Delivery *self, PyObject *value, void *closure)
{
    if (value == NULL) {
        PyErr_SetString(PyExc_AttributeError, "_callbacks cannot be deleted");
        return -1;
    }
    Py_XSETREF(self->callbacks, Py_NewRef(value));
    if (value != Py_None && !PyObject_GC_IsTracked((PyObject *)self))
        PyObject_GC_Track(self);
    return 0;
}

static PyGetSetDef Delivery_getset[] = {
    {"_callbacks", (getter)Delivery_callbacks, (setter)Delivery_set_callbacks, NULL, NULL},
    {NULL},
};

static int Delivery_init(Delivery *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"batch", "index", "timestamp_ms", NULL};
    PyObject *batch;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OnL", names, &batch, &self->index, &self->timestamp_ms))
        return -1;
    Py_XSETREF(self->batch, Py_NewRef(batch));
    leave_to_counting(self);
    return 0;
}

static int Delivery_traverse(Delivery *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->batch);
    Py_VISIT(self->callbacks);
    return 0;
}

static int Delivery_clear(Delivery *self)
{
    Py_CLEAR(self->batch);
    Py_CLEAR(self->callbacks);
    return 0;
}

/* Return a RecordMetadata; NULL if the record was not acknowledged, or with an exception. */
static PyObject *metadata_of(Delivery *self, DeliveryTypes *types)
{
    Result *batch = (Result *)self->batch;
    if (self->cancelled || batch == NULL || !PyObject_TypeCheck(self->batch, types->result) || !batch->is_settled
        || (batch->error != NULL && batch->error != Py_None) || batch->topic == NULL)
        return NULL;
    long long offset = batch->base_offset >= 0 ? batch->base_offset + self->index : batch->base_offset;
    long long timestamp_ms = batch->append_time_ms >= 0 ? batch->append_time_ms : self->timestamp_ms;
    PyObject *items[] = {
        Py_NewRef(batch->topic),
        PyLong_FromLong(batch->partition),
        PyLong_FromLongLong(offset),
        PyLong_FromLongLong(timestamp_ms),
    };
    PyObject *metadata = types->metadata->tp_alloc(types->metadata, 4);
    if (items[1] == NULL || items[2] == NULL || items[3] == NULL)
        Py_CLEAR(metadata);
    if (metadata != NULL)
        PyObject_GC_UnTrack(metadata); /* a text and numbers: nothing there leads back to it */
    for (int i = 0; i < 4; i++) {
        if (metadata != NULL)
            PyTuple_SET_ITEM(metadata, i, items[i]);
        else
            Py_XDECREF(items[i]);
    }
    return metadata;
}

static PyObject *Delivery_metadata(Delivery *self, PyObject *unused)
{
    PyObject *metadata = metadata_of(self, delivery_types_of(Py_TYPE(self)));
    if (metadata == NULL && !PyErr_Occurred())
        Py_RETURN_NONE;
    return metadata;
}

static PyObject *Delivery_await(Delivery *self)
{
    DeliveryTypes *types = delivery_types_of(Py_TYPE(self));
    PyObject *metadata = metadata_of(self, types);
    if (metadata == NULL)
        return PyErr_Occurred() ? NULL : PyObject_CallMethod((PyObject *)self, "_wait", NULL);
    Arrived *arrived = PyObject_New(Arrived, types->arrived);
    if (arrived == NULL) {
        Py_DECREF(metadata);
        return NULL;
    }
    arrived->metadata = metadata;
    return (PyObject *)arrived;
}

static PyMethodDef Delivery_methods[] = {
    {"metadata_if_acknowledged", (PyCFunction)Delivery_metadata, METH_NOARGS, NULL},
    {"__class_getitem__", generic, METH_O | METH_CLASS, NULL},
    {NULL},
};

static PyType_Slot Delivery_slots[] = {
    {Py_tp_doc, "What a delivery consists of: its batch's result, its place in the batch, its timestamp."},
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_init, Delivery_init},
    {Py_tp_dealloc, free_instance},
    {Py_tp_traverse, Delivery_traverse},
    {Py_tp_clear, Delivery_clear},
    {Py_tp_members, Delivery_members},
    {Py_tp_getset, Delivery_getset},
    {Py_tp_methods, Delivery_methods},
    {Py_tp_iter, Delivery_await},
    {Py_am_await, Delivery_await},
    {0, NULL},
};

static PyType_Spec Delivery_spec = {
    .name = "ottla.client.producing._appending.DeliveryFields",
    .basicsize = sizeof(Delivery),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = Delivery_slots,
};

/* For the module */

int add_delivery_types(PyObject *module)
{
    DeliveryTypes *types = PyModule_GetState(module);
    module_def = PyModule_GetDef(module);
    PyObject *python = PyImport_ImportModule("ottla.client.producing.record_metadata");
    PyObject *metadata = python == NULL ? NULL : PyObject_GetAttrString(python, "RecordMetadata");
    Py_XDECREF(python);
    if (metadata == NULL)
        return -1;
    if (!PyType_Check(metadata) || !PyType_IsSubtype((PyTypeObject *)metadata, &PyTuple_Type)) {
        Py_DECREF(metadata);
        PyErr_SetString(PyExc_TypeError, "RecordMetadata is a NamedTuple");
        return -1;
    }
    types->metadata = (PyTypeObject *)metadata;
    types->result = add_type(module, &Result_spec, 1);
    types->arrived = add_type(module, &Arrived_spec, 0);
    types->delivery = add_type(module, &Delivery_spec, 1);
    return types->result == NULL || types->arrived == NULL || types->delivery == NULL ? -1 : 0;
}
