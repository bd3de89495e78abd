/* The functions of _deliveries.c for _appending.c, whose module has the types. */
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

/* Create the types, store them in the module's state, which begins with a DeliveryTypes, and add the named types to the
 * module. */
int add_delivery_types(PyObject *module);
/* Exclude a complete delivery from garbage collection if possible; see _deliveries.c. */
void leave_to_counting(Delivery *self);

/* Functions of all types of the module. The types are created from specs, so an instance holds its type. */
void free_instance(PyObject *self);
/* A type's __class_getitem__, which only type checkers use. */
PyObject *generic(PyObject *type, PyObject *item);
/* Create a type from a spec, add it to the module if it has a name there, and return a new reference. */
PyTypeObject *add_type(PyObject *module, PyType_Spec *spec, int has_name);

#endif
