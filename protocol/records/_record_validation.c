/* The validation of a produced batch's records in C: the same names as in record_validation.py, with the same results
 * and the same errors.
 *
 * The records come from unauthenticated peers, in pieces that may end anywhere, since compressed records are expanded
 * piece by piece. So the walk over them can stop after any byte and continue with the next piece. It keeps no byte of a
 * piece, and it allocates only for the positions of records that a topic refuses, up to a fixed number.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

#define NO_TIMESTAMP (-1)
#define REFUSED_MAX 1000       /* record_validation.REFUSED_MAX */
#define LENGTH_BYTES_MAX 5     /* bytes of a varint of 32 bits */
#define TIME_BYTES_MAX 10      /* bytes of a varint of 64 bits */
#define UNLOCKED_BYTES 1048576 /* a piece of this size or more is walked without the interpreter's lock */

/* Constants of the header of a batch, as in record_batch.py. */
#define HEADER_SIZE 61
#define LOG_OVERHEAD 12
#define HEADER_FIELDS 13
#define MAGIC 2
#define COMPRESSION_MASK 0x07
#define HIGHEST_COMPRESSION 4
#define TRANSACTIONAL_FLAG 0x10
#define CONTROL_FLAG 0x20
#define NO_PRODUCER_ID (-1)

/* Faults, in the order of record_validation.Fault. */
typedef enum {
    SOUND,
    LONG_VARINT,
    RECORD_SIZE,
    RECORD_ENDS,
    TIME_OVERFLOW,
    OFFSET_DELTA,
    KEY_SIZE,
    VALUE_SIZE,
    HEADER_COUNT,
    HEADER_NAME_SIZE,
    HEADER_VALUE_SIZE,
    RECORD_GOES_ON,
    BATCH_GOES_ON,
    BATCH_ENDS,
} Fault;

/* The next field in the data, in the order of a record. */
typedef enum {
    AT_SIZE,
    AT_ATTRIBUTES,
    AT_TIME,
    AT_OFFSET_DELTA,
    AT_KEY_SIZE,
    IN_KEY,
    AT_VALUE_SIZE,
    IN_VALUE,
    AT_HEADER_COUNT,
    AT_HEADER_NAME_SIZE,
    IN_HEADER_NAME,
    AT_HEADER_VALUE_SIZE,
    IN_HEADER_VALUE,
} Place;

typedef struct {
    int64_t number;
    int64_t timestamp;
    int keyless; /* whether it is refused for its missing key; otherwise for its timestamp */
} Refused;

/* A walk: values of the header, rules of the topic, and the position. */
typedef struct {
    int64_t count, base_ms, earliest_ms, latest_ms;
    int keyed; /* whether every record needs a key */

    Place place;
    uint64_t bits; /* the bits read so far of an incomplete varint */
    int shift;
    int64_t number;  /* number of the next record, or of the current one */
    int64_t left;    /* bytes of the current record that are still to come */
    int64_t skip;    /* bytes of the current field that are still to come */
    int64_t headers; /* headers of the current record that are still to come */
    int64_t timestamp;

    int64_t max_ms;
    Refused *refused; /* NULL while no record was refused; at most REFUSED_MAX */
    int64_t refused_count;

    Fault fault;
    int64_t claimed, there; /* numbers in the fault's message */
} Walk;

/* The part of a piece that belongs to the current record; between records the whole piece. */
typedef struct {
    const unsigned char *at, *begin, *stop, *end;
} Piece;

static void enter(Piece *piece, int64_t left)
{
    int64_t there = piece->end - piece->at;
    piece->begin = piece->at;
    piece->stop = left < there ? piece->at + left : piece->end;
}

static int64_t left_in_record(const Walk *walk, const Piece *piece)
{
    return walk->left - (piece->at - piece->begin);
}

static int found(Walk *walk, Fault fault, int64_t claimed, int64_t there)
{
    walk->fault = fault;
    walk->claimed = claimed;
    walk->there = there;
    return 0;
}

/* Suspends the walk if the piece ends; sets a fault if the record ends. */
static int pause_walk(Walk *walk, Piece *piece)
{
    if (walk->place != AT_SIZE) {
        walk->left = left_in_record(walk, piece);
        if (walk->left == 0)
            return found(walk, RECORD_ENDS, 0, 0);
    }
    return 0;
}

/* Reads the rest of a varint; returns 0 if the piece or the record ends within it, or if it is too long. */
static int read_long_varint(Walk *walk, Piece *piece, int bytes_max, int64_t *value)
{
    while (piece->at < piece->stop) {
        unsigned char byte = *piece->at++;
        int last = walk->shift == 7 * (bytes_max - 1);
        if (last && byte > (bytes_max == LENGTH_BYTES_MAX ? 0x0F : 0x01))
            return found(walk, LONG_VARINT, bytes_max == LENGTH_BYTES_MAX ? 32 : 64, 0);
        walk->bits |= (uint64_t)(byte & 0x7F) << walk->shift;
        walk->shift += 7;
        if (byte < 0x80) {
            *value = (int64_t)(walk->bits >> 1) ^ -(int64_t)(walk->bits & 1);
            walk->bits = 0;
            walk->shift = 0;
            return 1;
        }
    }
    return pause_walk(walk, piece);
}

static inline int read_varint(Walk *walk, Piece *piece, int bytes_max, int64_t *value)
{
    const unsigned char *at = piece->at;
    if (piece->stop - at >= 2 && walk->shift == 0) {
        if (at[0] < 0x80) {
            *value = (at[0] >> 1) ^ -(at[0] & 1);
            piece->at = at + 1;
            return 1;
        }
        if (at[1] < 0x80) {
            int bits = (at[0] & 0x7F) | at[1] << 7;
            *value = (bits >> 1) ^ -(bits & 1);
            piece->at = at + 2;
            return 1;
        }
    }
    return read_long_varint(walk, piece, bytes_max, value);
}

/* Skips the rest of a field; returns 0 if the piece ends before. The field is known to fit into the record. */
static inline int skip_field(Walk *walk, Piece *piece)
{
    int64_t there = piece->stop - piece->at;
    if (walk->skip <= there) {
        piece->at += walk->skip;
        walk->skip = 0;
        return 1;
    }
    walk->skip -= there;
    piece->at = piece->stop;
    return pause_walk(walk, piece);
}

/* Reads the size of a field, which must be at least `lowest`, and prepares to skip the field. */
static inline int read_size(Walk *walk, Piece *piece, int lowest, Fault fault, int64_t *size)
{
    if (!read_varint(walk, piece, LENGTH_BYTES_MAX, size))
        return 0;
    int64_t left = left_in_record(walk, piece);
    if (*size < lowest || *size > left)
        return found(walk, fault, *size, left);
    walk->skip = *size < 0 ? 0 : *size;
    return 1;
}

static void refuse(Walk *walk, int keyless)
{
    if (walk->refused == NULL)
        walk->refused = PyMem_RawMalloc(REFUSED_MAX * sizeof *walk->refused);
    if (walk->refused != NULL && walk->refused_count < REFUSED_MAX)
        walk->refused[walk->refused_count] = (Refused){walk->number, walk->timestamp, keyless};
    walk->refused_count++;
}

/* Checks the topic's rules for a record whose timestamp and key are known. */
static inline void judge(Walk *walk, int has_key)
{
    int64_t timestamp = walk->timestamp;
    if (walk->keyed && !has_key)
        refuse(walk, 1);
    else if (timestamp > walk->latest_ms || (timestamp < walk->earliest_ms && timestamp != NO_TIMESTAMP))
        refuse(walk, 0);
    if (timestamp > walk->max_ms)
        walk->max_ms = timestamp;
}

/* Sets the record's timestamp; returns 0 if it does not fit into 64 bits. */
static inline int stamp(Walk *walk, int64_t later_ms)
{
    int64_t base_ms = walk->base_ms, total = (int64_t)((uint64_t)base_ms + (uint64_t)later_ms);
    if (((base_ms ^ total) & (later_ms ^ total)) < 0)
        return found(walk, TIME_OVERFLOW, base_ms, later_ms);
    walk->timestamp = total;
    return 1;
}

/* Walks over one piece of the data, up to its end or to a fault, which is set in walk->fault. Each case falls through
 * to the case of the next field; the next piece resumes the walk at the field in which this one ends. */
static void walk_piece(Walk *walk, const unsigned char *data, int64_t size)
{
    Piece piece = {data, data, data + size, data + size};
    int64_t value;
    if (walk->place != AT_SIZE)
        enter(&piece, walk->left);
    for (;;) {
        switch (walk->place) {
        case AT_SIZE:
            if (piece.at < piece.end && walk->number == walk->count) {
                found(walk, BATCH_GOES_ON, 0, 0);
                return;
            }
            if (!read_varint(walk, &piece, LENGTH_BYTES_MAX, &value))
                return;
            if (value < 0) {
                found(walk, RECORD_SIZE, value, 0);
                return;
            }
            walk->left = value;
            enter(&piece, value);
            walk->place = AT_ATTRIBUTES; /* fall through */
        case AT_ATTRIBUTES: /* unused, so all values are allowed */
            if (piece.at == piece.stop) {
                pause_walk(walk, &piece);
                return;
            }
            piece.at++;
            walk->place = AT_TIME; /* fall through */
        case AT_TIME:
            if (!read_varint(walk, &piece, TIME_BYTES_MAX, &value) || !stamp(walk, value))
                return;
            walk->place = AT_OFFSET_DELTA; /* fall through */
        case AT_OFFSET_DELTA:
            if (!read_varint(walk, &piece, LENGTH_BYTES_MAX, &value))
                return;
            if (value != walk->number) {
                found(walk, OFFSET_DELTA, value, 0);
                return;
            }
            walk->place = AT_KEY_SIZE; /* fall through */
        case AT_KEY_SIZE:
            if (!read_size(walk, &piece, -1, KEY_SIZE, &value))
                return;
            judge(walk, value >= 0);
            walk->place = IN_KEY; /* fall through */
        case IN_KEY:
            if (!skip_field(walk, &piece))
                return;
            walk->place = AT_VALUE_SIZE; /* fall through */
        case AT_VALUE_SIZE:
            if (!read_size(walk, &piece, -1, VALUE_SIZE, &value))
                return;
            walk->place = IN_VALUE; /* fall through */
        case IN_VALUE:
            if (!skip_field(walk, &piece))
                return;
            walk->place = AT_HEADER_COUNT; /* fall through */
        case AT_HEADER_COUNT:
            if (!read_varint(walk, &piece, LENGTH_BYTES_MAX, &walk->headers))
                return;
            value = left_in_record(walk, &piece);
            if (walk->headers < 0 || walk->headers > value / 2) { /* each header takes at least two bytes */
                found(walk, HEADER_COUNT, walk->headers, value);
                return;
            }
            if (walk->headers == 0)
                break;
            walk->place = AT_HEADER_NAME_SIZE; /* fall through */
        case AT_HEADER_NAME_SIZE:
            if (!read_size(walk, &piece, 0, HEADER_NAME_SIZE, &value))
                return;
            walk->place = IN_HEADER_NAME; /* fall through */
        case IN_HEADER_NAME:
            if (!skip_field(walk, &piece))
                return;
            walk->place = AT_HEADER_VALUE_SIZE; /* fall through */
        case AT_HEADER_VALUE_SIZE:
            if (!read_size(walk, &piece, -1, HEADER_VALUE_SIZE, &value))
                return;
            walk->place = IN_HEADER_VALUE; /* fall through */
        case IN_HEADER_VALUE:
            if (!skip_field(walk, &piece))
                return;
            if (--walk->headers == 0)
                break;
            walk->place = AT_HEADER_NAME_SIZE;
            continue;
        }
        /* The last field of a record was read. */
        value = left_in_record(walk, &piece);
        if (value != 0) {
            found(walk, RECORD_GOES_ON, value, 0);
            return;
        }
        walk->number++;
        walk->place = AT_SIZE;
        piece.stop = piece.end;
    }
}

/* A batch that comes alone */

/* The fields of a batch's header, in the order of record_batch.BatchHeader. */
typedef struct {
    int64_t base_offset, batch_length, leader_epoch, magic, crc, attributes, last_offset_delta, base_ms, max_ms,
        producer_id, producer_epoch, base_sequence, record_count;
} Header;

static uint64_t bits_at(const unsigned char *data, int bytes)
{
    uint64_t bits = 0;
    for (int at = 0; at < bytes; at++)
        bits = bits << 8 | data[at];
    return bits;
}

/* Parses a header; `data` has at least HEADER_SIZE bytes. */
static Header read_header(const unsigned char *data)
{
    return (Header){
        .base_offset = (int64_t)bits_at(data, 8),
        .batch_length = (int32_t)bits_at(data + 8, 4),
        .leader_epoch = (int32_t)bits_at(data + 12, 4),
        .magic = (int8_t)data[16],
        .crc = (int64_t)bits_at(data + 17, 4),
        .attributes = (int16_t)bits_at(data + 21, 2),
        .last_offset_delta = (int32_t)bits_at(data + 23, 4),
        .base_ms = (int64_t)bits_at(data + 27, 8),
        .max_ms = (int64_t)bits_at(data + 35, 8),
        .producer_id = (int64_t)bits_at(data + 43, 8),
        .producer_epoch = (int16_t)bits_at(data + 51, 2),
        .base_sequence = (int32_t)bits_at(data + 53, 4),
        .record_count = (int32_t)bits_at(data + 57, 4),
    };
}

/* Returns whether record_batch.validate_produced accepts a batch of `size` bytes with this header and checksum. */
static int is_sound(const Header *header, int64_t size, int64_t crc)
{
    int64_t attributes = header->attributes;
    if (header->batch_length + LOG_OVERHEAD != size || header->magic != MAGIC || header->crc != crc)
        return 0;
    if (header->base_offset != 0 || header->record_count <= 0 ||
        header->last_offset_delta + 1 != header->record_count)
        return 0;
    if (attributes & CONTROL_FLAG || (attributes & COMPRESSION_MASK) > HIGHEST_COMPRESSION)
        return 0;
    if (header->producer_id == NO_PRODUCER_ID)
        return !(attributes & TRANSACTIONAL_FLAG);
    return header->producer_id >= 0 && header->producer_epoch >= 0 && header->base_sequence >= 0;
}

/* State of the module */

typedef struct {
    PyObject *fault_error;      /* record_validation.fault_error */
    PyTypeObject *batch_header; /* record_batch.BatchHeader */
} State;

/* Returns a record_batch.BatchHeader, which is a tuple. */
static PyObject *as_tuple(PyTypeObject *type, const Header *header)
{
    const int64_t fields[HEADER_FIELDS] = {
        header->base_offset,   header->batch_length,   header->leader_epoch,  header->magic,
        header->crc,           header->attributes,     header->last_offset_delta, header->base_ms,
        header->max_ms,        header->producer_id,    header->producer_epoch, header->base_sequence,
        header->record_count,
    };
    PyObject *tuple = type->tp_alloc(type, HEADER_FIELDS);
    for (int at = 0; tuple != NULL && at < HEADER_FIELDS; at++) {
        PyObject *number = PyLong_FromLongLong(fields[at]);
        if (number == NULL)
            Py_CLEAR(tuple);
        else
            PyTuple_SET_ITEM(tuple, at, number);
    }
    return tuple;
}

/* Sets the largest timestamp of the records of an uncompressed batch. Returns 0 if a record is malformed, or if the
 * topic refuses it. */
static int walk_sole(const Header *header, const unsigned char *data, int64_t size, Walk *walk, int64_t *largest_ms)
{
    walk->count = header->record_count;
    walk->base_ms = header->base_ms;
    walk->max_ms = NO_TIMESTAMP;
    walk_piece(walk, data + HEADER_SIZE, size - HEADER_SIZE);
    PyMem_RawFree(walk->refused);
    *largest_ms = walk->max_ms;
    return walk->fault == SOUND && walk->number == walk->count && walk->place == AT_SIZE && walk->refused_count == 0;
}

static PyObject *sole_batch(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
    if (count != 5) {
        PyErr_SetString(PyExc_TypeError, "sole_batch takes a batch, its CRC, two times and a bool");
        return NULL;
    }
    int64_t crc = PyLong_AsLongLong(given[1]);
    Walk walk = {.earliest_ms = PyLong_AsLongLong(given[2]), .latest_ms = PyLong_AsLongLong(given[3])};
    walk.keyed = PyObject_IsTrue(given[4]);
    if (PyErr_Occurred())
        return NULL;
    Py_buffer batch;
    if (PyObject_GetBuffer(given[0], &batch, PyBUF_SIMPLE) < 0)
        return NULL;
    Header header = {0};
    int64_t largest_ms = NO_TIMESTAMP;
    int fine = 0, compressed = 0;
    if (batch.len >= HEADER_SIZE) {
        header = read_header(batch.buf);
        compressed = (header.attributes & COMPRESSION_MASK) != 0;
        fine = is_sound(&header, batch.len, crc) &&
               (compressed || walk_sole(&header, batch.buf, batch.len, &walk, &largest_ms));
    }
    PyBuffer_Release(&batch);
    if (!fine)
        Py_RETURN_NONE;
    State *state = PyModule_GetState(module);
    PyObject *told = as_tuple(state->batch_header, &header);
    if (told == NULL)
        return NULL;
    return compressed ? Py_BuildValue("NO", told, Py_None) : Py_BuildValue("NL", told, (long long)largest_ms);
}

/* The Python type */

typedef struct {
    PyObject_HEAD
    Walk walk;
    int busy; /* whether a thread is walking without the interpreter's lock */
} Validator;

static PyObject *raise_fault(Validator *self)
{
    State *state = PyType_GetModuleState(Py_TYPE(self));
    const Walk *walk = &self->walk;
    PyObject *error = PyObject_CallFunction(state->fault_error, "iLLLL", (int)walk->fault, (long long)walk->number,
                                            (long long)walk->count, (long long)walk->claimed, (long long)walk->there);
    if (error != NULL) {
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
        Py_DECREF(error);
    }
    return NULL;
}

static PyObject *validator_feed(Validator *self, PyObject *data)
{
    Py_buffer piece;
    if (self->busy) {
        PyErr_SetString(PyExc_RuntimeError, "another thread feeds this validator");
        return NULL;
    }
    if (PyObject_GetBuffer(data, &piece, PyBUF_SIMPLE) < 0)
        return NULL;
    if (self->walk.fault == SOUND) {
        if (piece.len < UNLOCKED_BYTES) {
            walk_piece(&self->walk, piece.buf, piece.len);
        } else {
            self->busy = 1;
            Py_BEGIN_ALLOW_THREADS
            walk_piece(&self->walk, piece.buf, piece.len);
            Py_END_ALLOW_THREADS
            self->busy = 0;
        }
    }
    PyBuffer_Release(&piece);
    if (self->walk.fault != SOUND)
        return raise_fault(self);
    Py_RETURN_NONE;
}

static PyObject *validator_finish(Validator *self, PyObject *Py_UNUSED(none))
{
    Walk *walk = &self->walk;
    if (self->busy) {
        PyErr_SetString(PyExc_RuntimeError, "another thread feeds this validator");
        return NULL;
    }
    if (walk->fault == SOUND && (walk->number < walk->count || walk->place != AT_SIZE))
        found(walk, BATCH_ENDS, 0, 0);
    if (walk->fault != SOUND)
        return raise_fault(self);
    return PyLong_FromLongLong(walk->max_ms);
}

static PyObject *validator_refused(Validator *self, void *Py_UNUSED(closure))
{
    const Walk *walk = &self->walk;
    int64_t kept = walk->refused_count < REFUSED_MAX ? walk->refused_count : REFUSED_MAX;
    if (kept > 0 && walk->refused == NULL)
        return PyErr_NoMemory();
    PyObject *list = PyList_New((Py_ssize_t)kept);
    for (int64_t index = 0; list != NULL && index < kept; index++) {
        const Refused *one = &walk->refused[index];
        PyObject *pair = one->keyless ? Py_BuildValue("LO", (long long)one->number, Py_None)
                                      : Py_BuildValue("LL", (long long)one->number, (long long)one->timestamp);
        if (pair == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, (Py_ssize_t)index, pair);
    }
    return list;
}

static PyObject *validator_refused_count(Validator *self, void *Py_UNUSED(closure))
{
    return PyLong_FromLongLong(self->walk.refused_count);
}

static PyObject *validator_new(PyTypeObject *type, PyObject *given, PyObject *named)
{
    static char *names[] = {"count", "base_timestamp_ms", "earliest_ms", "latest_ms", "keyed", NULL};
    long long count, base_ms, earliest_ms, latest_ms;
    int keyed;
    if (!PyArg_ParseTupleAndKeywords(given, named, "LLLLp:RecordValidator", names, &count, &base_ms, &earliest_ms,
                                     &latest_ms, &keyed))
        return NULL;
    Validator *self = (Validator *)type->tp_alloc(type, 0);
    if (self != NULL)
        self->walk = (Walk){.count = count,
                            .base_ms = base_ms,
                            .earliest_ms = earliest_ms,
                            .latest_ms = latest_ms,
                            .keyed = keyed,
                            .max_ms = NO_TIMESTAMP};
    return (PyObject *)self;
}

static void validator_dealloc(Validator *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyMem_RawFree(self->walk.refused);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef validator_methods[] = {
    {"feed", (PyCFunction)validator_feed, METH_O, "See record_validation.RecordValidator.feed."},
    {"finish", (PyCFunction)validator_finish, METH_NOARGS, "See record_validation.RecordValidator.finish."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef validator_fields[] = {
    {"refused", (getter)validator_refused, NULL, "See record_validation.RecordValidator.refused.", NULL},
    {"refused_count", (getter)validator_refused_count, NULL, "See record_validation.RecordValidator.refused_count.",
     NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot validator_slots[] = {
    {Py_tp_doc, "See record_validation.RecordValidator."},
    {Py_tp_new, validator_new},
    {Py_tp_dealloc, validator_dealloc},
    {Py_tp_methods, validator_methods},
    {Py_tp_getset, validator_fields},
    {0, NULL},
};

static PyType_Spec validator_spec = {
    .name = "ottla.protocol.records._record_validation.RecordValidator",
    .basicsize = sizeof(Validator),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = validator_slots,
};

/* The module */

static int exec_module(PyObject *module)
{
    State *state = PyModule_GetState(module);
    PyObject *in_python = PyImport_ImportModule("ottla.protocol.records.record_validation");
    if (in_python == NULL)
        return -1;
    state->fault_error = PyObject_GetAttrString(in_python, "fault_error");
    Py_DECREF(in_python);
    if (state->fault_error == NULL)
        return -1;
    PyObject *batches = PyImport_ImportModule("ottla.protocol.records.record_batch");
    if (batches == NULL)
        return -1;
    state->batch_header = (PyTypeObject *)PyObject_GetAttrString(batches, "BatchHeader");
    Py_DECREF(batches);
    if (state->batch_header == NULL)
        return -1;
    if (!PyType_Check(state->batch_header) || !PyType_IsSubtype(state->batch_header, &PyTuple_Type)) {
        PyErr_SetString(PyExc_TypeError, "record_batch.BatchHeader is no tuple");
        return -1;
    }
    PyObject *type = PyType_FromModuleAndSpec(module, &validator_spec, NULL);
    if (type == NULL)
        return -1;
    int failed = PyModule_AddObjectRef(module, "RecordValidator", type);
    Py_DECREF(type);
    return failed;
}

static int traverse_module(PyObject *module, visitproc visit, void *arg)
{
    State *state = PyModule_GetState(module);
    Py_VISIT(state->fault_error);
    Py_VISIT(state->batch_header);
    return 0;
}

static int clear_module(PyObject *module)
{
    State *state = PyModule_GetState(module);
    Py_CLEAR(state->fault_error);
    Py_CLEAR(state->batch_header);
    return 0;
}

static void free_module(void *module)
{
    clear_module(module);
}

static PyMethodDef functions[] = {
    {"sole_batch", (PyCFunction)(void (*)(void))sole_batch, METH_FASTCALL, "See record_validation.sole_batch."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, exec_module},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "ottla.protocol.records._record_validation",
    .m_doc = "The validation of records in C; record_validation does the same in Python.",
    .m_size = sizeof(State),
    .m_methods = functions,
    .m_slots = slots,
    .m_traverse = traverse_module,
    .m_clear = clear_module,
    .m_free = free_module,
};

PyMODINIT_FUNC PyInit__record_validation(void)
{
    return PyModuleDef_Init(&definition);
}
