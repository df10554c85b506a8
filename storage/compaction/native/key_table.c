/* The newest offset of each key. A key is known by its digest under a key of the table's own, which nobody else knows. */
#include "native.h"

#include <stdlib.h>
#include <unistd.h>

bool check_offsets(const struct batch *batch) {
    if (batch->base_offset >= 0 && batch->base_offset < INT64_MAX - INT32_MAX - FIRST_OFFSET) return true;
    PyErr_SetString(PyExc_OverflowError, "an offset that no log reaches");
    return false;
}

/* How many records have a key. -1: the payload is malformed. */
static int64_t count_keys(const struct batch *batch) {
    struct scan scan = scan_of(&batch->payload, batch->record_count, batch->last_offset_delta);
    struct record record;
    int64_t count = 0;
    for (;;) {
        switch (next_record(&scan, &record)) {
        case RECORD: count += record.key != NULL; break;
        case OVER: return count;
        case BAD: return -1;
        }
    }
}

/* Takes out the keys that were being added by the first records, up to `end`. */
static void take_back(key_table *table, const struct batch *batch, const uint8_t *end) {
    struct scan scan = scan_of(&batch->payload, batch->record_count, batch->last_offset_delta);
    struct record record;
    while (scan.at < end && next_record(&scan, &record) == RECORD) {
        if (record.key == NULL) continue;
        const struct digest digest = siphash_128(table->hash_key, record.key, record.key_bytes);
        struct slot *slot = find_slot(&table->slots, &digest);
        if (slot->state == BEING_ADDED) empty_slot(&table->slots, slot);
    }
}

/* Makes room for all keys of a batch that may be too many. False: there is no room, and the table is as it was. */
static bool reserve(key_table *table, const struct batch *batch) {
    struct scan scan = scan_of(&batch->payload, batch->record_count, batch->last_offset_delta);
    struct record record;
    while (next_record(&scan, &record) == RECORD) {
        if (record.key == NULL) continue;
        const struct digest digest = siphash_128(table->hash_key, record.key, record.key_bytes);
        struct slot *slot = find_slot(&table->slots, &digest);
        if (slot->state != FREE) continue;
        if (table->slots.used == table->capacity) {
            take_back(table, batch, record.start);
            return false;
        }
        fill_slot(&table->slots, slot, &digest, BEING_ADDED);
    }
    return true;
}

/* There is room. */
static void insert_all(key_table *table, const struct batch *batch) {
    struct scan scan = scan_of(&batch->payload, batch->record_count, batch->last_offset_delta);
    struct digest digests[LOOKED_UP_TOGETHER];
    uint64_t states[LOOKED_UP_TOGETHER];
    struct record record;
    enum next next = RECORD;
    while (next == RECORD) {
        int count = 0;
        while (count < LOOKED_UP_TOGETHER && (next = next_record(&scan, &record)) == RECORD) {
            if (record.key == NULL) continue;
            digests[count] = siphash_128(table->hash_key, record.key, record.key_bytes);
            states[count] = (uint64_t)(batch->base_offset + record.offset_delta) + FIRST_OFFSET;
            prefetch_slot(&table->slots, &digests[count++]);
        }
        for (int i = 0; i < count; i++) {
            struct slot *slot = find_slot(&table->slots, &digests[i]);
            if (slot->state == FREE)
                fill_slot(&table->slots, slot, &digests[i], states[i]);
            else
                slot->state = states[i];
        }
    }
}

/* KeyTable.add(payload, count, last offset delta, base offset) -> whether it fits */
static PyObject *table_add(PyObject *self, PyObject *args) {
    key_table *table = (key_table *)self;
    struct batch batch;
    long long base_offset;
    if (!PyArg_ParseTuple(args, "y*iiL", &batch.payload, &batch.record_count, &batch.last_offset_delta, &base_offset))
        return NULL;
    batch.base_offset = base_offset;
    PyObject *result = NULL;
    if (check_offsets(&batch)) {
        const int64_t key_count = count_keys(&batch);
        if (key_count < 0) {
            raise_malformed();
        } else if ((uint64_t)key_count <= table->capacity - table->slots.used || reserve(table, &batch)) {
            insert_all(table, &batch);
            result = Py_NewRef(Py_True);
        } else {
            result = Py_NewRef(Py_False);
        }
    }
    PyBuffer_Release(&batch.payload);
    return result;
}

/* KeyTable.is_superseded(key, offset) */
static PyObject *table_is_superseded(PyObject *self, PyObject *args) {
    key_table *table = (key_table *)self;
    Py_buffer key;
    long long offset;
    if (!PyArg_ParseTuple(args, "y*L", &key, &offset)) return NULL;
    const struct digest digest = siphash_128(table->hash_key, key.buf, (size_t)key.len);
    PyBuffer_Release(&key);
    const struct slot *slot = find_slot(&table->slots, &digest);
    return PyBool_FromLong(slot->state != FREE && (int64_t)(slot->state - FIRST_OFFSET) > offset);
}

static Py_ssize_t table_len(PyObject *self) { return (Py_ssize_t)((key_table *)self)->slots.used; }

static PyObject *table_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs)) {
    unsigned long long capacity;
    if (!PyArg_ParseTuple(args, "K", &capacity)) return NULL;
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    key_table *table = (key_table *)alloc(type, 0); /* zeroed */
    if (table == NULL) return NULL;
    /* No digest shows outside, so whatever this key is, a table does the same. */
    if (getentropy(table->hash_key, sizeof table->hash_key) != 0) {
        Py_DECREF(table);
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    table->capacity = capacity;
    /* Nine slots of ten may be filled (capacity_of in key_map.py), and one stays free in the smallest table. */
    if (capacity > UINT64_MAX / 16 || !make_slots(&table->slots, capacity + (capacity < 9 ? 1 : capacity / 9))) {
        Py_DECREF(table);
        return PyErr_NoMemory();
    }
    return (PyObject *)table;
}

static void table_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    free(((key_table *)self)->slots.all);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"add", table_add, METH_VARARGS, NULL},
    {"is_superseded", table_is_superseded, METH_VARARGS, NULL},
    {"split", table_split, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot type_slots[] = {
    {Py_tp_new, table_new},   {Py_tp_dealloc, table_dealloc}, {Py_tp_methods, methods},
    {Py_mp_length, table_len}, {0, NULL},
};

static PyType_Spec spec = {
    .name = "storage.compaction._native.KeyTable",
    .basicsize = sizeof(key_table),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = type_slots,
};

int add_key_table(PyObject *module) {
    PyObject *type = PyType_FromModuleAndSpec(module, &spec, NULL);
    if (type == NULL) return -1;
    int added = PyModule_AddType(module, (PyTypeObject *)type);
    Py_DECREF(type);
    return added;
}
