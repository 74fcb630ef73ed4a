/* Calls that steal their arguments: once the callee's frame has them, the caller holds them no more.
 *
 * The interpreter's own calls of Python functions do that, but not while an evaluation function is installed: then the
 * caller's stack keeps the arguments until the call returns, and an object would outlive the variable that the callee
 * deletes or binds again. Generated code therefore calls through `call_stealing_args`, and the continuation of its own
 * function through `trampoline`: that is the same frame to the user, so the calling one is not on the stack meanwhile
 * (f_back, sys._getframe, inspect.stack, the stack level of a warning).
 *
 * A continuation that breaks returns a TailCall, which the trampoline makes: a loop with a break inside does not nest
 * deeper with every turn.
 */
#include "hook.h"

/* --- TailCall ----------------------------------------------------------------------------------------------------- */

typedef struct {
    PyObject_VAR_HEAD
    PyObject *items[]; /* the function, then its arguments */
} TailCall;

static PyObject *tail_call_new(PyObject *type, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Py_ssize_t n = PyVectorcall_NARGS(nargsf);
    if (n < 1 || kwnames != NULL) {
        PyErr_SetString(PyExc_TypeError, "TailCall(function, *args) takes a function");
        return NULL;
    }
    TailCall *self = PyObject_NewVar(TailCall, (PyTypeObject *)type, n);
    if (self == NULL) {
        return NULL;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        self->items[i] = Py_NewRef(args[i]);
    }
    return (PyObject *)self;
}

static void tail_call_dealloc(TailCall *self)
{
    for (Py_ssize_t i = 0; i < Py_SIZE(self); i++) {
        Py_CLEAR(self->items[i]);
    }
    PyObject_Free(self);
}

PyTypeObject TailCall_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "dynamo._hook.TailCall",
    .tp_doc = PyDoc_STR("TailCall(function, *args)\n--\n\nThe call with which a continuation wants to be continued."),
    .tp_basicsize = sizeof(TailCall),
    .tp_itemsize = sizeof(PyObject *),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_dealloc = (destructor)tail_call_dealloc,
    .tp_vectorcall = tail_call_new,
};

/* --- frames that the user does not see ---------------------------------------------------------------------------- */

/* The globals of functions that say in Python what C functions do: as those, they have no place in tracebacks. */
static PyObject *hidden[4];

int hide_functions(PyObject *namespace)
{
    for (size_t i = 0; i < sizeof hidden / sizeof *hidden; i++) {
        if (hidden[i] == NULL) {
            hidden[i] = Py_NewRef(namespace);
            return 0;
        }
    }
    PyErr_SetString(PyExc_RuntimeError, "too many modules of hidden functions");
    return -1;
}

int is_hidden(PyObject *namespace)
{
    size_t i = 0;
    while (i < sizeof hidden / sizeof *hidden && hidden[i] != namespace) {
        i++;
    }
    return i < sizeof hidden / sizeof *hidden;
}

/* Drop the first entries of the traceback of what a hidden function raised, up to that of a frame that is not hidden. */
static void leave_hidden(void)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    while (traceback != NULL && PyTraceBack_Check(traceback)) {
        PyTracebackObject *entry = (PyTracebackObject *)traceback;
        PyObject *namespace = PyFrame_GetGlobals(entry->tb_frame);
        Py_DECREF(namespace);
        if (!is_hidden(namespace)) {
            break;
        }
        PyObject *next = Py_XNewRef((PyObject *)entry->tb_next);
        Py_SETREF(traceback, next);
    }
    if (value != NULL && PyExceptionInstance_Check(value)) {
        PyException_SetTraceback(value, traceback ? traceback : Py_None);
    }
    PyErr_Restore(type, value, traceback);
}

/* next_item(iterator): a tuple of the next item, or an empty one at the end. */
PyObject *next_item(PyObject *module, PyObject *iterator)
{
    (void)module;
    if (!PyIter_Check(iterator)) {
        return PyErr_Format(PyExc_TypeError, "'%.200s' object is not an iterator", Py_TYPE(iterator)->tp_name);
    }
    PyObject *item = PyIter_Next(iterator);
    if (item == NULL) {
        return PyErr_Occurred() ? NULL : PyTuple_New(0);
    }
    PyObject *result = PyTuple_New(1);
    if (result == NULL) {
        Py_DECREF(item);
        return NULL;
    }
    PyTuple_SET_ITEM(result, 0, item);
    return result;
}

/* --- call_stealing_args and trampoline ---------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    const char *name;
    char hides; /* the calling frame */
} StealingCall;

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
static PyObject *call_with_given(Thread *thread, PyObject *function, PyObject **args, Py_ssize_t n)
{
    Given outer = thread->given;
    if (PyFunction_Check(function)) {
        PyCodeObject *code = (PyCodeObject *)PyFunction_GET_CODE(function);
        int positional = n <= code->co_argcount && !(code->co_flags & CO_VARARGS);
        thread->given = (Given){positional ? code : NULL, args, n};
    }
    PyObject *namespace = PyFunction_Check(function) ? PyFunction_GET_GLOBALS(function) : NULL;
    PyObject *result = PyObject_Vectorcall(function, args, (size_t)n, NULL);
    thread->given = outer;
    if (result == NULL && namespace != NULL && is_hidden(namespace)) {
        leave_hidden();
    }
    return result;
}

/* call_stealing_args(function, *args). Called by CALL of generated code, so that `args` are on its frame's stack, from
 * which the interpreter then drops whatever is there. A hidden frame stays where it is, and only the chain of frames leads
 * past it; evaluating a frame leaves the current frame as it found it. */
static PyObject *call_stealing_args(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    StealingCall *self = (StealingCall *)callable;
    Thread *thread = &current_thread;
    Py_ssize_t n = PyVectorcall_NARGS(nargsf);
    if (n < 1 || kwnames != NULL) {
        PyErr_Format(PyExc_TypeError, "%s(function, *args) takes a function", self->name);
        return NULL;
    }
    PyThreadState *tstate = PyThreadState_Get();
    Frame *caller = *current_frame(tstate);
    if (caller != NULL && (self->hides || is_hidden(caller->f_globals))) {
        *current_frame(tstate) = caller->previous;
    }
    PyObject *result = call_with_given(thread, args[0], (PyObject **)args + 1, n - 1);
    while (result != NULL && Py_IS_TYPE(result, &TailCall_Type)) {
        TailCall *next = (TailCall *)result;
        result = call_with_given(thread, next->items[0], next->items + 1, Py_SIZE(next) - 1);
        Py_DECREF(next);
    }
    *current_frame(tstate) = caller;
    return result;
}

static PyObject *stealing_call_repr(PyObject *self)
{
    return PyUnicode_FromString(((StealingCall *)self)->name);
}

PyTypeObject StealingCall_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "dynamo._hook.StealingCall",
    .tp_doc = PyDoc_STR("Calls a function and the TailCall that it returns; the arguments are stolen."),
    .tp_basicsize = sizeof(StealingCall),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_repr = stealing_call_repr,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(StealingCall, vectorcall),
};

/* call_stealing_args, or trampoline, which hides the calling frame. */
PyObject *make_stealing_call(int hides)
{
    StealingCall *self = PyObject_New(StealingCall, &StealingCall_Type);
    if (self != NULL) {
        self->vectorcall = call_stealing_args;
        self->name = hides ? "trampoline" : "call_stealing_args";
        self->hides = hides != 0;
    }
    return (PyObject *)self;
}
