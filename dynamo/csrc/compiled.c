/* The callables: Compiled, which looks compiled code up before anything else, and Scoped, which changes the thread's
 * state for the time of a call. */
#include "hook.h"

#include <stddef.h>
#include <structmember.h>

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *fn;
    PyObject *dict;
    PyObject *weakrefs;
    /* Compiled */
    PyObject *context;
    PyObject *convert;
    Table *table;
    PyFunctionObject *function; /* borrowed from fn: itself, or what a bound method calls; NULL for other callables */
    PyObject *bound_self;       /* borrowed from fn: of a bound method; else NULL */
    Slot *slot;                 /* of the function's code; NULL until known */
    Made made;
    /* Scoped */
    State state;
    int error_on_miss;
} Callable;

/* --- binding a call's arguments to parameters --------------------------------------------------------------------- */

#define SMALL_CALL 16

typedef struct {
    PyObject *small[SMALL_CALL];
    PyObject **locals;
    PyObject *varargs, *varkw;
} Bound;

static void bound_free(Bound *bound)
{
    Py_XDECREF(bound->varargs);
    Py_XDECREF(bound->varkw);
    if (bound->locals != bound->small) {
        PyMem_Free(bound->locals);
    }
}

/* Index of the parameter that can be given by this keyword, or -1. */
static int keyword_index(PyCodeObject *code, PyObject *keyword, int named)
{
    for (int i = code->co_posonlyargcount; i < named; i++) {
        if (PyTuple_GET_ITEM(code->co_localsplusnames, i) == keyword) {
            return i;
        }
    }
    for (int i = code->co_posonlyargcount; i < named; i++) {
        if (PyUnicode_Compare(PyTuple_GET_ITEM(code->co_localsplusnames, i), keyword) == 0) {
            return i;
        }
    }
    return -1;
}

static int bind_keywords(Bound *bound, PyCodeObject *code, PyObject *const *values, PyObject *kwnames, int named)
{
    for (Py_ssize_t k = 0; kwnames != NULL && k < PyTuple_GET_SIZE(kwnames); k++) {
        PyObject *keyword = PyTuple_GET_ITEM(kwnames, k);
        int i = PyUnicode_CheckExact(keyword) ? keyword_index(code, keyword, named) : -1;
        if (i >= 0) {
            if (bound->locals[i] != NULL) {
                return 0;
            }
            bound->locals[i] = values[k];
        } else if (bound->varkw == NULL || PyDict_SetItem(bound->varkw, keyword, values[k]) < 0) {
            return 0;
        }
    }
    return 1;
}

static int bind_defaults(Bound *bound, PyFunctionObject *function, PyCodeObject *code, int named)
{
    Py_ssize_t n_defaults = function->func_defaults ? PyTuple_GET_SIZE(function->func_defaults) : 0;
    for (int i = 0; i < named; i++) {
        if (bound->locals[i] != NULL) {
            continue;
        }
        if (i < code->co_argcount) {
            Py_ssize_t k = i - (code->co_argcount - n_defaults);
            bound->locals[i] = k >= 0 ? PyTuple_GET_ITEM(function->func_defaults, k) : NULL;
        } else if (function->func_kwdefaults != NULL) {
            PyObject *name = PyTuple_GET_ITEM(code->co_localsplusnames, i);
            bound->locals[i] = PyDict_GetItemWithError(function->func_kwdefaults, name);
        }
        if (bound->locals[i] == NULL) {
            return 0;
        }
    }
    return 1;
}

/* Lay the arguments out as the frame's first fast locals, as the interpreter would. 1: done; 0: they do not fit, or
 * something failed: the real call will say what. No exception is left set. The values are borrowed. */
static int bind(Bound *bound, PyFunctionObject *function, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    PyCodeObject *code = (PyCodeObject *)function->func_code;
    int named = code->co_argcount + code->co_kwonlyargcount, total = code_parameters(code);
    bound->varargs = bound->varkw = NULL;
    bound->locals = total <= SMALL_CALL ? bound->small : PyMem_New(PyObject *, total);
    if (bound->locals == NULL) {
        bound->locals = bound->small;
        return 0;
    }
    Py_ssize_t positional = nargs < code->co_argcount ? nargs : code->co_argcount;
    for (Py_ssize_t i = 0; i < total; i++) {
        bound->locals[i] = i < positional ? args[i] : NULL;
    }
    int slot = named;
    if (code->co_flags & CO_VARARGS) {
        bound->varargs = PyTuple_New(nargs - positional);
        for (Py_ssize_t i = positional; bound->varargs != NULL && i < nargs; i++) {
            PyTuple_SET_ITEM(bound->varargs, i - positional, Py_NewRef(args[i]));
        }
        bound->locals[slot++] = bound->varargs;
    }
    if (code->co_flags & CO_VARKEYWORDS) {
        bound->varkw = PyDict_New();
        bound->locals[slot++] = bound->varkw;
    }
    int fits = (nargs == positional || bound->varargs != NULL) && (slot == named || bound->locals[slot - 1] != NULL) &&
               bind_keywords(bound, code, args + nargs, kwnames, named) &&
               bind_defaults(bound, function, code, named);
    if (!fits) {
        PyErr_Clear();
    }
    return fits;
}

/* --- Compiled ----------------------------------------------------------------------------------------------------- */

/* The slot of the function's present code. Borrowed; NULL without an exception if it could not be made. */
static Slot *compiled_slot(Callable *self)
{
    PyCodeObject *code = (PyCodeObject *)self->function->func_code;
    if (self->slot == NULL || self->slot->code != code || self->slot->table != self->table) {
        Slot *slot = slot_get(code, self->table);
        if (slot == NULL) {
            PyErr_Clear();
        }
        Py_XSETREF(self->slot, (Slot *)Py_XNewRef(slot));
    }
    return self->slot;
}

/* Guards on the arguments of a call. New reference, or NULL with *error as slot_lookup says. */
static GuardedCode *call_lookup(Thread *thread, Callable *self, Slot *slot, PyObject *const *args, Py_ssize_t nargs,
                                PyObject *kwnames, int *error)
{
    PyFunctionObject *function = self->function;
    PyCodeObject *code = (PyCodeObject *)function->func_code;
    GuardInput input = {args, nargs, function->func_globals, function->func_builtins, function->func_closure};
    *error = 0;
    Bound bound;
    int bind_needed = kwnames != NULL || nargs != code->co_argcount || code->co_kwonlyargcount != 0 ||
                      (code->co_flags & (CO_VARARGS | CO_VARKEYWORDS));
    if (bind_needed) {
        if (!bind(&bound, function, args, nargs, kwnames)) {
            bound_free(&bound);
            return NULL;
        }
        input.locals = bound.locals;
        input.n = code_parameters(code);
    }
    State state = thread->mode.state;
    thread->mode.state = STATE_OFF;
    GuardedCode *entry = slot_lookup(slot, &input, error);
    thread->mode.state = state;
    if (bind_needed) {
        bound_free(&bound);
    }
    return entry;
}

/* Call the entry's code. Steals the entry. `args` has nargs positional values, then those of kwnames. */
static PyObject *call_entry(Thread *thread, Callable *self, GuardedCode *entry, PyObject *const *args, size_t nargsf,
                            PyObject *kwnames)
{
    PyFunctionObject *function = entry_function(entry, self->function, &self->made);
    if (function == NULL) {
        Py_DECREF(entry);
        return NULL;
    }
    PyObject *result;
    if (entry->needs_hook) {
        Mode mode = {STATE_TRACE, 0, self->table, self->context, self->convert, NULL};
        if (thread->mode.state == STATE_RUN) {
            mode.state = STATE_RUN;
            mode.error_on_miss = thread->mode.error_on_miss;
        }
        Saved saved;
        mode_enter(thread, &mode, &saved);
        thread->pass = (PyCodeObject *)function->func_code;
        result = PyObject_Vectorcall((PyObject *)function, args, nargsf, kwnames);
        thread->pass = NULL;
        mode_leave(thread, &saved);
    } else if (thread->depth == 0) {
        result = PyObject_Vectorcall((PyObject *)function, args, nargsf, kwnames);
    } else {
        State state = thread->mode.state;
        thread->mode.state = STATE_OFF;
        thread->sealed++;
        int suspended = hook_suspend();
        result = PyObject_Vectorcall((PyObject *)function, args, nargsf, kwnames);
        hook_resume(suspended);
        thread->sealed--;
        thread->mode.state = state;
    }
    Py_DECREF(function);
    Py_DECREF(entry);
    return result;
}

/* The call of `self->function`, whose first argument is the bound self if there is one. NULL without an exception: no
 * entry serves it. */
static PyObject *call_fast(Thread *thread, Callable *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Slot *slot = compiled_slot(self);
    if (!slot_has_entries(slot) || hook_foreign()) {
        return NULL;
    }
    int error;
    GuardedCode *entry = call_lookup(thread, self, slot, args, PyVectorcall_NARGS(nargsf), kwnames, &error);
    return entry ? call_entry(thread, self, entry, args, nargsf, kwnames) : NULL;
}

static PyObject *call_fast_bound(Thread *thread, Callable *self, PyObject *const *args, size_t nargsf,
                                 PyObject *kwnames)
{
    Py_ssize_t total = PyVectorcall_NARGS(nargsf) + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);
    PyObject *small[SMALL_CALL];
    PyObject **with_self = total < SMALL_CALL ? small : PyMem_New(PyObject *, total + 1);
    if (with_self == NULL) {
        return PyErr_NoMemory();
    }
    with_self[0] = self->bound_self;
    if (total > 0) {
        memcpy(with_self + 1, args, total * sizeof(PyObject *));
    }
    PyObject *result = call_fast(thread, self, with_self, PyVectorcall_NARGS(nargsf) + 1, kwnames);
    if (with_self != small) {
        PyMem_Free(with_self);
    }
    return result;
}

/* The original, under the hook. */
static PyObject *call_hooked(Thread *thread, Callable *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Mode mode = {STATE_TRACE, 0, self->table, self->context, self->convert,
                 self->function ? (PyCodeObject *)self->function->func_code : NULL};
    if (thread->mode.state == STATE_RUN) {
        mode.state = STATE_RUN;
        mode.error_on_miss = thread->mode.error_on_miss;
    }
    Saved saved;
    mode_enter(thread, &mode, &saved);
    PyObject *result = PyObject_Vectorcall(self->fn, args, nargsf, kwnames);
    mode_leave(thread, &saved);
    return result;
}

static PyObject *compiled_vectorcall(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Callable *self = (Callable *)callable;
    Thread *thread = &current_thread;
    if (thread->converting || miss_policy == MISS_FORCE_EAGER || self->table == NULL) {
        return PyObject_Vectorcall(self->fn, args, nargsf, kwnames);
    }
    Py_INCREF(self);
    PyObject *result = NULL;
    if (self->function != NULL) {
        result = (self->bound_self ? call_fast_bound : call_fast)(thread, self, args, nargsf, kwnames);
    }
    if (result == NULL && !PyErr_Occurred()) {
        result = call_hooked(thread, self, args, nargsf, kwnames);
    }
    Py_DECREF(self);
    return result;
}

/* --- Scoped ------------------------------------------------------------------------------------------------------- */

static PyObject *scoped_vectorcall(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Callable *self = (Callable *)callable;
    Thread *thread = &current_thread;
    PyObject *result;
    Py_INCREF(self);
    if (self->state == STATE_OFF) {
        State state = thread->mode.state;
        thread->mode.state = STATE_OFF;
        int suspended = thread->depth > 0 && hook_suspend();
        result = PyObject_Vectorcall(self->fn, args, nargsf, kwnames);
        hook_resume(suspended);
        thread->mode.state = state;
    } else {
        Mode mode = {self->state, self->error_on_miss, NULL, NULL, NULL, NULL};
        Saved saved;
        mode_enter(thread, &mode, &saved);
        result = PyObject_Vectorcall(self->fn, args, nargsf, kwnames);
        mode_leave(thread, &saved);
    }
    Py_DECREF(self);
    return result;
}

/* --- the two types ------------------------------------------------------------------------------------------------ */

static int callable_traverse(Callable *self, visitproc visit, void *arg)
{
    Py_VISIT(self->fn);
    Py_VISIT(self->dict);
    Py_VISIT(self->context);
    Py_VISIT(self->convert);
    Py_VISIT(self->table);
    Py_VISIT(self->slot);
    Py_VISIT(self->made.function);
    return 0;
}

static int callable_clear(Callable *self)
{
    /* fn stays until the end: a cleared object can still be called by a finalizer. */
    made_forget(&self->made);
    Py_CLEAR(self->dict);
    Py_CLEAR(self->slot);
    Py_CLEAR(self->table);
    Py_CLEAR(self->context);
    Py_CLEAR(self->convert);
    return 0;
}

static void callable_dealloc(Callable *self)
{
    PyObject_GC_UnTrack(self);
    if (self->weakrefs != NULL) {
        PyObject_ClearWeakRefs((PyObject *)self);
    }
    callable_clear(self);
    Py_CLEAR(self->fn);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

/* What the object does not have is the original's: __code__, __defaults__, __annotations__, ... */
static PyObject *callable_getattro(Callable *self, PyObject *name)
{
    PyObject *value = PyObject_GenericGetAttr((PyObject *)self, name);
    if (value == NULL && PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Clear();
        value = PyObject_GetAttr(self->fn, name);
    }
    return value;
}

/* A method, where the original would be one. */
static PyObject *callable_descr_get(PyObject *self, PyObject *object, PyObject *type)
{
    PyObject *fn = self;
    while (Py_IS_TYPE(fn, &Compiled_Type) || Py_IS_TYPE(fn, &Scoped_Type)) {
        fn = ((Callable *)fn)->fn;
    }
    if (object == NULL || object == Py_None || !PyFunction_Check(fn)) {
        return Py_NewRef(self);
    }
    return PyMethod_New(self, object);
}

static PyObject *callable_repr(Callable *self)
{
    return PyUnicode_FromFormat("<%s %R>", Py_IS_TYPE(self, &Compiled_Type) ? "compiled" : "scoped", self->fn);
}

/* The copy of an object, by a function of the module copy. */
static PyObject *copied_by(const char *name, PyObject *object, PyObject *memo)
{
    PyObject *module = PyImport_ImportModule("copy");
    if (module == NULL) {
        return NULL;
    }
    PyObject *copied = PyObject_CallMethod(module, name, memo ? "OO" : "O", object, memo);
    Py_DECREF(module);
    return copied;
}

/* The callable over a copy of the original: itself, where that copies as itself. Steals `copied`. */
static PyObject *callable_over(Callable *self, PyObject *copied)
{
    PyObject *made = NULL;
    if (copied == NULL) {
        return NULL;
    }
    if (copied == self->fn) {
        made = Py_NewRef(self);
    } else if (Py_IS_TYPE(self, &Scoped_Type)) {
        made = make_scoped(copied, self->state, self->error_on_miss);
    } else if (self->context != NULL) {
        PyObject *settings = PyObject_GetAttrString(self->context, "settings");
        if (settings != NULL) {
            made = PyObject_CallMethod(self->context, "again", "OO", copied, settings);
            Py_DECREF(settings);
        }
    } else {
        PyErr_SetString(PyExc_RuntimeError, "a callable that was cleared cannot be copied");
    }
    Py_DECREF(copied);
    return made;
}

static PyObject *callable_copy(Callable *self, PyObject *unused)
{
    return callable_over(self, PyMethod_Check(self->fn) ? Py_NewRef(self->fn) : copied_by("copy", self->fn, NULL));
}

static PyObject *callable_deepcopy(Callable *self, PyObject *memo)
{
    return callable_over(self, copied_by("deepcopy", self->fn, memo));
}

/* The name of a global, as of the function that it stands for; what else can be pickled is compiled again where it is
 * loaded. */
static PyObject *callable_reduce(Callable *self, PyObject *unused)
{
    if (self->context == NULL) {
        return PyObject_GetAttrString((PyObject *)self, "__qualname__");
    }
    return PyObject_CallMethod(self->context, "reduced", "O", self->fn);
}

static PyMethodDef callable_methods[] = {
    {"__copy__", (PyCFunction)callable_copy, METH_NOARGS, PyDoc_STR("Itself for a function; over a copy of others.")},
    {"__deepcopy__", (PyCFunction)callable_deepcopy, METH_O, PyDoc_STR("Itself for a function; over a copy of others.")},
    {"__reduce__", (PyCFunction)callable_reduce, METH_NOARGS, PyDoc_STR("Its name for a function; what makes others.")},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef callable_getset[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef compiled_members[] = {
    {"__wrapped__", T_OBJECT, offsetof(Callable, fn), READONLY, "The original callable."},
    {"context", T_OBJECT, offsetof(Callable, context), READONLY, "The compile context."},
    {"convert", T_OBJECT, offsetof(Callable, convert), READONLY, "What compiles a frame."},
    {NULL, 0, 0, 0, NULL},
};

static PyMemberDef scoped_members[] = {
    {"__wrapped__", T_OBJECT, offsetof(Callable, fn), READONLY, "The original callable."},
    {NULL, 0, 0, 0, NULL},
};

#define CALLABLE_TYPE(NAME, DOC, MEMBERS)                                                                         \
    {                                                                                                             \
        PyVarObject_HEAD_INIT(NULL, 0).tp_name = NAME, .tp_doc = PyDoc_STR(DOC), .tp_basicsize = sizeof(Callable), \
        .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |                        \
                    Py_TPFLAGS_DISALLOW_INSTANTIATION,                                                            \
        .tp_dealloc = (destructor)callable_dealloc, .tp_traverse = (traverseproc)callable_traverse,               \
        .tp_clear = (inquiry)callable_clear, .tp_getattro = (getattrofunc)callable_getattro,                      \
        .tp_descr_get = callable_descr_get, .tp_repr = (reprfunc)callable_repr, .tp_call = PyVectorcall_Call,     \
        .tp_vectorcall_offset = offsetof(Callable, vectorcall), .tp_dictoffset = offsetof(Callable, dict),        \
        .tp_weaklistoffset = offsetof(Callable, weakrefs), .tp_methods = callable_methods, .tp_members = MEMBERS, \
        .tp_getset = callable_getset,                                                                             \
    }

PyTypeObject Compiled_Type =
    CALLABLE_TYPE("dynamo._hook.Compiled", "A callable that runs compiled code in place of the original.",
                  compiled_members);
PyTypeObject Scoped_Type =
    CALLABLE_TYPE("dynamo._hook.Scoped", "A callable that runs the original in another state of the hook.",
                  scoped_members);

#define N_IDENTITY 4
static PyObject *identity_names[N_IDENTITY];

int compiled_init(void)
{
    static const char *names[N_IDENTITY] = {"__module__", "__name__", "__qualname__", "__doc__"};
    for (int i = 0; i < N_IDENTITY; i++) {
        identity_names[i] = PyUnicode_InternFromString(names[i]);
        if (identity_names[i] == NULL) {
            return -1;
        }
    }
    return 0;
}

/* Copy what functools.update_wrapper copies, so that type attributes do not hide it. */
static int copy_identity(Callable *self)
{
    self->dict = PyDict_New();
    if (self->dict == NULL) {
        return -1;
    }
    for (int i = 0; i < N_IDENTITY; i++) {
        PyObject *value = PyObject_GetAttr(self->fn, identity_names[i]);
        if (value == NULL && !PyErr_ExceptionMatches(PyExc_AttributeError)) {
            return -1;
        }
        PyErr_Clear();
        int failed = value != NULL && PyDict_SetItem(self->dict, identity_names[i], value) < 0;
        Py_XDECREF(value);
        if (failed) {
            return -1;
        }
    }
    return 0;
}

static Callable *callable_new(PyTypeObject *type, PyObject *fn, vectorcallfunc call)
{
    if (!PyCallable_Check(fn)) {
        PyErr_Format(PyExc_TypeError, "a callable is needed, not %R", fn);
        return NULL;
    }
    Callable *self = (Callable *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->fn = Py_NewRef(fn);
    self->vectorcall = call;
    if (copy_identity(self) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    return self;
}

PyObject *make_compiled(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const char *names[] = {"fn", "context", "convert"};
    PyObject *values[3] = {NULL, NULL, NULL};
    for (Py_ssize_t i = 0; i < nargs && i < 3; i++) {
        values[i] = args[i];
    }
    for (Py_ssize_t k = 0; kwnames != NULL && k < PyTuple_GET_SIZE(kwnames); k++) {
        for (int i = 0; i < 3; i++) {
            if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(kwnames, k), names[i]) == 0) {
                values[i] = args[nargs + k];
            }
        }
    }
    if (nargs + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0) != 3 || !values[0] || !values[1] || !values[2]) {
        PyErr_SetString(PyExc_TypeError, "compiled() takes three arguments: fn, context, convert");
        return NULL;
    }
    if (!PyCallable_Check(values[2])) {
        PyErr_Format(PyExc_TypeError, "convert must be callable, not %R", values[2]);
        return NULL;
    }
    Callable *self = callable_new(&Compiled_Type, values[0], compiled_vectorcall);
    if (self == NULL) {
        return NULL;
    }
    self->context = Py_NewRef(values[1]);
    self->convert = Py_NewRef(values[2]);
    self->table = table_of(self->context, 1);
    if (self->table == NULL) {
        Py_DECREF(self);
        return NULL;
    }
    Py_XSETREF(self->table->convert, Py_NewRef(values[2]));
    PyObject *function = PyMethod_Check(values[0]) ? PyMethod_GET_FUNCTION(values[0]) : values[0];
    if (PyFunction_Check(function)) {
        self->function = (PyFunctionObject *)function;
        self->bound_self = function == values[0] ? NULL : PyMethod_GET_SELF(values[0]);
    }
    return (PyObject *)self;
}

PyObject *make_scoped(PyObject *fn, State state, int error_on_miss)
{
    Callable *self = callable_new(&Scoped_Type, fn, scoped_vectorcall);
    if (self != NULL) {
        self->state = state;
        self->error_on_miss = error_on_miss;
    }
    return (PyObject *)self;
}
