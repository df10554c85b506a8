/* SipHash-2-4 with 128 bits of output (Aumasson and Bernstein, "SipHash: a fast short-input PRF"): a function of a secret
 * key that nobody can tell from a random one. Words are little-endian.
 */
#include "native.h"

#include <string.h>

static inline uint64_t rotated(uint64_t word, int bits) { return word << bits | word >> (64 - bits); }

static inline uint64_t word_at(const uint8_t *data) {
    uint64_t word;
    memcpy(&word, data, sizeof word);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    return word;
}

static inline void mix(uint64_t v[4], int rounds) {
    for (; rounds > 0; rounds--) {
        v[0] += v[1];
        v[2] += v[3];
        v[1] = rotated(v[1], 13) ^ v[0];
        v[3] = rotated(v[3], 16) ^ v[2];
        v[0] = rotated(v[0], 32);
        v[2] += v[1];
        v[0] += v[3];
        v[1] = rotated(v[1], 17) ^ v[2];
        v[3] = rotated(v[3], 21) ^ v[0];
        v[2] = rotated(v[2], 32);
    }
}

static inline void take_word(uint64_t v[4], uint64_t word) {
    v[3] ^= word;
    mix(v, 2);
    v[0] ^= word;
}

struct digest siphash_128(const uint64_t hash_key[2], const uint8_t *data, size_t size) {
    /* "somepseudorandomlygeneratedbytes" */
    uint64_t v[4] = {
        hash_key[0] ^ 0x736f6d6570736575,
        hash_key[1] ^ 0x646f72616e646f6d ^ 0xee,
        hash_key[0] ^ 0x6c7967656e657261,
        hash_key[1] ^ 0x7465646279746573,
    };
    const uint8_t *tail = data + size / 8 * 8;
    for (; data < tail; data += 8) take_word(v, word_at(data));
    uint64_t last = (uint64_t)size << 56;
    for (size_t i = 0; i < size % 8; i++) last |= (uint64_t)tail[i] << 8 * i;
    take_word(v, last);
    struct digest digest;
    v[2] ^= 0xee;
    mix(v, 4);
    digest.words[0] = v[0] ^ v[1] ^ v[2] ^ v[3];
    v[1] ^= 0xdd;
    mix(v, 4);
    digest.words[1] = v[0] ^ v[1] ^ v[2] ^ v[3];
    return digest;
}

PyObject *siphash(PyObject *Py_UNUSED(module), PyObject *args) {
    Py_buffer hash_key, data;
    if (!PyArg_ParseTuple(args, "y*y*", &hash_key, &data)) return NULL;
    PyObject *result = NULL;
    if (hash_key.len != 16) {
        PyErr_SetString(PyExc_ValueError, "the key of the hash has 16 bytes");
    } else {
        const uint8_t *key = hash_key.buf;
        const struct digest digest =
            siphash_128((const uint64_t[2]){word_at(key), word_at(key + 8)}, data.buf, (size_t)data.len);
        uint8_t bytes[16];
        for (int i = 0; i < 16; i++) bytes[i] = (uint8_t)(digest.words[i / 8] >> i % 8 * 8);
        result = PyBytes_FromStringAndSize((const char *)bytes, sizeof bytes);
    }
    PyBuffer_Release(&hash_key);
    PyBuffer_Release(&data);
    return result;
}
