#include "native.h"

static PyMethodDef functions[] = {
    {"rebased", rebased, METH_VARARGS, NULL},
    {"siphash", siphash, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, add_key_table},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_native",
    .m_doc = "What compaction does for each record.",
    .m_methods = functions,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__native(void) { return PyModuleDef_Init(&definition); }
