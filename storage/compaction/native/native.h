/* The module _native of storage/compaction: what is done for each record of a pass. storage/compaction/key_table.py tells
 * what it does, and table_twin.py does the same in Python.
 *
 * Only the stable ABI of Python 3.11 is used, so that one build serves all later versions.
 */
#ifndef VARVE_COMPACTION_NATIVE_H
#define VARVE_COMPACTION_NATIVE_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include <stdbool.h>
#include <stdint.h>

/* -- records.c */

struct record {
    const uint8_t *start, *end;
    const uint8_t *behind_timestamp;
    uint64_t timestamp_delta; /* modulo 2^64, as Java has it */
    int64_t offset_delta;
    const uint8_t *key; /* NULL: none */
    size_t key_bytes;
    bool is_null; /* the value */
};

/* Where a scan of a payload is. */
struct scan {
    const uint8_t *at, *end;
    int64_t records_left, previous_delta, last_delta;
};

enum next { RECORD, OVER, BAD };

struct scan scan_of(const Py_buffer *payload, int record_count, int last_offset_delta);
/* The next record. BAD: the payload does not hold exactly the records that the header promises. */
enum next next_record(struct scan *scan, struct record *record);
/* rebased(payload, shift_ms) -> bytes */
PyObject *rebased(PyObject *module, PyObject *args);
/* NULL, with ValueError. */
PyObject *raise_malformed(void);

/* -- siphash.c */

struct digest {
    uint64_t words[2];
};

struct digest siphash_128(const uint64_t hash_key[2], const uint8_t *data, size_t size);
/* siphash(hash key, data) -> 16 bytes */
PyObject *siphash(PyObject *module, PyObject *args);

/* -- slots.c */

/* Zeros: the slot is free. */
struct slot {
    struct digest digest;
    uint64_t state; /* FREE, BEING_ADDED, or an offset + FIRST_OFFSET. The highest bit: see `grow` */
};

#define FREE 0
#define BEING_ADDED 1
#define FIRST_OFFSET 2

struct slots {
    struct slot *all;
    uint64_t room;   /* how many there are */
    uint64_t active; /* how many of them are in use: a part of the memory that nobody touched takes none */
    uint64_t used;   /* how many of them are not free. Less than `active` */
};

bool make_slots(struct slots *slots, uint64_t room);
/* The slot of this digest, or the free one that it would get. */
struct slot *find_slot(const struct slots *slots, const struct digest *digest);
/* Fills the free slot that `find_slot` gave. */
void fill_slot(struct slots *slots, struct slot *slot, const struct digest *digest, uint64_t state);
void empty_slot(struct slots *slots, struct slot *slot);
void prefetch_slot(const struct slots *slots, const struct digest *digest);

/* -- key_table.c and split.c */

typedef struct {
    PyObject_HEAD
    uint64_t hash_key[2];
    uint64_t capacity;
    struct slots slots;
} key_table;

/* So many records are looked up together: the memory of their slots is fetched meanwhile. */
#define LOOKED_UP_TOGETHER 32

/* What a method is told of a batch. */
struct batch {
    Py_buffer payload;
    int record_count, last_offset_delta;
    int64_t base_offset;
};

/* False, with an exception. */
bool check_offsets(const struct batch *batch);
/* KeyTable.split(payload, count, last offset delta, base offset, base timestamp, whether tombstones go) */
PyObject *table_split(PyObject *self, PyObject *args);

int add_key_table(PyObject *module);

#endif
