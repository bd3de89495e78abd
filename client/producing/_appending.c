/* The fast path of a record into a batch, in C: the same names and results as appending_in_python.py.
 *
 * The rule of this file: a call does everything or nothing. If `append` cannot add a record, it returns None, and the slow
 * path in Python adds it. No Python code runs between the first change and the last, so no thread sees a partial change.
 */
#include "_deliveries.h"

#include <stdint.h>
#include <string.h>
#include <structmember.h>
#include <time.h>

#include "_murmur2.h"

#define BATCH_OVERHEAD 61
#define RECORD_OVERHEAD 21
#define TURN_RECORDS 1000

/* RecordBuffer */

typedef struct {
    PyObject_HEAD
    PyObject *records; /* a list */
    PyObject *result;
    Py_ssize_t size;
    Py_ssize_t bytes_max;
    char is_open;
} RecordBuffer;

static PyMemberDef RecordBuffer_members[] = {
    {"result", T_OBJECT_EX, offsetof(RecordBuffer, result), 0, NULL},
    {"size", T_PYSSIZET, offsetof(RecordBuffer, size), 0, NULL},
    {"bytes_max", T_PYSSIZET, offsetof(RecordBuffer, bytes_max), 0, NULL},
    {"is_open", T_BOOL, offsetof(RecordBuffer, is_open), 0, NULL},
    {NULL},
};

static PyObject *RecordBuffer_records(RecordBuffer *self, void *unused)
{
    return Py_NewRef(self->records);
}

static int RecordBuffer_set_records(RecordBuffer *self, PyObject *records, void *unused)
{
    if (records == NULL || !PyList_CheckExact(records)) {
        PyErr_SetString(PyExc_TypeError, "records is a list");
        return -1;
    }
    Py_XSETREF(self->records, Py_NewRef(records));
    return 0;
}

static PyGetSetDef RecordBuffer_getset[] = {
    {"records", (getter)RecordBuffer_records, (setter)RecordBuffer_set_records, NULL, NULL},
    {NULL},
};

static PyObject *RecordBuffer_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    RecordBuffer *self = (RecordBuffer *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->size = BATCH_OVERHEAD;
        self->is_open = 1;
        self->result = Py_NewRef(Py_None);
        self->records = PyList_New(0);
        if (self->records == NULL) {
            Py_DECREF(self);
            return NULL;
        }
    }
    return (PyObject *)self;
}

static int RecordBuffer_init(RecordBuffer *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"result", "bytes_max", NULL};
    PyObject *result;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "On", names, &result, &self->bytes_max))
        return -1;
    Py_XSETREF(self->result, Py_NewRef(result));
    return 0;
}

static int RecordBuffer_traverse(RecordBuffer *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->records);
    Py_VISIT(self->result);
    return 0;
}

static int RecordBuffer_clear(RecordBuffer *self)
{
    self->is_open = 0;
    Py_CLEAR(self->records);
    Py_CLEAR(self->result);
    return 0;
}

/* Append a record of `size` estimated bytes; return its index. */
static PyObject *RecordBuffer_add(RecordBuffer *self, PyObject *const *args, Py_ssize_t count)
{
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "add takes a record and its size");
        return NULL;
    }
    Py_ssize_t size = PyLong_AsSsize_t(args[1]);
    if (size == -1 && PyErr_Occurred())
        return NULL;
    PyObject *place = PyLong_FromSsize_t(PyList_GET_SIZE(self->records));
    if (place != NULL && PyList_Append(self->records, args[0]) < 0)
        Py_CLEAR(place);
    if (place != NULL)
        self->size += size;
    return place;
}

static PyMethodDef RecordBuffer_methods[] = {
    {"add", (PyCFunction)(void (*)(void))RecordBuffer_add, METH_FASTCALL, NULL},
    {"__class_getitem__", generic, METH_O | METH_CLASS, NULL},
    {NULL},
};

static PyType_Slot RecordBuffer_slots[] = {
    {Py_tp_doc, "The records of a batch, oldest first."},
    {Py_tp_new, RecordBuffer_new},
    {Py_tp_init, RecordBuffer_init},
    {Py_tp_dealloc, free_instance},
    {Py_tp_traverse, RecordBuffer_traverse},
    {Py_tp_clear, RecordBuffer_clear},
    {Py_tp_members, RecordBuffer_members},
    {Py_tp_getset, RecordBuffer_getset},
    {Py_tp_methods, RecordBuffer_methods},
    {0, NULL},
};

static PyType_Spec RecordBuffer_spec = {
    .name = "ottla.client.producing._appending.RecordBuffer",
    .basicsize = sizeof(RecordBuffer),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = RecordBuffer_slots,
};

/* TopicBatches */

typedef struct {
    PyObject_HEAD
    PyObject *by_partition; /* a list */
    Py_ssize_t sticky;
    Py_ssize_t sticky_left;
} Topic;

static PyMemberDef Topic_members[] = {
    {"by_partition", T_OBJECT_EX, offsetof(Topic, by_partition), READONLY, NULL},
    {"sticky", T_PYSSIZET, offsetof(Topic, sticky), 0, NULL},
    {"sticky_left", T_PYSSIZET, offsetof(Topic, sticky_left), 0, NULL},
    {NULL},
};

static PyObject *Topic_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"partitions", NULL};
    Py_ssize_t partitions;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "n", names, &partitions))
        return NULL;
    Topic *self = (Topic *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->sticky = -1;
    self->by_partition = PyList_New(partitions);
    if (self->by_partition == NULL) {
        Py_DECREF(self);
        return NULL;
    }
    for (Py_ssize_t i = 0; i < partitions; i++)
        PyList_SET_ITEM(self->by_partition, i, Py_NewRef(Py_None));
    return (PyObject *)self;
}

static int Topic_traverse(Topic *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->by_partition);
    return 0;
}

static int Topic_clear(Topic *self)
{
    Py_CLEAR(self->by_partition);
    return 0;
}

static PyType_Slot Topic_slots[] = {
    {Py_tp_doc, "Of one topic, the batches that were last seen open, and the partition for records without key."},
    {Py_tp_new, Topic_new},
    {Py_tp_dealloc, free_instance},
    {Py_tp_traverse, Topic_traverse},
    {Py_tp_clear, Topic_clear},
    {Py_tp_members, Topic_members},
    {0, NULL},
};

static PyType_Spec Topic_spec = {
    .name = "ottla.client.producing._appending.TopicBatches",
    .basicsize = sizeof(Topic),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = Topic_slots,
};

/* Appender */

typedef struct {
    DeliveryTypes deliveries; /* first: see add_delivery_types */
    PyTypeObject *record_buffer;
    PyTypeObject *topic;
} State;

typedef struct {
    PyObject_HEAD
    PyTypeObject *make; /* a subtype of DeliveryFields */
    PyObject *topics;   /* a dict */
    PyObject *clock;    /* NULL for the system's: a simulation has its own */
    PyObject *now;      /* now_ms, an int: most records share one */
    long long now_ms;
    Py_ssize_t buffer_bytes_max;
    Py_ssize_t buffered_bytes;
    Py_ssize_t turn_left;
    int hashes_keys;
} Appender;

static PyMemberDef Appender_members[] = {
    {"buffer_bytes_max", T_PYSSIZET, offsetof(Appender, buffer_bytes_max), READONLY, NULL},
    {"buffered_bytes", T_PYSSIZET, offsetof(Appender, buffered_bytes), 0, NULL},
    {"turn_left", T_PYSSIZET, offsetof(Appender, turn_left), 0, NULL},
    {NULL},
};

static PyObject *Appender_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"make", "buffer_bytes_max", "hashes_keys", "clock", NULL};
    PyObject *make, *clock;
    Py_ssize_t buffer_bytes_max;
    int hashes_keys;
    if (!PyArg_ParseTupleAndKeywords(
            args, kwargs, "OnpO", names, &make, &buffer_bytes_max, &hashes_keys, &clock))
        return NULL;
    State *state = PyType_GetModuleState(type);
    if (!PyType_Check(make) || !PyType_IsSubtype((PyTypeObject *)make, state->deliveries.delivery)) {
        PyErr_SetString(PyExc_TypeError, "make is a class derived from DeliveryFields");
        return NULL;
    }
    Appender *self = (Appender *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->make = (PyTypeObject *)Py_NewRef(make);
    if (!PyCFunction_CheckExact(clock))
        self->clock = Py_NewRef(clock);
    self->buffer_bytes_max = buffer_bytes_max;
    self->hashes_keys = hashes_keys;
    self->turn_left = TURN_RECORDS;
    self->now = PyLong_FromLong(0);
    self->topics = PyDict_New();
    if (self->now == NULL || self->topics == NULL) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static int Appender_traverse(Appender *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->make);
    Py_VISIT(self->topics);
    Py_VISIT(self->clock);
    return 0;
}

static int Appender_clear_fields(Appender *self)
{
    Py_CLEAR(self->make);
    Py_CLEAR(self->topics);
    Py_CLEAR(self->clock);
    Py_CLEAR(self->now);
    return 0;
}

static PyObject *Appender_topic(Appender *self, PyTypeObject *type, PyObject *const *args, Py_ssize_t count,
                                PyObject *names)
{
    if (count != 2 || names != NULL) {
        PyErr_SetString(PyExc_TypeError, "topic takes a name and how many partitions there are");
        return NULL;
    }
    Py_ssize_t partitions = PyLong_AsSsize_t(args[1]);
    if (partitions == -1 && PyErr_Occurred())
        return NULL;
    PyObject *found = PyDict_GetItemWithError(self->topics, args[0]);
    if (found != NULL && PyList_GET_SIZE(((Topic *)found)->by_partition) == partitions)
        return Py_NewRef(found);
    if (PyErr_Occurred())
        return NULL;
    State *state = PyType_GetModuleState(type);
    found = PyObject_CallOneArg((PyObject *)state->topic, args[1]);
    if (found != NULL && PyDict_SetItem(self->topics, args[0], found) < 0)
        Py_CLEAR(found);
    return found;
}

static PyObject *Appender_clear(Appender *self, PyObject *unused)
{
    PyDict_Clear(self->topics);
    Py_RETURN_NONE;
}

static PyObject *Appender_count(Appender *self, PyObject *change)
{
    Py_ssize_t bytes = PyLong_AsSsize_t(change);
    if (bytes == -1 && PyErr_Occurred())
        return NULL;
    self->buffered_bytes += bytes;
    Py_RETURN_NONE;
}

/* Set self->now to the current time as an int. */
static int set_now(Appender *self)
{
    long long now_ms;
    if (self->clock != NULL) {
        PyObject *seconds = PyObject_CallNoArgs(self->clock);
        double now_s = seconds == NULL ? -1.0 : PyFloat_AsDouble(seconds);
        Py_XDECREF(seconds);
        if (now_s == -1.0 && PyErr_Occurred())
            return -1;
        now_ms = (long long)(now_s * 1000);
    } else {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        now_ms = (long long)now.tv_sec * 1000 + now.tv_nsec / 1000000;
    }
    if (now_ms != self->now_ms) {
        PyObject *fresh = PyLong_FromLongLong(now_ms);
        if (fresh == NULL)
            return -1;
        Py_SETREF(self->now, fresh);
        self->now_ms = now_ms;
    }
    return 0;
}

/* topic, value, key, partition, timestamp_ms, headers */
static PyObject *Appender_append(Appender *self, PyTypeObject *type, PyObject *const *args, Py_ssize_t count,
                                 PyObject *names)
{
    if (count != 6 || names != NULL) {
        PyErr_SetString(PyExc_TypeError, "append takes topic, value, key, partition, timestamp_ms and headers");
        return NULL;
    }
    PyObject *name = args[0], *value = args[1], *key = args[2], *partition = args[3], *headers = args[5];
    if (!PyUnicode_CheckExact(name) || args[4] != Py_None || !PyTuple_CheckExact(headers)
        || PyTuple_GET_SIZE(headers) != 0)
        Py_RETURN_NONE;
    Py_ssize_t size = RECORD_OVERHEAD;
    if (value != Py_None) {
        if (!PyBytes_CheckExact(value))
            Py_RETURN_NONE;
        size += PyBytes_GET_SIZE(value);
    }
    if (key != Py_None) {
        if (!PyBytes_CheckExact(key))
            Py_RETURN_NONE;
        size += PyBytes_GET_SIZE(key);
    }
    Topic *topic = (Topic *)PyDict_GetItemWithError(self->topics, name);
    if (topic == NULL) {
        if (PyErr_Occurred())
            return NULL;
        Py_RETURN_NONE;
    }
    Py_ssize_t place, partitions = PyList_GET_SIZE(topic->by_partition);
    int is_sticky = 0;
    if (partition != Py_None) {
        if (!PyLong_CheckExact(partition))
            Py_RETURN_NONE;
        int overflow;
        long long given = PyLong_AsLongLongAndOverflow(partition, &overflow);
        if (overflow || given < 0 || given >= partitions)
            Py_RETURN_NONE;
        place = (Py_ssize_t)given;
    } else if (key != Py_None) {
        if (!self->hashes_keys || partitions == 0)
            Py_RETURN_NONE;
        uint32_t hash = murmur2((const unsigned char *)PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key));
        place = (Py_ssize_t)((hash & 0x7FFFFFFF) % (uint64_t)partitions);
    } else {
        if (topic->sticky_left <= 0 || topic->sticky < 0 || topic->sticky >= partitions)
            Py_RETURN_NONE;
        place = topic->sticky;
        is_sticky = 1;
    }
    State *state = PyType_GetModuleState(type);
    RecordBuffer *batch = (RecordBuffer *)PyList_GET_ITEM(topic->by_partition, place);
    if (!PyObject_TypeCheck((PyObject *)batch, state->record_buffer))
        Py_RETURN_NONE;
    if (!batch->is_open || batch->size + size > batch->bytes_max
        || self->buffered_bytes + size > self->buffer_bytes_max || self->turn_left <= 0)
        Py_RETURN_NONE;

    /* A clock of Python's runs anything, and so does whatever allocates, as it may collect garbage. So these come first,
     * and then one looks again. */
    Py_INCREF(topic);
    Py_INCREF(batch);
    PyObject *record = NULL, *no_headers = NULL;
    Delivery *delivery = NULL;
    if (set_now(self) < 0)
        goto failed;
    no_headers = PyTuple_New(0);
    record = PyTuple_Pack(4, key, value, self->now, no_headers);
    Py_XDECREF(no_headers);
    if (record != NULL)
        PyObject_GC_UnTrack(record); /* as the collector would: it holds nothing that could lead back to it */
    delivery = record == NULL ? NULL : (Delivery *)self->make->tp_alloc(self->make, 0);
    if (delivery == NULL)
        goto failed;
    if (!batch->is_open || batch->size + size > batch->bytes_max) {
        Py_DECREF(delivery);
        delivery = (Delivery *)Py_NewRef(Py_None);
        goto done;
    }
    delivery->batch = Py_NewRef(batch->result);
    delivery->index = PyList_GET_SIZE(batch->records);
    delivery->timestamp_ms = self->now_ms;
    leave_to_counting(delivery);
    if (PyList_Append(batch->records, record) < 0)
        goto failed;
    batch->size += size;
    self->buffered_bytes += size;
    self->turn_left--;
    if (is_sticky)
        topic->sticky_left -= size;
    goto done;
failed:
    Py_CLEAR(delivery);
done:
    Py_XDECREF(record);
    Py_DECREF(batch);
    Py_DECREF(topic);
    return (PyObject *)delivery;
}

static PyMethodDef Appender_methods[] = {
    {"append", (PyCFunction)(void (*)(void))Appender_append, METH_METHOD | METH_FASTCALL | METH_KEYWORDS, NULL},
    {"topic", (PyCFunction)(void (*)(void))Appender_topic, METH_METHOD | METH_FASTCALL | METH_KEYWORDS, NULL},
    {"clear", (PyCFunction)Appender_clear, METH_NOARGS, NULL},
    {"count", (PyCFunction)Appender_count, METH_O, NULL},
    {"__class_getitem__", generic, METH_O | METH_CLASS, NULL},
    {NULL},
};

static PyType_Slot Appender_slots[] = {
    {Py_tp_doc, "The open batches of a producer, and how much is in its buffer."},
    {Py_tp_new, Appender_new},
    {Py_tp_dealloc, free_instance},
    {Py_tp_traverse, Appender_traverse},
    {Py_tp_clear, Appender_clear_fields},
    {Py_tp_members, Appender_members},
    {Py_tp_methods, Appender_methods},
    {0, NULL},
};

static PyType_Spec Appender_spec = {
    .name = "ottla.client.producing._appending.Appender",
    .basicsize = sizeof(Appender),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = Appender_slots,
};

/* The module */

static int fill_module(PyObject *module)
{
    State *state = PyModule_GetState(module);
    if (add_delivery_types(module) < 0)
        return -1;
    state->record_buffer = add_type(module, &RecordBuffer_spec, 1);
    state->topic = add_type(module, &Topic_spec, 1);
    PyTypeObject *appender = add_type(module, &Appender_spec, 1);
    Py_XDECREF(appender);
    return state->record_buffer == NULL || state->topic == NULL || appender == NULL ? -1 : 0;
}

static int traverse_module(PyObject *module, visitproc visit, void *arg)
{
    State *state = PyModule_GetState(module);
    Py_VISIT(state->deliveries.delivery);
    Py_VISIT(state->deliveries.result);
    Py_VISIT(state->deliveries.arrived);
    Py_VISIT(state->deliveries.metadata);
    Py_VISIT(state->record_buffer);
    Py_VISIT(state->topic);
    return 0;
}

static int clear_module(PyObject *module)
{
    State *state = PyModule_GetState(module);
    Py_CLEAR(state->deliveries.delivery);
    Py_CLEAR(state->deliveries.result);
    Py_CLEAR(state->deliveries.arrived);
    Py_CLEAR(state->deliveries.metadata);
    Py_CLEAR(state->record_buffer);
    Py_CLEAR(state->topic);
    return 0;
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, fill_module},
    {0, NULL},
};

static PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_appending",
    .m_doc = "What appending_in_python.py has, in C.",
    .m_size = sizeof(State),
    .m_slots = module_slots,
    .m_traverse = traverse_module,
    .m_clear = clear_module,
};

PyMODINIT_FUNC PyInit__appending(void)
{
    return PyModuleDef_Init(&module);
}
