/* The module dynamo._hook. */
#include "hook.h"

static const char *state_names[] = {"off", "run", "trace"};
static const char *policy_names[] = {"compile", "eager", "error", "force_eager"};

/* Index of `name`, or -1 with a ValueError. */
static int index_of(const char *name, const char *const *names, int n, const char *what)
{
    for (int i = 0; i < n; i++) {
        if (strcmp(name, names[i]) == 0) {
            return i;
        }
    }
    PyErr_Format(PyExc_ValueError, "no %s '%.50s'", what, name);
    return -1;
}

static PyObject *set_state(PyObject *module, PyObject *args)
{
    const char *name;
    PyObject *context = Py_None;
    if (!PyArg_ParseTuple(args, "s|O:set_state", &name, &context)) {
        return NULL;
    }
    int state = index_of(name, state_names, 3, "state");
    if (state < 0) {
        return NULL;
    }
    Thread *thread = &current_thread;
    Mode mode = {state, 0, NULL, NULL, NULL, NULL};
    if (context != Py_None) {
        mode.table = table_of(context, 0);
        if (mode.table == NULL) {
            return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ValueError, "nothing is compiled for %R", context);
        }
        mode.context = Py_NewRef(context);
        mode.convert = Py_XNewRef(mode.table->convert);
    }
    if (state == STATE_TRACE && mode.convert == NULL) {
        Py_XDECREF(mode.table);
        Py_XDECREF(mode.context);
        PyErr_SetString(PyExc_ValueError, "state \"trace\" needs the context of a compiled function");
        return NULL;
    }
    Mode old = thread->mode;
    thread->mode = mode;
    if (state != STATE_OFF && thread->depth == 0) {
        thread->manual = 1;
        scope_open(thread, &thread->manual_scope);
    } else if (state == STATE_OFF && thread->manual && thread->depth == 1) {
        thread->manual = 0;
        scope_close(thread, &thread->manual_scope);
    }
    PyObject *previous = Py_BuildValue("(sO)", state_names[old.state], old.context ? old.context : Py_None);
    Py_XDECREF(old.table);
    Py_XDECREF(old.context);
    Py_XDECREF(old.convert);
    return previous;
}

static PyObject *get_state(PyObject *module, PyObject *unused)
{
    const Mode *mode = &current_thread.mode;
    return Py_BuildValue("(sO)", state_names[mode->state], mode->context ? mode->context : Py_None);
}

static PyObject *installed(PyObject *module, PyObject *unused)
{
    return PyUnicode_FromString(hook_foreign() ? "foreign" : hook_installed() ? "hook" : "none");
}

static PyObject *set_miss_policy(PyObject *module, PyObject *args)
{
    const char *name;
    if (!PyArg_ParseTuple(args, "s:set_miss_policy", &name)) {
        return NULL;
    }
    int policy = index_of(name, policy_names, 4, "policy");
    if (policy < 0) {
        return NULL;
    }
    MissPolicy previous = miss_policy;
    miss_policy = policy;
    return PyUnicode_FromString(policy_names[previous]);
}

static PyObject *disabled(PyObject *module, PyObject *fn)
{
    return make_scoped(fn, STATE_OFF, 0);
}

static PyObject *run_only(PyObject *module, PyObject *fn)
{
    return make_scoped(fn, STATE_RUN, 0);
}

static PyObject *run_or_error(PyObject *module, PyObject *fn)
{
    return make_scoped(fn, STATE_RUN, 1);
}

static PyObject *reset_code(PyObject *module, PyObject *code)
{
    if (!PyCode_Check(code)) {
        return PyErr_Format(PyExc_TypeError, "a code object is needed, not %R", code);
    }
    /* Freeing an entry may run code that frees slots: start again after each one that had something. */
    Slot *slot = code_slots((PyCodeObject *)code);
    while (slot != NULL) {
        if (slot->skip == SKIP_NOT && slot->entries == NULL) {
            slot = slot->next_of_code;
            continue;
        }
        slot_reset(slot);
        slot = code_slots((PyCodeObject *)code);
    }
    Py_RETURN_NONE;
}

static PyObject *reset_all(PyObject *module, PyObject *unused)
{
    reset_all_tables();
    Py_RETURN_NONE;
}

static PyObject *cache_entries(PyObject *module, PyObject *args)
{
    PyObject *code, *context = Py_None;
    if (!PyArg_ParseTuple(args, "O!|O:cache_entries", &PyCode_Type, &code, &context)) {
        return NULL;
    }
    Table *table = NULL;
    if (context != Py_None) {
        table = table_of(context, 0);
        if (table == NULL) {
            return PyErr_Occurred() ? NULL : PyList_New(0);
        }
    }
    PyObject *result = PyList_New(0);
    for (Slot *slot = code_slots((PyCodeObject *)code); result != NULL && slot != NULL; slot = slot->next_of_code) {
        for (Py_ssize_t i = 0; slot_has_entries(slot) && i < PyTuple_GET_SIZE(slot->entries); i++) {
            if ((table == NULL || slot->table == table) &&
                PyList_Append(result, PyTuple_GET_ITEM(slot->entries, i)) < 0) {
                Py_CLEAR(result);
                break;
            }
        }
        if (result == NULL) {
            break;
        }
    }
    Py_XDECREF(table);
    return result;
}

static PyObject *skip_code(PyObject *module, PyObject *args)
{
    PyObject *code, *context;
    int recursive = 0;
    if (!PyArg_ParseTuple(args, "O!O|p:skip_code", &PyCode_Type, &code, &context, &recursive)) {
        return NULL;
    }
    Table *table = table_of(context, 1);
    Slot *slot = table ? slot_get((PyCodeObject *)code, table) : NULL;
    Py_XDECREF(table);
    if (slot == NULL) {
        return NULL;
    }
    slot->skip = recursive ? SKIP_RECURSIVELY : SKIP_FRAME;
    Py_RETURN_NONE;
}

static PyObject *with_tracing(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    (void)module;
    if (nargs < 1) {
        PyErr_SetString(PyExc_TypeError, "with_tracing(fn, *args) takes a function");
        return NULL;
    }
    Thread *thread = &current_thread;
    int hushed = thread->hushed > 0;
    if (hushed) {
        PyThreadState_LeaveTracing(PyThreadState_Get());
    }
    thread->hushed -= hushed;
    PyObject *result = PyObject_Vectorcall(args[0], args + 1, (size_t)(nargs - 1), NULL);
    thread->hushed += hushed;
    if (hushed) {
        PyThreadState_EnterTracing(PyThreadState_Get());
    }
    return result;
}

static PyObject *hide(PyObject *module, PyObject *namespace)
{
    (void)module;
    if (hide_functions(namespace) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"compiled", (PyCFunction)(void (*)(void))make_compiled, METH_FASTCALL | METH_KEYWORDS,
     PyDoc_STR("compiled(fn, context, convert)\n--\n\n"
               "A callable that runs fn compiled. convert(frame, context) answers a GuardedCode, None (leave this code\n"
               "as it is, but not what it calls) or SKIP_RECURSIVELY (nor what it calls).")},
    {"disabled", disabled, METH_O, PyDoc_STR("disabled(fn)\n--\n\nfn, and what it calls, with the hook off.")},
    {"with_tracing", (PyCFunction)(void (*)(void))with_tracing, METH_FASTCALL,
     PyDoc_STR("with_tracing(fn, *args)\n--\n\nfn(*args) under the user's trace function, which convert runs without.")},
    {"run_only", run_only, METH_O, PyDoc_STR("run_only(fn)\n--\n\nfn with what is compiled already.")},
    {"run_or_error", run_or_error, METH_O,
     PyDoc_STR("run_or_error(fn)\n--\n\nrun_only, with RecompileLimitExceeded where something would be compiled.")},
    {"set_state", set_state, METH_VARARGS,
     PyDoc_STR("set_state(state, context=None)\n--\n\nThis thread's state, \"off\", \"run\" or \"trace\"; returns the "
               "arguments that restore the previous one.")},
    {"get_state", get_state, METH_NOARGS, PyDoc_STR("get_state()\n--\n\n(state, context) of this thread.")},
    {"installed", installed, METH_NOARGS,
     PyDoc_STR("installed()\n--\n\nThe interpreter's evaluation function: \"none\" (its own), \"hook\" (ours) or "
               "\"foreign\".")},
    {"set_miss_policy", set_miss_policy, METH_VARARGS,
     PyDoc_STR("set_miss_policy(policy)\n--\n\nWhat happens where no entry serves: \"compile\", \"eager\", \"error\"; or "
               "\"force_eager\", which also ignores the entries. Returns the previous policy.")},
    {"reset_code", reset_code, METH_O, PyDoc_STR("reset_code(code)\n--\n\nForget what is known of a code object.")},
    {"reset_all", reset_all, METH_NOARGS, PyDoc_STR("reset_all()\n--\n\nForget everything compiled.")},
    {"cache_entries", cache_entries, METH_VARARGS,
     PyDoc_STR("cache_entries(code, context=None)\n--\n\nThe GuardedCodes of a code object, most recently used first.")},
    {"hide", hide, METH_O,
     PyDoc_STR("hide(namespace)\n--\n\nFunctions with these globals leave no entries in tracebacks, called by "
               "call_stealing_args or trampoline.")},
    {"next_item", next_item, METH_O,
     PyDoc_STR("next_item(iterator)\n--\n\nA tuple of the next item, or an empty one at the end.")},
    {"skip_code", skip_code, METH_VARARGS,
     PyDoc_STR("skip_code(code, context, recursive=False)\n--\n\nNever ask convert about this code.")},
    {"answered", answered, METH_VARARGS,
     PyDoc_STR("answered(function, value, callee, args, kwargs)\n--\n\ncallee(*args, **kwargs), in which the next call "
               "of function returns value without running.")},
    {NULL, NULL, 0, NULL},
};

/* --- sentinels ---------------------------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    const char *name;
} Sentinel;

static PyObject *sentinel_repr(Sentinel *self)
{
    return PyUnicode_FromString(self->name);
}

static PyTypeObject Sentinel_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "dynamo._hook.Sentinel",
    .tp_basicsize = sizeof(Sentinel),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_repr = (reprfunc)sentinel_repr,
};

static PyObject *call_stealing_args, *trampoline;

static PyObject *make_sentinel(const char *name)
{
    Sentinel *self = PyObject_New(Sentinel, &Sentinel_Type);
    if (self != NULL) {
        self->name = name;
    }
    return (PyObject *)self;
}

static int init_once(void)
{
    static int done = 0;
    PyTypeObject *types[] = {&Sentinel_Type, &GuardedCode_Type, &Slot_Type, &Table_Type, &FrameView_Type,
                             &Compiled_Type, &Scoped_Type,      &TailCall_Type, &StealingCall_Type};
    if (done) {
        return 0;
    }
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (PyType_Ready(types[i]) < 0) {
            return -1;
        }
    }
    null_sentinel = make_sentinel("NULL");
    skip_recursively = make_sentinel("SKIP_RECURSIVELY");
    call_stealing_args = make_stealing_call(0);
    trampoline = make_stealing_call(1);
    if (null_sentinel == NULL || call_stealing_args == NULL || trampoline == NULL || skip_recursively == NULL ||
        cache_init() < 0 || eval_frame_init() < 0 || compiled_init() < 0) {
        return -1;
    }
    done = 1;
    return 0;
}

static int exec_module(PyObject *module)
{
    /* The interpreter's evaluation function and all state here are the main interpreter's. */
    if (PyInterpreterState_Get() != PyInterpreterState_Main()) {
        PyErr_SetString(PyExc_ImportError, "dynamo compiles in the main interpreter only, not in a subinterpreter");
        return -1;
    }
    if (init_once() < 0 || PyModule_AddObjectRef(module, "GuardedCode", (PyObject *)&GuardedCode_Type) < 0 ||
        PyModule_AddObjectRef(module, "Frame", (PyObject *)&FrameView_Type) < 0 ||
        PyModule_AddObjectRef(module, "Compiled", (PyObject *)&Compiled_Type) < 0 ||
        PyModule_AddObjectRef(module, "Scoped", (PyObject *)&Scoped_Type) < 0 ||
        PyModule_AddObjectRef(module, "TailCall", (PyObject *)&TailCall_Type) < 0 ||
        PyModule_AddObjectRef(module, "call_stealing_args", call_stealing_args) < 0 ||
        PyModule_AddObjectRef(module, "trampoline", trampoline) < 0 ||
        PyModule_AddObjectRef(module, "NULL", null_sentinel) < 0 ||
        PyModule_AddObjectRef(module, "SKIP_RECURSIVELY", skip_recursively) < 0) {
        return -1;
    }
    return 0;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, exec_module},
    {0, NULL},
};

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "dynamo._hook",
    .m_doc = PyDoc_STR("The frame hook (PEP 523): dispatches calls to compiled code, and asks for it to be made."),
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__hook(void)
{
    return PyModuleDef_Init(&definition);
}
