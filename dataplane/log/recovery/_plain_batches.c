/* Walking over plain batches of a file in C: their headers are read and noted, and their bodies are not.
 *
 * A batch is plain if its header differs from the header before only in its offsets, times and size, and perhaps its
 * producer. The walk ends before the first batch that is not, without an error: recovery in Python reads that batch, and
 * says what is wrong. Files may be damaged; nothing is read beyond what `pread` gave.
 */
#include "../segments/_headers.h"
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#define CONTROL_FLAG 0x20
#define LEADER_EPOCH_AT 12
#define ATTRIBUTES_AT 22 /* Its low byte, which has all flags. */
#define MAX_TIMESTAMP_AT 35
#define PRODUCER_ID_AT 43

#define PIECE (256 * 1024) /* SCAN_CHUNK in batch_walk.py */
#define FAR (32 * 1024)    /* _FAR there */
#define ENTRIES_MAX 4096   /* Entries that a walk makes at most, of each index. */
#define OFFSET_ENTRY 8     /* offset_index: >ii */
#define TIME_ENTRY 12      /* time_index: >qi */

static void put_number(unsigned char *bytes, int64_t number, int size)
{
    for (int at = size - 1; at >= 0; at--, number >>= 8)
        bytes[at] = (unsigned char)(number & 0xff);
}

typedef struct {
    int fd;
    int jumps;             /* True if the kernel expects reads here and there, and reads nothing ahead. */
    int64_t held_at, held; /* Where in the file the buffer begins, and how many bytes it has. */
    unsigned char *buffer; /* PIECE bytes. */
} Reader;

static void expect_jumps(Reader *reader, int jumps)
{
#ifdef POSIX_FADV_RANDOM
    if (jumps != reader->jumps)
        posix_fadvise(reader->fd, 0, 0, jumps ? POSIX_FADV_RANDOM : POSIX_FADV_NORMAL);
#endif
    reader->jumps = jumps;
}

/* The header at a position, or NULL if the file has none there. `before` is the size of the batch before it: headers
 * that are far apart are read alone. */
static const unsigned char *header_at(Reader *reader, int64_t position, int64_t before)
{
    int64_t within = position - reader->held_at;
    if (within >= 0 && within <= reader->held - HEADER_SIZE)
        return reader->buffer + within;
    expect_jumps(reader, before >= FAR);
    ssize_t got = pread(reader->fd, reader->buffer, before >= FAR ? HEADER_SIZE : PIECE, position);
    reader->held_at = position;
    reader->held = got < 0 ? 0 : got;
    return reader->held < HEADER_SIZE ? NULL : reader->buffer;
}

typedef struct {
    int64_t end, base_offset, upto, epoch, contiguous, interval; /* Given. */
    int64_t position, next_offset, since, max_timestamp, max_timestamp_offset, last_indexed; /* Changed by the walk. */
    int has_producers;
    int64_t offset_entries, time_entries;
    unsigned char *offsets, *times;
} Walk;

/* Notes an index entry as Segment.note_batch does. 0 if an index would not take it. */
static int index_batch(Walk *walk, int64_t last_offset)
{
    int64_t offset = last_offset - walk->base_offset, time_offset = walk->max_timestamp_offset - walk->base_offset;
    if (offset > INT32_MAX || walk->position > INT32_MAX || time_offset < 0 || time_offset > INT32_MAX)
        return 0;
    unsigned char *entry = walk->offsets + walk->offset_entries * OFFSET_ENTRY;
    put_number(entry, offset, 4);
    put_number(entry + 4, walk->position, 4);
    walk->offset_entries++;
    if (walk->max_timestamp >= 0 && walk->max_timestamp > walk->last_indexed) {
        entry = walk->times + walk->time_entries * TIME_ENTRY;
        put_number(entry, walk->max_timestamp, 8);
        put_number(entry + 8, time_offset, 4);
        walk->time_entries++;
        walk->last_indexed = walk->max_timestamp;
    }
    walk->since = 0;
    return 1;
}

/* Takes the next batch. 0 if it is not plain. Its size goes to `size`. */
static int take(Walk *walk, const unsigned char *header, int64_t *size)
{
    int64_t base_offset = number_at(header, 8), delta = number_at(header + LAST_OFFSET_DELTA_AT, 4);
    int64_t timestamp = number_at(header + MAX_TIMESTAMP_AT, 8);
    *size = number_at(header + BATCH_LENGTH_AT, 4) + LOG_OVERHEAD;
    if (header[MAGIC_AT] != MAGIC || *size < HEADER_SIZE || *size > walk->end - walk->position || delta < 0 ||
        base_offset < walk->next_offset || (walk->contiguous && base_offset != walk->next_offset) ||
        base_offset > INT64_MAX - delta - 1 || base_offset + delta + 1 > walk->upto ||
        number_at(header + LEADER_EPOCH_AT, 4) != walk->epoch || header[ATTRIBUTES_AT] & CONTROL_FLAG || timestamp < 0)
        return 0;
    if (walk->since > walk->interval && !index_batch(walk, base_offset + delta))
        return 0;
    walk->since += *size;
    if (timestamp > walk->max_timestamp) {
        walk->max_timestamp = timestamp;
        walk->max_timestamp_offset = base_offset + delta;
    }
    if (number_at(header + PRODUCER_ID_AT, 8) != -1)
        walk->has_producers = 1;
    walk->position += *size;
    walk->next_offset = base_offset + delta + 1;
    return 1;
}

static void go(Walk *walk, Reader *reader)
{
    int64_t size = FAR;
    while (walk->position <= walk->end - HEADER_SIZE && walk->offset_entries < ENTRIES_MAX) {
        const unsigned char *header = header_at(reader, walk->position, size);
        if (header == NULL || !take(walk, header, &size))
            break;
    }
    expect_jumps(reader, 0);
}

static PyObject *skim(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count)
{
    int64_t values[13];
    if (count != 13) {
        PyErr_SetString(PyExc_TypeError, "13 integers are expected");
        return NULL;
    }
    if (!read_integers(given, count, values))
        return NULL;
    if (values[0] < 0 || values[0] > INT32_MAX || values[1] < 0 || values[2] < 0 || values[3] < 0 ||
        values[4] < values[3]) {
        PyErr_SetString(PyExc_ValueError, "a descriptor, positions and offsets are expected");
        return NULL;
    }
    Walk walk = {
        .position = values[1], .end = values[2], .base_offset = values[3], .next_offset = values[4],
        .upto = values[5], .epoch = values[6], .contiguous = values[7], .interval = values[8], .since = values[9],
        .max_timestamp = values[10], .max_timestamp_offset = values[11], .last_indexed = values[12],
    };
    size_t offsets_size = ENTRIES_MAX * OFFSET_ENTRY, times_size = ENTRIES_MAX * TIME_ENTRY;
    unsigned char *space = PyMem_RawMalloc(PIECE + offsets_size + times_size);
    if (space == NULL)
        return PyErr_NoMemory();
    Reader reader = {.fd = (int)values[0], .buffer = space};
    walk.offsets = space + PIECE;
    walk.times = walk.offsets + offsets_size;
    Py_BEGIN_ALLOW_THREADS
    go(&walk, &reader);
    Py_END_ALLOW_THREADS
    PyObject *found = Py_BuildValue(
        "LLLLLOy#y#", (long long)walk.position, (long long)walk.next_offset, (long long)walk.since,
        (long long)walk.max_timestamp, (long long)walk.max_timestamp_offset, walk.has_producers ? Py_True : Py_False,
        walk.offsets, (Py_ssize_t)(walk.offset_entries * OFFSET_ENTRY), walk.times,
        (Py_ssize_t)(walk.time_entries * TIME_ENTRY));
    PyMem_RawFree(space);
    return found;
}

/* The module */

static PyMethodDef functions[] = {
    {"skim", (PyCFunction)(void (*)(void))skim, METH_FASTCALL, "See _plain_batches.pyi."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "ottla.dataplane.log.recovery._plain_batches",
    .m_doc = "Walks over plain batches in C; recovery in Python finds the same.",
    .m_size = 0,
    .m_methods = functions,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__plain_batches(void)
{
    return PyModuleDef_Init(&definition);
}
