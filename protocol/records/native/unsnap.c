/* Decompresses a block of raw snappy in steps (protocol/records/decompression.py). The library does it in one call, which
 * takes 12 ms for the 22 MB that a megabyte can hold.
 *
 * After the size of the output, a block is a sequence of elements (format_description.txt of google/snappy). The lowest two
 * bits of an element's first byte are its kind, the others the length:
 *
 *     0  literal: length - 1 in six bits; 60 to 63: in the next one to four bytes. The bytes follow
 *     1  copy: length - 4 in three bits, the offset in the three above and the next byte
 *     2  copy: length - 1 in six bits, the offset in the next two bytes
 *     3  copy: the same, with four bytes
 *
 * A copy repeats what lies `offset` bytes back in the output. It may overlap what it writes.
 */
#include "native.h"

#include <string.h>

static uint32_t little_endian(const uint8_t *p, int size) {
    uint32_t value = 0;
    for (int i = 0; i < size; i++) value |= (uint32_t)p[i] << 8 * i;
    return value;
}

/* Takes elements until the output has reached `until`. NULL, or what is wrong. */
static const char *take_elements(const uint8_t *block, size_t block_size, size_t *pos, uint8_t *out, size_t out_size,
                                 size_t *out_pos, size_t until) {
    size_t from = *pos, to = *out_pos;
    while (from < block_size && to < until) {
        const uint8_t tag = block[from++];
        size_t length = tag >> 2;
        const int kind = tag & 3;
        int more = kind == 0 ? (length < 60 ? 0 : (int)length - 59) : kind == 3 ? 4 : kind;
        if ((size_t)more > block_size - from) return "an element is cut short";
        uint32_t number = little_endian(block + from, more);
        from += (size_t)more;
        if (kind == 0) {
            length = (more ? (size_t)number : length) + 1;
            if (length > block_size - from) return "a literal is cut short";
            if (length > out_size - to) return "more output than declared";
            memcpy(out + to, block + from, length);
            from += length;
        } else {
            size_t offset = number;
            if (kind == 1) {
                offset |= (length >> 3) << 8;
                length = (length & 7) + 4;
            } else {
                length += 1;
            }
            if (offset == 0 || offset > to) return "a copy from before the beginning";
            if (length > out_size - to) return "more output than declared";
            /* What was just written is part of what is repeated: each round copies twice as much. */
            size_t rest = length;
            for (uint8_t *end = out + to; rest > offset; end += offset / 2) {
                memcpy(end, end - offset, offset);
                rest -= offset;
                offset *= 2;
            }
            memcpy(out + to + length - rest, out + to + length - rest - offset, rest);
        }
        to += length;
    }
    *pos = from;
    *out_pos = to;
    return NULL;
}

/* unsnap(block, position, output, output position, until) -> (position, output position) */
static PyObject *unsnap(PyObject *Py_UNUSED(module), PyObject *args) {
    Py_buffer block, out;
    Py_ssize_t pos, out_pos, until;
    if (!PyArg_ParseTuple(args, "y*nw*nn", &block, &pos, &out, &out_pos, &until)) return NULL;
    PyObject *result = NULL;
    if (pos < 0 || pos > block.len || out_pos < 0 || out_pos > out.len || until < 0) {
        PyErr_SetString(PyExc_IndexError, "a position outside its buffer");
    } else {
        size_t from = (size_t)pos, to = (size_t)out_pos;
        const char *fault =
            take_elements(block.buf, (size_t)block.len, &from, out.buf, (size_t)out.len, &to, (size_t)until);
        if (fault != NULL)
            PyErr_SetString(PyExc_ValueError, fault);
        else
            result = Py_BuildValue("nn", (Py_ssize_t)from, (Py_ssize_t)to);
    }
    PyBuffer_Release(&block);
    PyBuffer_Release(&out);
    return result;
}

/* unfilled_bytearray(size): the kernel gives its pages when they are written, not before. */
static PyObject *unfilled_bytearray(PyObject *Py_UNUSED(module), PyObject *size) {
    Py_ssize_t bytes = PyLong_AsSsize_t(size);
    if (bytes == -1 && PyErr_Occurred()) return NULL;
    return PyByteArray_FromStringAndSize(NULL, bytes);
}

static PyMethodDef functions[] = {
    {"unfilled_bytearray", unfilled_bytearray, METH_O, NULL},
    {"unsnap", unsnap, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

int add_unsnap(PyObject *module) { return PyModule_AddFunctions(module, functions); }
