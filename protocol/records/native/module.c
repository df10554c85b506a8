#include "native.h"

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, add_walk},
    {Py_mod_exec, add_unsnap},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_native",
    .m_doc = "Work on record batches that is too slow in Python.",
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__native(void) { return PyModuleDef_Init(&definition); }
