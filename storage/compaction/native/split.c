/* Which records of a batch stay, and their bytes. */
#include "native.h"

#include <string.h>

/* What is kept of a payload. A run of neighbours is copied as one, and nothing is copied if all records stay. */
struct kept {
    const uint8_t *run_start, *run_end;
    PyObject *copied; /* a bytearray that has room for the whole payload; NULL: no run has ended */
    size_t copied_bytes;
};

struct split {
    int kept_count, superseded_count, keyless_count, expired_count, tombstone_count;
    long long tombstone_bytes, max_timestamp;
    struct kept kept;
};

/* False, with MemoryError. */
static bool copy_run(struct kept *kept, size_t room_bytes) {
    if (kept->copied == NULL) {
        kept->copied = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)room_bytes);
        if (kept->copied == NULL) return false;
    }
    const size_t run_bytes = (size_t)(kept->run_end - kept->run_start);
    memcpy(PyByteArray_AsString(kept->copied) + kept->copied_bytes, kept->run_start, run_bytes);
    kept->copied_bytes += run_bytes;
    return true;
}

static bool keep(struct split *split, const struct record *record, size_t room_bytes, uint64_t base_timestamp) {
    struct kept *kept = &split->kept;
    const int64_t timestamp = (int64_t)(base_timestamp + record->timestamp_delta);
    if (timestamp > split->max_timestamp) split->max_timestamp = timestamp;
    split->kept_count++;
    if (record->start != kept->run_end) {
        if (kept->run_end != NULL && !copy_run(kept, room_bytes)) return false;
        kept->run_start = record->start;
    }
    kept->run_end = record->end;
    return true;
}

/* False, with an exception. */
static bool split_records(key_table *table, const struct batch *batch, uint64_t base_timestamp, bool tombstones_go,
                          struct split *split) {
    const size_t room_bytes = (size_t)batch->payload.len;
    struct scan scan = scan_of(&batch->payload, batch->record_count, batch->last_offset_delta);
    struct record records[LOOKED_UP_TOGETHER];
    struct digest digests[LOOKED_UP_TOGETHER];
    enum next next = RECORD;
    while (next == RECORD) {
        int count = 0;
        while (count < LOOKED_UP_TOGETHER && (next = next_record(&scan, &records[count])) == RECORD) {
            if (records[count].key == NULL) {
                split->keyless_count++;
                continue;
            }
            digests[count] = siphash_128(table->hash_key, records[count].key, records[count].key_bytes);
            prefetch_slot(&table->slots, &digests[count++]);
        }
        for (int i = 0; i < count; i++) {
            const struct record *record = &records[i];
            const uint64_t state = (uint64_t)(batch->base_offset + record->offset_delta) + FIRST_OFFSET;
            if (find_slot(&table->slots, &digests[i])->state > state) {
                split->superseded_count++;
                continue;
            }
            if (record->is_null && tombstones_go) {
                split->expired_count++;
                continue;
            }
            if (record->is_null) {
                split->tombstone_count++;
                split->tombstone_bytes += record->end - record->start;
            }
            if (!keep(split, record, room_bytes, base_timestamp)) return false;
        }
    }
    if (next == BAD) raise_malformed();
    return next == OVER;
}

/* The bytes of the records that stay: the payload itself if all do. */
static PyObject *kept_payload(struct split *split, const struct batch *batch, PyObject *payload) {
    struct kept *kept = &split->kept;
    if (split->kept_count == batch->record_count) return Py_NewRef(payload);
    if (split->kept_count == 0) return PyBytes_FromStringAndSize(NULL, 0);
    if (kept->copied == NULL)
        return PyBytes_FromStringAndSize((const char *)kept->run_start, kept->run_end - kept->run_start);
    if (!copy_run(kept, 0) || PyByteArray_Resize(kept->copied, (Py_ssize_t)kept->copied_bytes) < 0) return NULL;
    return Py_NewRef(kept->copied);
}

PyObject *table_split(PyObject *self, PyObject *args) {
    struct batch batch;
    long long base_offset, base_timestamp;
    int tombstones_go;
    if (!PyArg_ParseTuple(args, "y*iiLLp", &batch.payload, &batch.record_count, &batch.last_offset_delta, &base_offset,
                          &base_timestamp, &tombstones_go))
        return NULL;
    batch.base_offset = base_offset;
    struct split split = {.max_timestamp = INT64_MIN};
    PyObject *payload = NULL, *result = NULL;
    if (check_offsets(&batch) &&
        split_records((key_table *)self, &batch, (uint64_t)base_timestamp, tombstones_go, &split))
        payload = kept_payload(&split, &batch, PyTuple_GetItem(args, 0));
    if (payload != NULL)
        result = Py_BuildValue("iNLiiiiL", split.kept_count, payload, split.max_timestamp, split.superseded_count,
                               split.keyless_count, split.expired_count, split.tombstone_count, split.tombstone_bytes);
    Py_XDECREF(split.kept.copied);
    PyBuffer_Release(&batch.payload);
    return result;
}
