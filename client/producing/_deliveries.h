/* What _deliveries.c has for _appending.c, whose module its types are part of. */
#ifndef OTTLA_DELIVERIES_H
#define OTTLA_DELIVERIES_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

typedef struct {
    PyObject_HEAD
    PyObject *batch; /* most often a Result */
    PyObject *callbacks;
    Py_ssize_t index;
    long long timestamp_ms;
    char cancelled;
    char future_blocking;
} Delivery;

typedef struct {
    PyTypeObject *delivery;
    PyTypeObject *result;
    PyTypeObject *arrived;
    PyTypeObject *metadata; /* RecordMetadata, which is Python's */
} DeliveryTypes;

/* Makes the types, keeps them in the module's state, which begins with a DeliveryTypes, and gives the module those that have
 * a name there. */
int add_delivery_types(PyObject *module);
/* Once it has all that it consists of: see there. */
void leave_to_counting(Delivery *self);

/* What all types of the module have in common. They are made from specs: an instance holds its type. */
void free_instance(PyObject *self);
/* A type's __class_getitem__, which says something to type checkers alone. */
PyObject *generic(PyObject *type, PyObject *item);
/* A new reference to a type that is made from a spec; the module has it, too, if it has a name there. */
PyTypeObject *add_type(PyObject *module, PyType_Spec *spec, int has_name);

#endif
