/* Calls that hand their arguments over: once the callee's frame has them, the caller holds them no more.
 *
 * The interpreter's own calls of Python functions do that, but not while an evaluation function is installed: then the
 * caller's stack keeps the arguments until the call returns, and an object would outlive the variable that the callee
 * deletes or binds again. Rewritten frames and continuations therefore call continuations, which are the same frame to
 * the user, through `go_on`.
 *
 * A continuation that breaks returns a Next, the call to go on with, which `go_on` makes: a loop with a break inside
 * does not nest deeper with every turn.
 */
#include "hook.h"

/* --- Next --------------------------------------------------------------------------------------------------------- */

typedef struct {
    PyObject_VAR_HEAD
    PyObject *items[]; /* the function, then its arguments */
} Next;

static PyObject *next_new(PyObject *type, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Py_ssize_t n = PyVectorcall_NARGS(nargsf);
    if (n < 1 || kwnames != NULL) {
        PyErr_SetString(PyExc_TypeError, "Next(function, *args) takes a function");
        return NULL;
    }
    Next *self = PyObject_NewVar(Next, (PyTypeObject *)type, n);
    if (self == NULL) {
        return NULL;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        self->items[i] = Py_NewRef(args[i]);
    }
    return (PyObject *)self;
}

static void next_dealloc(Next *self)
{
    for (Py_ssize_t i = 0; i < Py_SIZE(self); i++) {
        Py_CLEAR(self->items[i]);
    }
    PyObject_Free(self);
}

PyTypeObject Next_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "dynamo._hook.Next",
    .tp_doc = PyDoc_STR("Next(function, *args)\n--\n\nThe call with which a continuation wants to be continued."),
    .tp_basicsize = sizeof(Next),
    .tp_itemsize = sizeof(PyObject *),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_dealloc = (destructor)next_dealloc,
    .tp_vectorcall = next_new,
};

/* --- go_on -------------------------------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
} GoOn;

/* The frame of the call that is being made has begun: what it was given is its own now. Each object that is let go of
 * here is still held by the frame, so that none dies. */
void take_given(Thread *thread, Frame *frame)
{
    Given given = thread->given;
    thread->given.code = NULL;
    PyObject **locals = frame_locals(frame);
    for (Py_ssize_t i = 0; i < given.n; i++) {
        if (given.args[i] == locals[i]) {
            given.args[i] = Py_NewRef(Py_None);
            Py_DECREF(locals[i]);
        }
    }
}

/* function(*args). The references in `args` are the caller's own; each may be exchanged for one to None. */
static PyObject *hand_over(Thread *thread, PyObject *function, PyObject **args, Py_ssize_t n)
{
    Given outer = thread->given;
    if (PyFunction_Check(function)) {
        PyCodeObject *code = (PyCodeObject *)PyFunction_GET_CODE(function);
        int positional = n <= code->co_argcount && !(code->co_flags & CO_VARARGS);
        thread->given = (Given){positional ? code : NULL, args, n};
    }
    PyObject *result = PyObject_Vectorcall(function, args, (size_t)n, NULL);
    thread->given = outer;
    return result;
}

/* go_on(function, *args). Called by CALL of code that we made, so that `args` are on its frame's stack, from which the
 * interpreter then drops whatever is there. */
static PyObject *go_on(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Thread *thread = &current_thread;
    Py_ssize_t n = PyVectorcall_NARGS(nargsf);
    if (n < 1 || kwnames != NULL) {
        PyErr_SetString(PyExc_TypeError, "go_on(function, *args) takes a function");
        return NULL;
    }
    PyObject *result = hand_over(thread, args[0], (PyObject **)args + 1, n - 1);
    while (result != NULL && Py_IS_TYPE(result, &Next_Type)) {
        Next *next = (Next *)result;
        result = hand_over(thread, next->items[0], next->items + 1, Py_SIZE(next) - 1);
        Py_DECREF(next);
    }
    return result;
}

static PyObject *go_on_repr(PyObject *self)
{
    return PyUnicode_FromString("go_on");
}

PyTypeObject GoOn_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "dynamo._hook.GoOn",
    .tp_doc = PyDoc_STR("Calls a function and the Next that it returns; the arguments are handed over."),
    .tp_basicsize = sizeof(GoOn),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_repr = go_on_repr,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(GoOn, vectorcall),
};

PyObject *make_go_on(void)
{
    GoOn *self = PyObject_New(GoOn, &GoOn_Type);
    if (self != NULL) {
        self->vectorcall = go_on;
    }
    return (PyObject *)self;
}
