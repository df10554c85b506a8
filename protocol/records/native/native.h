/* The module _native: work on record batches that is too slow in Python. Each part has a file and a twin in Python.
 *
 * Only the stable ABI of Python 3.11 is used, so that one build serves all later versions.
 */
#ifndef VARVE_NATIVE_H
#define VARVE_NATIVE_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

int add_walk(PyObject *module);
int add_unsnap(PyObject *module);

#endif
