/* Walks through the records of a batch without making a Python object of each. protocol/records/walk.py tells what a walk
 * checks and finds; walk_twin.py does the same in Python, with the same messages.
 *
 *     length varint | attributes int8 | timestampDelta varlong | offsetDelta varint | keyLength varint | key |
 *     valueLength varint | value | headerCount varint | headers: (keyLength varint | key | valueLength varint | value)*
 *
 * The payload comes in pieces, as it is decompressed. A piece can end anywhere, also within a varint. So the walk is a
 * machine: its state is the field that comes next, and what is known of the record so far.
 */
#include "native.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <structmember.h>

/* How many records of each kind are named at most. A compressed batch can hold millions. */
#define MAX_NAMED 10000
#define MAX_VARINT_BYTES 5
#define MAX_VARLONG_BYTES 10

enum field {
    LENGTH,
    ATTRIBUTES,
    TIMESTAMP,
    OFFSET,
    KEY_LENGTH,
    KEY,
    VALUE_LENGTH,
    VALUE,
    HEADER_COUNT,
    HEADER_KEY_LENGTH,
    HEADER_KEY,
    HEADER_VALUE_LENGTH,
    HEADER_VALUE,
    NOTHING, /* a fault was found */
};

struct named {
    int32_t index;
    long long timestamp;
};

struct names {
    struct named *items;
    int32_t count, room;
};

typedef struct {
    PyObject_HEAD
    /* What the walk was told. */
    int expected;
    long long base_timestamp, earliest, latest, from_delta, wanted;
    int is_consecutive, needs_keys;
    /* Where it is. Positions count the bytes of the whole payload. */
    enum field next;
    int64_t position, record_end, field_end;
    int64_t headers_left;
    uint64_t varint;  /* what a piece had of a varint that it cut, */
    int varint_bytes; /* in so many bytes */
    int64_t timestamp, offset_delta;
    bool has_key;
    char fault[96];
    /* What it has found. */
    int count;
    long long max_timestamp, max_timestamp_delta;
    bool is_found;
    int64_t found_delta, found_timestamp;
    struct names keyless, misdated;
} walk;

enum outcome { COMPLETE, CUT, BAD };

static enum outcome bad(walk *w, const char *what, int64_t number) {
    int used = snprintf(w->fault, sizeof w->fault, "record %d: ", w->count);
    snprintf(w->fault + used, sizeof w->fault - (size_t)used, what, (long long)number);
    w->next = NOTHING;
    return BAD;
}

static enum outcome name(walk *w, struct names *names, int64_t timestamp) {
    if (names->count == MAX_NAMED) return COMPLETE;
    if (names->count == names->room) {
        int32_t room = names->room ? 4 * names->room : 16;
        struct named *items = realloc(names->items, (size_t)room * sizeof *items);
        if (items == NULL) return bad(w, "no memory for the names of %lld records", room);
        names->items = items;
        names->room = room;
    }
    names->items[names->count++] = (struct named){w->count, timestamp};
    return COMPLETE;
}

/* A signed number of up to `max_bytes`, of which earlier pieces may have had a part. */
static enum outcome long_number(walk *w, const uint8_t **from, const uint8_t *end, int max_bytes, int64_t *value) {
    const int bits = max_bytes == MAX_VARINT_BYTES ? 32 : 64;
    for (const uint8_t *p = *from; p < end;) {
        uint64_t byte = *p++;
        int shift = 7 * w->varint_bytes++;
        /* 64 bits take ten bytes, of which the last has one bit. */
        bool is_too_large = shift == 63 && (byte & 0x7F) > 1;
        w->varint |= (byte & 0x7F) << shift;
        if (byte >= 0x80 ? w->varint_bytes == max_bytes : is_too_large || (bits == 32 && w->varint > UINT32_MAX))
            return bad(w, "a number of more than %lld bits", bits);
        if (byte < 0x80) {
            *value = (int64_t)(w->varint >> 1) ^ -(int64_t)(w->varint & 1);
            w->varint = 0;
            w->varint_bytes = 0;
            *from = p;
            return COMPLETE;
        }
    }
    return CUT;
}

static inline enum outcome read_number(walk *w, const uint8_t **from, const uint8_t *end, int max_bytes, int64_t *value) {
    const uint8_t *p = *from;
    if (end - p >= 2 && w->varint_bytes == 0) {
        uint64_t rest = p[0];
        int size = 1;
        if (p[0] >= 0x80) {
            if (p[1] >= 0x80) return long_number(w, from, end, max_bytes, value);
            rest = (rest & 0x7F) | (uint64_t)p[1] << 7;
            size = 2;
        }
        *from = p + size;
        *value = (int64_t)(rest >> 1) ^ -(int64_t)(rest & 1);
        return COMPLETE;
    }
    return long_number(w, from, end, max_bytes, value);
}

/* The record is complete. */
static enum outcome record_over(walk *w) {
    if (w->offset_delta >= w->from_delta) {
        if (w->timestamp > w->max_timestamp) {
            w->max_timestamp = w->timestamp;
            w->max_timestamp_delta = w->offset_delta;
        }
        if (w->timestamp >= w->wanted && !w->is_found) {
            w->is_found = true;
            w->found_timestamp = w->timestamp;
            w->found_delta = w->offset_delta;
        }
    }
    if (w->needs_keys && !w->has_key && name(w, &w->keyless, w->timestamp) == BAD) return BAD;
    if ((w->timestamp < w->earliest || w->timestamp > w->latest) && w->timestamp != -1 &&
        name(w, &w->misdated, w->timestamp) == BAD)
        return BAD;
    w->count++;
    w->next = LENGTH;
    return COMPLETE;
}

/* A number comes next. If the piece ends within it, the next piece goes on there. */
#define NUMBER(field, max_bytes, into)                                         \
    case field:                                                                \
        switch (read_number(w, &p, end, max_bytes, into)) {                    \
        case CUT: w->next = field; return;                                     \
        case BAD: return;                                                      \
        case COMPLETE: break;                                                  \
        }                                                                      \
        if (POSITION > w->record_end) {                                        \
            bad(w, "its fields go beyond its length", 0);                      \
            return;                                                            \
        }

/* So many bytes come next, which the walk passes over. -1: none, the field is null. */
#define BYTES(field, length, what)                                             \
    if (length < -1 || POSITION + length > w->record_end) {                    \
        bad(w, what " of %lld bytes", length);                                 \
        return;                                                                \
    }                                                                          \
    w->field_end = POSITION + (length > 0 ? length : 0);                       \
    __attribute__((fallthrough));                                              \
    case field:                                                                \
        if (w->field_end > base + (end - start)) {                             \
            w->next = field;                                                   \
            return;                                                            \
        }                                                                      \
        p = start + (w->field_end - base);

#define POSITION (base + (p - start))

static void walk_piece(walk *w, const uint8_t *start, const uint8_t *end) {
    const uint8_t *p = start;
    const int64_t base = w->position;
    int64_t number = 0;
    for (;;) {
        switch (w->next) {
        case LENGTH:
            if (w->count == w->expected && p < end) {
                snprintf(w->fault, sizeof w->fault, "%d records, and bytes behind them", w->count);
                w->next = NOTHING;
                return;
            }
            switch (read_number(w, &p, end, MAX_VARINT_BYTES, &number)) {
            case CUT: return;
            case BAD: return;
            case COMPLETE: break;
            }
            if (number < 0) {
                bad(w, "a length of %lld", number);
                return;
            }
            w->record_end = POSITION + number;
            __attribute__((fallthrough));
        case ATTRIBUTES: /* unused, whatever they are */
            if (p == end) {
                w->next = ATTRIBUTES;
                return;
            }
            p++;
            __attribute__((fallthrough));
        NUMBER(TIMESTAMP, MAX_VARLONG_BYTES, &number)
            w->timestamp = (int64_t)((uint64_t)w->base_timestamp + (uint64_t)number); /* wraps, as in Java */
            __attribute__((fallthrough));
        NUMBER(OFFSET, MAX_VARINT_BYTES, &w->offset_delta)
            if (w->is_consecutive && w->offset_delta != w->count) {
                bad(w, "its offset delta is %lld", w->offset_delta);
                return;
            }
            __attribute__((fallthrough));
        NUMBER(KEY_LENGTH, MAX_VARINT_BYTES, &number)
            w->has_key = number >= 0;
            BYTES(KEY, number, "a key")
            __attribute__((fallthrough));
        NUMBER(VALUE_LENGTH, MAX_VARINT_BYTES, &number)
            BYTES(VALUE, number, "a value")
            __attribute__((fallthrough));
        NUMBER(HEADER_COUNT, MAX_VARINT_BYTES, &w->headers_left)
            if (w->headers_left < 0 || w->headers_left > (w->record_end - POSITION) / 2) { /* two bytes at least */
                bad(w, "%lld headers", w->headers_left);
                return;
            }
            while (w->headers_left > 0) {
        NUMBER(HEADER_KEY_LENGTH, MAX_VARINT_BYTES, &number)
                if (number < 0) {
                    bad(w, "a header without a key", 0);
                    return;
                }
                BYTES(HEADER_KEY, number, "a header key")
                __attribute__((fallthrough));
        NUMBER(HEADER_VALUE_LENGTH, MAX_VARINT_BYTES, &number)
                BYTES(HEADER_VALUE, number, "a header value")
                w->headers_left--;
            }
            if (POSITION != w->record_end) {
                bad(w, "its fields are shorter than its length", 0);
                return;
            }
            if (record_over(w) == BAD) return;
            continue;
        case NOTHING:
            return;
        }
    }
}

static PyObject *raise_fault(walk *w) {
    PyErr_SetString(PyExc_ValueError, w->fault);
    return NULL;
}

static PyObject *walk_feed(PyObject *self, PyObject *data) {
    walk *w = (walk *)self;
    Py_buffer view;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0) return NULL;
    walk_piece(w, view.buf, (const uint8_t *)view.buf + view.len);
    w->position += view.len;
    PyBuffer_Release(&view);
    if (w->next == NOTHING) return raise_fault(w);
    Py_RETURN_NONE;
}

static PyObject *walk_finish(PyObject *self, PyObject *Py_UNUSED(none)) {
    walk *w = (walk *)self;
    if (w->next == NOTHING) return raise_fault(w);
    if (w->next != LENGTH || w->varint_bytes > 0)
        return PyErr_Format(PyExc_ValueError, "the payload ends within record %d", w->count);
    if (w->count != w->expected)
        return PyErr_Format(PyExc_ValueError, "%d records instead of %d", w->count, w->expected);
    Py_RETURN_NONE;
}

static PyObject *walk_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"count",    "base_timestamp_ms", "is_consecutive", "needs_keys", "earliest_ms",
                            "latest_ms", "from_delta",       "wanted_ms",      NULL};
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    walk *w = (walk *)alloc(type, 0); /* zeroed */
    if (w == NULL) return NULL;
    w->is_consecutive = 1;
    w->earliest = INT64_MIN;
    w->latest = w->wanted = INT64_MAX;
    w->from_delta = INT64_MIN;
    w->max_timestamp = w->max_timestamp_delta = -1;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "iL|ppLLLL", names, &w->expected, &w->base_timestamp,
                                     &w->is_consecutive, &w->needs_keys, &w->earliest, &w->latest, &w->from_delta,
                                     &w->wanted)) {
        Py_DECREF(w);
        return NULL;
    }
    return (PyObject *)w;
}

static void walk_dealloc(PyObject *self) {
    walk *w = (walk *)self;
    PyTypeObject *type = Py_TYPE(self);
    free(w->keyless.items);
    free(w->misdated.items);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyObject *list_of(const struct names *names) {
    PyObject *list = PyList_New(names->count);
    for (int32_t i = 0; list != NULL && i < names->count; i++) {
        PyObject *item = Py_BuildValue("(iL)", (int)names->items[i].index, names->items[i].timestamp);
        if (item == NULL || PyList_SetItem(list, i, item) < 0) Py_CLEAR(list);
    }
    return list;
}

static PyObject *walk_keyless(PyObject *self, void *Py_UNUSED(closure)) { return list_of(&((walk *)self)->keyless); }
static PyObject *walk_misdated(PyObject *self, void *Py_UNUSED(closure)) { return list_of(&((walk *)self)->misdated); }

static PyObject *walk_found(PyObject *self, void *Py_UNUSED(closure)) {
    walk *w = (walk *)self;
    if (!w->is_found) Py_RETURN_NONE;
    return Py_BuildValue("(LL)", (long long)w->found_delta, (long long)w->found_timestamp);
}

static PyMethodDef methods[] = {
    {"feed", walk_feed, METH_O, NULL},
    {"finish", walk_finish, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef members[] = {
    {"count", T_INT, offsetof(walk, count), READONLY, NULL},
    {"max_timestamp_ms", T_LONGLONG, offsetof(walk, max_timestamp), READONLY, NULL},
    {"max_timestamp_delta", T_LONGLONG, offsetof(walk, max_timestamp_delta), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef getters[] = {
    {"keyless", walk_keyless, NULL, NULL, NULL},
    {"misdated", walk_misdated, NULL, NULL, NULL},
    {"found", walk_found, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, walk_new},     {Py_tp_dealloc, walk_dealloc}, {Py_tp_methods, methods},
    {Py_tp_members, members},  {Py_tp_getset, getters},       {0, NULL},
};

static PyType_Spec spec = {
    .name = "protocol.records._native.Walk",
    .basicsize = sizeof(walk),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = slots,
};

int add_walk(PyObject *module) {
    PyObject *type = PyType_FromModuleAndSpec(module, &spec, NULL);
    if (type == NULL) return -1;
    int added = PyModule_AddType(module, (PyTypeObject *)type);
    Py_DECREF(type);
    return added;
}
