/* The records of a payload as compaction sees them. scan.py does the same in Python, and both refuse the same payloads.
 *
 *     length varint | attributes int8 | timestampDelta varlong | offsetDelta varint | keyLength varint | key |
 *     valueLength varint | value | headerCount varint | headers
 *
 * Headers are not looked at. Nothing is read beyond the end of a record, which was compared with the end of the payload.
 */
#include "native.h"

#include <string.h>

#define MAX_VARINT_BYTES 10

/* A signed number in up to ten bytes, modulo 2^64. `is_large`: it has more than 64 bits. False: it is cut short, or longer. */
static bool take_long_number(const uint8_t **at, const uint8_t *end, uint64_t *value, bool *is_large) {
    const uint8_t *p = *at;
    uint64_t rest = 0, highest = 0;
    for (int i = 0; i < MAX_VARINT_BYTES && p + i < end; i++) {
        const uint64_t bits = p[i] & 0x7F;
        rest |= bits << 7 * i;
        if (i == MAX_VARINT_BYTES - 1) highest = bits >> 1; /* beyond 64 bits */
        if (p[i] < 0x80) {
            *at = p + i + 1;
            *value = (rest >> 1 | highest << 63) ^ -(rest & 1);
            *is_large = highest != 0;
            return true;
        }
    }
    return false;
}

static inline bool take_timestamp(const uint8_t **at, const uint8_t *end, uint64_t *value) {
    const uint8_t *p = *at;
    bool is_large;
    if (p < end && *p < 0x80) {
        *value = (uint64_t)(*p >> 1) ^ -(uint64_t)(*p & 1);
        *at = p + 1;
        return true;
    }
    return take_long_number(at, end, value, &is_large);
}

/* A number of more than 64 bits is never right where one is taken with this. */
static inline bool take_number(const uint8_t **at, const uint8_t *end, int64_t *value) {
    const uint8_t *p = *at;
    uint64_t number;
    if (p < end && *p < 0x80) {
        *value = (int64_t)(*p >> 1) ^ -(int64_t)(*p & 1);
        *at = p + 1;
        return true;
    }
    if (end - p >= 2 && p[1] < 0x80) {
        const int64_t rest = (p[0] & 0x7F) | p[1] << 7;
        *value = rest >> 1 ^ -(rest & 1);
        *at = p + 2;
        return true;
    }
    bool is_large = false;
    if (!take_long_number(at, end, &number, &is_large) || is_large) return false;
    *value = (int64_t)number;
    return true;
}

struct scan scan_of(const Py_buffer *payload, int record_count, int last_offset_delta) {
    const uint8_t *start = payload->buf;
    return (struct scan){start, start + payload->len, record_count, -1, last_offset_delta};
}

enum next next_record(struct scan *scan, struct record *record) {
    if (scan->records_left <= 0) return scan->at == scan->end ? OVER : BAD;
    const uint8_t *at = scan->at;
    int64_t length, key_bytes, value_bytes;
    record->start = at;
    if (!take_number(&at, scan->end, &length) || length < 1 || length > scan->end - at) return BAD;
    const uint8_t *end = record->end = at + length;
    at++; /* The attributes of a record are unused. */
    if (!take_timestamp(&at, end, &record->timestamp_delta)) return BAD;
    record->behind_timestamp = at;
    if (!take_number(&at, end, &record->offset_delta)) return BAD;
    if (record->offset_delta <= scan->previous_delta || record->offset_delta > scan->last_delta) return BAD;
    if (!take_number(&at, end, &key_bytes) || key_bytes < -1 || key_bytes > end - at) return BAD;
    record->key = key_bytes < 0 ? NULL : at;
    record->key_bytes = key_bytes < 0 ? 0 : (size_t)key_bytes;
    at += record->key_bytes;
    if (!take_number(&at, end, &value_bytes) || value_bytes < -1) return BAD;
    record->is_null = value_bytes < 0;
    /* At least the count of the headers is behind the value. */
    if ((record->is_null ? 0 : value_bytes) >= end - at) return BAD;
    scan->previous_delta = record->offset_delta;
    scan->records_left--;
    scan->at = end;
    return RECORD;
}

PyObject *raise_malformed(void) {
    PyErr_SetString(PyExc_ValueError, "a malformed payload");
    return NULL;
}

static size_t number_bytes(uint64_t zigzag) {
    size_t size = 1;
    for (; zigzag >= 0x80; zigzag >>= 7) size++;
    return size;
}

static uint8_t *put_number(uint8_t *to, uint64_t zigzag) {
    for (; zigzag >= 0x80; zigzag >>= 7) *to++ = (uint8_t)(zigzag | 0x80);
    *to++ = (uint8_t)zigzag;
    return to;
}

static uint64_t zigzag_of(uint64_t number) { return number << 1 ^ -(number >> 63); }

/* The next record with another timestamp delta. Without `to` only its size counts. False: it is malformed. */
static bool rebase(const uint8_t **at, const uint8_t *end, uint64_t shift, size_t *size, uint8_t **to) {
    int64_t length;
    uint64_t timestamp;
    if (!take_number(at, end, &length) || length < 1 || length > end - *at) return false;
    const uint8_t *record_end = *at + length;
    const uint8_t attributes = *(*at)++;
    if (!take_timestamp(at, record_end, &timestamp)) return false;
    const uint64_t changed = zigzag_of(timestamp + shift);
    const size_t rest_bytes = (size_t)(record_end - *at);
    const size_t body_bytes = 1 + number_bytes(changed) + rest_bytes;
    *size += number_bytes((uint64_t)body_bytes << 1) + body_bytes;
    if (to != NULL) {
        *to = put_number(*to, (uint64_t)body_bytes << 1);
        *(*to)++ = attributes;
        *to = put_number(*to, changed);
        memcpy(*to, *at, rest_bytes);
        *to += rest_bytes;
    }
    *at = record_end;
    return true;
}

static PyObject *rebased_payload(const uint8_t *start, const uint8_t *end, uint64_t shift) {
    size_t size = 0;
    for (const uint8_t *at = start; at < end;)
        if (!rebase(&at, end, shift, &size, NULL)) return raise_malformed();
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    if (bytes == NULL) return NULL;
    uint8_t *to = (uint8_t *)PyBytes_AsString(bytes);
    for (const uint8_t *at = start; at < end;) rebase(&at, end, shift, &size, &to);
    return bytes;
}

PyObject *rebased(PyObject *Py_UNUSED(module), PyObject *args) {
    Py_buffer payload;
    long long shift;
    if (!PyArg_ParseTuple(args, "y*L", &payload, &shift)) return NULL;
    const uint8_t *start = payload.buf;
    PyObject *result = rebased_payload(start, start + payload.len, (uint64_t)shift);
    PyBuffer_Release(&payload);
    return result;
}
