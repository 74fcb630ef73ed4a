/* Cache entries: GuardedCode, the slots that hold them, and the table of each compile context. */
#include "hook.h"

#include <stddef.h>
#include <structmember.h>

#define TABLE_ATTRIBUTE "_hook_table"

static Py_ssize_t extra_index = -1;
static PyObject *table_attribute, *dict_attribute; /* interned names */
/* id(context) -> table, for contexts that take no attributes. Kept until the process ends. */
static PyObject *plain_contexts;
static Table *all_tables;
static const GuardApi *guard_api;

/* --- guards ------------------------------------------------------------------------------------------------------- */

/* The capsule, once the module that has it is imported: a guard tree exists only then. */
static int load_guard_api(void)
{
    if (guard_api != NULL) {
        return 1;
    }
    PyObject *modules = PyImport_GetModuleDict();
    if (modules == NULL || PyDict_GetItemString(modules, "dynamo._guards") == NULL) {
        return 0;
    }
    const GuardApi *api = PyCapsule_Import(GUARD_API_CAPSULE, 0);
    if (api == NULL) {
        return -1;
    }
    if (api->version != GUARD_API_VERSION) {
        PyErr_Format(PyExc_ImportError, "dynamo._guards has interface version %d, dynamo._hook was built for %d",
                     api->version, GUARD_API_VERSION);
        return -1;
    }
    guard_api = api;
    return 1;
}

/* Say once for each entry that its guards raise; the exception is taken. */
static void complain(GuardedCode *entry)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    if (entry->complained) {
        goto done;
    }
    entry->complained = 1;
    PyErr_NormalizeException(&type, &value, &traceback);
    if (traceback != NULL && value != NULL) {
        PyException_SetTraceback(value, traceback);
    }
    PyObject *logging = PyImport_ImportModule("logging");
    PyObject *logger = logging ? PyObject_CallMethod(logging, "getLogger", "s", "dynamo.hook") : NULL;
    PyObject *warning = logger ? PyObject_GetAttrString(logger, "warning") : NULL;
    PyObject *args = Py_BuildValue("(sO)", "a guard of compiled code %s raised; taken as failed",
                                   entry->compile_id);
    PyObject *kwargs = Py_BuildValue("{s:O}", "exc_info", value ? value : Py_None);
    PyObject *result = warning && args && kwargs ? PyObject_Call(warning, args, kwargs) : NULL;
    Py_XDECREF(logging);
    Py_XDECREF(logger);
    Py_XDECREF(warning);
    Py_XDECREF(args);
    Py_XDECREF(kwargs);
    Py_XDECREF(result);
    PyErr_Clear(); /* a logger that fails is no reason to fail the call */
done:
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
}

static int check_callable(PyObject *guard, const GuardInput *input)
{
    PyObject *locals = PyTuple_New(input->n);
    if (locals == NULL) {
        return -1;
    }
    for (Py_ssize_t i = 0; i < input->n; i++) {
        PyTuple_SET_ITEM(locals, i, Py_NewRef(input->locals[i] ? input->locals[i] : null_sentinel));
    }
    PyObject *closure = input->closure ? Py_NewRef(input->closure) : PyTuple_New(0);
    PyObject *args[] = {locals, input->globals, closure};
    PyObject *answer = closure ? PyObject_Vectorcall(guard, args, 3, NULL) : NULL;
    Py_XDECREF(closure);
    Py_DECREF(locals);
    int truth = answer ? PyObject_IsTrue(answer) : -1;
    Py_XDECREF(answer);
    return truth;
}

/* 1: the guards hold; 0: they do not, or raised; -1: an exception that must propagate is set. */
static int entry_check(GuardedCode *entry, const GuardInput *input)
{
    int answer = entry->tree_kind ? guard_api->check(entry->guard_tree, input->locals, input->n, input->globals,
                                                     input->builtins, input->closure)
                                  : check_callable(entry->guard_tree, input);
    if (answer < 0 && PyErr_ExceptionMatches(PyExc_Exception)) {
        complain(entry);
        return 0;
    }
    return answer;
}

/* --- GuardedCode -------------------------------------------------------------------------------------------------- */

static PyObject *guarded_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"code", "guard_tree", "needs_hook", "compile_id", NULL};
    PyObject *code, *tree, *compile_id = Py_None;
    int needs_hook = 1;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O|pO:GuardedCode", names, &PyCode_Type, &code, &tree, &needs_hook,
                                     &compile_id)) {
        return NULL;
    }
    int loaded = load_guard_api();
    if (loaded < 0) {
        return NULL;
    }
    int is_tree = loaded && guard_api->is_tree(tree);
    if (!is_tree && tree != Py_None && !PyCallable_Check(tree)) {
        PyErr_Format(PyExc_TypeError, "guard_tree must be a GuardTree, a callable or None, not %.100s", Py_TYPE(tree)->tp_name);
        return NULL;
    }
    GuardedCode *self = (GuardedCode *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->code = (PyCodeObject *)Py_NewRef(code);
    self->guard_tree = Py_NewRef(tree);
    self->compile_id = Py_NewRef(compile_id);
    self->needs_hook = (char)needs_hook;
    self->tree_kind = (char)is_tree;
    return (PyObject *)self;
}

static int guarded_traverse(GuardedCode *self, visitproc visit, void *arg)
{
    Py_VISIT(self->code);
    Py_VISIT(self->guard_tree);
    Py_VISIT(self->compile_id);
    Py_VISIT(self->function);
    return 0;
}

static int guarded_clear(GuardedCode *self)
{
    /* The code and the guards stay: a call that holds this entry still uses them. Cycles go through the function or
     * through containers, which clear themselves. */
    while (self->made != NULL) {
        made_forget(self->made);
    }
    Py_CLEAR(self->function);
    Py_CLEAR(self->compile_id);
    return 0;
}

static void guarded_dealloc(GuardedCode *self)
{
    PyObject_GC_UnTrack(self);
    if (self->weakrefs != NULL) {
        PyObject_ClearWeakRefs((PyObject *)self);
    }
    guarded_clear(self);
    Py_CLEAR(self->code);
    Py_CLEAR(self->guard_tree);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *guarded_repr(GuardedCode *self)
{
    return PyUnicode_FromFormat("<GuardedCode %S of %S>", self->compile_id ? self->compile_id : Py_None,
                                self->code->co_qualname);
}

static PyMemberDef guarded_members[] = {
    {"code", T_OBJECT, offsetof(GuardedCode, code), READONLY, "The compiled code object."},
    {"guard_tree", T_OBJECT, offsetof(GuardedCode, guard_tree), READONLY, "What must hold for the code to be used; None: used once."},
    {"needs_hook", T_BOOL, offsetof(GuardedCode, needs_hook), READONLY,
     "Whether the code calls Python functions that are to be compiled as well."},
    {"compile_id", T_OBJECT, offsetof(GuardedCode, compile_id), READONLY, "As given."},
    {"hits", T_ULONGLONG, offsetof(GuardedCode, hits), READONLY, "Calls that this entry has served."},
    {NULL, 0, 0, 0, NULL},
};

PyTypeObject GuardedCode_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "dynamo._hook.GuardedCode",
    .tp_doc = PyDoc_STR("GuardedCode(code, guard_tree, needs_hook=True, compile_id=None)\n--\n\n"
                        "Compiled code and the guards under which it stands for the original code."),
    .tp_basicsize = sizeof(GuardedCode),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = guarded_new,
    .tp_dealloc = (destructor)guarded_dealloc,
    .tp_traverse = (traverseproc)guarded_traverse,
    .tp_clear = (inquiry)guarded_clear,
    .tp_repr = (reprfunc)guarded_repr,
    .tp_members = guarded_members,
    .tp_weaklistoffset = offsetof(GuardedCode, weakrefs),
};

/* Can a frame of `code` run the entry's code in its place? */
int entry_matches(const GuardedCode *entry, PyCodeObject *code)
{
    const PyCodeObject *new = entry->code;
    const int shape = CO_VARARGS | CO_VARKEYWORDS | CO_OPTIMIZED | CO_NEWLOCALS;
    const char *what = NULL;
    if (new->co_argcount != code->co_argcount || new->co_kwonlyargcount != code->co_kwonlyargcount ||
        (new->co_flags & shape) != (code->co_flags & shape)) {
        what = "parameters";
    } else if (new->co_nfreevars != code->co_nfreevars) {
        what = "free variables";
    }
    for (int i = 0; what == NULL && i < code_parameters(code) + code->co_nfreevars; i++) {
        int k = i - code_parameters(code);
        PyObject *old_name = PyTuple_GET_ITEM(code->co_localsplusnames, k < 0 ? i : code->co_nlocalsplus - 1 - k);
        PyObject *new_name = PyTuple_GET_ITEM(new->co_localsplusnames, k < 0 ? i : new->co_nlocalsplus - 1 - k);
        if (old_name != new_name && PyUnicode_Compare(old_name, new_name) != 0) {
            what = k < 0 ? "parameters" : "free variables";
        }
    }
    if (what != NULL) {
        PyErr_Format(PyExc_ValueError, "the compiled code of %U has other %s than the original", code->co_qualname,
                     what);
        return 0;
    }
    return 1;
}

/* Forget a callable's function. */
void made_forget(Made *made)
{
    if (made->function != NULL) {
        *made->link = made->next;
        if (made->next != NULL) {
            made->next->link = made->link;
        }
        Py_CLEAR(made->function); /* last: the end of its cells may run code of the program's, and ours again */
    }
}

/* Remember the function as the callable's, until one of both ends, or the entry. */
static void made_remember(Made *made, PyFunctionObject *function, GuardedCode *entry)
{
    made_forget(made);
    if (made->function == NULL) {
        made->function = (PyFunctionObject *)Py_NewRef(function);
        made->next = entry->made;
        made->link = &entry->made;
        if (made->next != NULL) {
            made->next->link = &made->next;
        }
        entry->made = made;
    }
}

/* A function of the entry's code with the globals, closure and defaults of `original`. New reference. The last one is
 * kept for the next call: by the callable whose `made` this is if it has a closure or defaults, so that code which
 * several closures share keeps none of them alive; else by the entry. made: NULL for a frame, whose arguments are
 * bound. */
PyFunctionObject *entry_function(GuardedCode *entry, PyFunctionObject *original, Made *made)
{
    int defaults = made != NULL && (original->func_defaults != NULL || original->func_kwdefaults != NULL);
    int is_anyones = original->func_closure == NULL && !defaults;
    PyFunctionObject *function = is_anyones ? entry->function : made != NULL ? made->function : NULL;
    if (function != NULL && function->func_code == (PyObject *)entry->code &&
        function->func_globals == original->func_globals && function->func_builtins == original->func_builtins &&
        (is_anyones || (function->func_closure == original->func_closure &&
                        function->func_defaults == original->func_defaults &&
                        function->func_kwdefaults == original->func_kwdefaults))) {
        return (PyFunctionObject *)Py_NewRef(function);
    }
    function = (PyFunctionObject *)PyFunction_New((PyObject *)entry->code, original->func_globals);
    if (function == NULL) {
        return NULL;
    }
    Py_XSETREF(function->func_builtins, Py_NewRef(original->func_builtins));
    Py_XSETREF(function->func_closure, Py_XNewRef(original->func_closure));
    if (defaults) {
        Py_XSETREF(function->func_defaults, Py_XNewRef(original->func_defaults));
        Py_XSETREF(function->func_kwdefaults, Py_XNewRef(original->func_kwdefaults));
    }
    if (is_anyones) {
        Py_XSETREF(entry->function, (PyFunctionObject *)Py_NewRef(function));
    } else if (made != NULL) {
        made_remember(made, function, entry);
    }
    return function;
}

/* --- slots -------------------------------------------------------------------------------------------------------- */

static int slot_traverse(Slot *self, visitproc visit, void *arg)
{
    Py_VISIT(self->entries);
    return 0;
}

static int slot_clear(Slot *self)
{
    Py_CLEAR(self->entries);
    return 0;
}

/* What a code object keeps of ours, from its first slot until it is freed. (Setting it again would free it.) */
typedef struct {
    Slot *slots;
} CodeExtra;

static CodeExtra *code_extra(PyCodeObject *code)
{
    void *extra = NULL;
    if (CODE_GET_EXTRA((PyObject *)code, extra_index, &extra) < 0) {
        PyErr_Clear();
        return NULL;
    }
    return extra;
}

/* The first slot, of any context. Borrowed, may be NULL. */
Slot *code_slots(PyCodeObject *code)
{
    CodeExtra *extra = code_extra(code);
    return extra ? extra->slots : NULL;
}

static void slot_unlink_from_code(Slot *slot)
{
    if (slot->code == NULL) {
        return;
    }
    Slot **link = &code_extra(slot->code)->slots;
    while (*link != slot) {
        link = &(*link)->next_of_code;
    }
    *link = slot->next_of_code;
    slot->code = NULL;
    slot->next_of_code = NULL;
}

/* Take the slot out of its table, which owned it: the caller gets that reference. */
static void slot_unlink_from_table(Slot *slot)
{
    if (slot->prev_of_table != NULL) {
        slot->prev_of_table->next_of_table = slot->next_of_table;
    } else {
        slot->table->slots = slot->next_of_table;
    }
    if (slot->next_of_table != NULL) {
        slot->next_of_table->prev_of_table = slot->prev_of_table;
    }
    slot->next_of_table = slot->prev_of_table = NULL;
    slot->table = NULL;
}

static void slot_dealloc(Slot *self)
{
    PyObject_GC_UnTrack(self);
    slot_unlink_from_code(self);
    slot_clear(self);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

PyTypeObject Slot_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "dynamo._hook._Slot",
    .tp_basicsize = sizeof(Slot),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_dealloc = (destructor)slot_dealloc,
    .tp_traverse = (traverseproc)slot_traverse,
    .tp_clear = (inquiry)slot_clear,
};

/* Called when a code object is freed. */
static void code_freed(void *extra)
{
    if (extra == NULL) {
        return; /* code of which only other extras are set */
    }
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    Slot *slot = ((CodeExtra *)extra)->slots;
    PyMem_Free(extra);
    for (Slot *s = slot; s != NULL; s = s->next_of_code) {
        s->code = NULL;
        Py_INCREF(s);
    }
    while (slot != NULL) {
        Slot *next = slot->next_of_code;
        slot->next_of_code = NULL;
        slot_clear(slot);
        if (slot->table != NULL) {
            slot_unlink_from_table(slot);
            Py_DECREF(slot);
        }
        Py_DECREF(slot);
        slot = next;
    }
    PyErr_Restore(type, value, traceback);
}

/* Borrowed; NULL (no exception) if there is none. */
Slot *slot_find(PyCodeObject *code, Table *table)
{
    Slot *slot = code_slots(code);
    while (slot != NULL && slot->table != table) {
        slot = slot->next_of_code;
    }
    return slot;
}

/* Borrowed; made if there is none. */
Slot *slot_get(PyCodeObject *code, Table *table)
{
    Slot *slot = slot_find(code, table);
    if (slot != NULL) {
        return slot;
    }
    CodeExtra *extra = code_extra(code);
    if (extra == NULL) {
        extra = PyMem_Calloc(1, sizeof *extra);
        if (extra == NULL) {
            PyErr_NoMemory();
            return NULL;
        }
        if (CODE_SET_EXTRA((PyObject *)code, extra_index, extra) < 0) {
            PyMem_Free(extra);
            return NULL;
        }
    }
    slot = (Slot *)Slot_Type.tp_alloc(&Slot_Type, 0);
    if (slot == NULL) {
        return NULL;
    }
    slot->next_of_code = extra->slots;
    extra->slots = slot;
    slot->code = code;
    slot->table = table;
    slot->next_of_table = table->slots;
    if (table->slots != NULL) {
        table->slots->prev_of_table = slot;
    }
    table->slots = slot;
    return slot;
}

/* Replace the entries by those of `from` that are not `leave_out`, with `first` (may be NULL) in front. */
static int slot_rebuild(Slot *slot, PyObject *from, GuardedCode *leave_out, GuardedCode *first)
{
    Py_ssize_t n = from ? PyTuple_GET_SIZE(from) : 0, kept = first ? 1 : 0;
    for (Py_ssize_t i = 0; i < n; i++) {
        kept += PyTuple_GET_ITEM(from, i) != (PyObject *)leave_out;
    }
    PyObject *entries = PyTuple_New(kept);
    if (entries == NULL) {
        return -1;
    }
    Py_ssize_t k = 0;
    if (first != NULL) {
        PyTuple_SET_ITEM(entries, k++, Py_NewRef(first));
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *entry = PyTuple_GET_ITEM(from, i);
        if (entry != (PyObject *)leave_out) {
            PyTuple_SET_ITEM(entries, k++, Py_NewRef(entry));
        }
    }
    Py_XSETREF(slot->entries, entries);
    return 0;
}

int slot_add(Slot *slot, GuardedCode *entry)
{
    return slot_rebuild(slot, slot->entries, NULL, entry);
}

void slot_reset(Slot *slot)
{
    slot->skip = SKIP_NOT;
    Py_CLEAR(slot->entries);
}

static int entry_is_valid(GuardedCode *entry)
{
    if (!entry->tree_kind) {
        return 1;
    }
    int valid = guard_api->is_valid(entry->guard_tree);
    if (valid < 0) {
        PyErr_Clear();
    }
    return valid != 0;
}

/* The first entry whose guards hold, as a new reference, moved to the front; NULL if there is none, with *error set if
 * an exception is. Entries that can never hold again are dropped on the way. */
GuardedCode *slot_lookup(Slot *slot, const GuardInput *input, int *error)
{
    *error = 0;
    if (!slot_has_entries(slot)) {
        return NULL;
    }
    Py_INCREF(slot);
    PyObject *entries = Py_NewRef(slot->entries);
    GuardedCode *found = NULL;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(entries); i++) {
        GuardedCode *entry = (GuardedCode *)PyTuple_GET_ITEM(entries, i);
        int answer = entry_check(entry, input);
        if (answer > 0) {
            found = (GuardedCode *)Py_NewRef(entry);
            entry->hits++;
            if (i > 0 && slot->entries == entries && slot_rebuild(slot, entries, entry, entry) < 0) {
                PyErr_Clear(); /* only the order suffers */
            }
            break;
        }
        if (answer < 0) {
            *error = 1;
            break;
        }
        if (!entry_is_valid(entry) && slot->entries != NULL && slot_rebuild(slot, slot->entries, entry, NULL) < 0) {
            PyErr_Clear();
        }
    }
    Py_DECREF(entries);
    Py_DECREF(slot);
    return found;
}

/* --- tables ------------------------------------------------------------------------------------------------------- */

static int table_traverse(Table *self, visitproc visit, void *arg)
{
    Py_VISIT(self->convert);
    for (Slot *slot = self->slots; slot != NULL; slot = slot->next_of_table) {
        Py_VISIT(slot);
    }
    return 0;
}

static int table_clear(Table *self)
{
    Py_CLEAR(self->convert);
    while (self->slots != NULL) {
        Slot *slot = self->slots;
        slot_unlink_from_table(slot);
        slot_unlink_from_code(slot);
        slot_clear(slot);
        Py_DECREF(slot);
    }
    return 0;
}

static void table_dealloc(Table *self)
{
    PyObject_GC_UnTrack(self);
    if (self->prev != NULL) {
        self->prev->next = self->next;
    } else {
        all_tables = self->next;
    }
    if (self->next != NULL) {
        self->next->prev = self->prev;
    }
    table_clear(self);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

/* A context that is copied or pickled starts without compiled code. */
static PyObject *table_reduce(PyObject *self, PyObject *unused)
{
    return Py_BuildValue("(O())", (PyObject *)Py_TYPE(Py_None));
}

static PyMethodDef table_methods[] = {
    {"__reduce__", table_reduce, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

PyTypeObject Table_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "dynamo._hook._Table",
    .tp_basicsize = sizeof(Table),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_dealloc = (destructor)table_dealloc,
    .tp_traverse = (traverseproc)table_traverse,
    .tp_clear = (inquiry)table_clear,
    .tp_methods = table_methods,
};

static Table *table_new(PyObject *context)
{
    Table *table = (Table *)Table_Type.tp_alloc(&Table_Type, 0);
    if (table == NULL) {
        return NULL;
    }
    table->context = context;
    table->next = all_tables;
    if (all_tables != NULL) {
        all_tables->prev = table;
    }
    all_tables = table;
    return table;
}

/* The context's table, as a new reference. NULL with an exception on failure, and without one if there is none and
 * `create` is 0. */
Table *table_of(PyObject *context, int create)
{
    PyObject *found = NULL, *key, *home;
    if (PyObject_HasAttr(context, dict_attribute) && !PyType_Check(context)) {
        home = PyObject_GetAttr(context, dict_attribute);
        key = Py_NewRef(table_attribute);
    } else {
        home = Py_NewRef(plain_contexts);
        key = PyLong_FromVoidPtr(context);
    }
    if (home == NULL || key == NULL) {
        goto done;
    }
    found = PyDict_Check(home) ? Py_XNewRef(PyDict_GetItemWithError(home, key)) : NULL;
    if (found == NULL && PyErr_Occurred()) {
        goto done;
    }
    if (found != NULL && (!Py_IS_TYPE(found, &Table_Type) || ((Table *)found)->context != context)) {
        Py_CLEAR(found); /* copied from another context together with its __dict__ */
    }
    if (found == NULL && create) {
        found = (PyObject *)table_new(context);
        if (found == NULL || PyObject_SetItem(home, key, found) < 0) {
            Py_CLEAR(found);
            goto done;
        }
        if (home == plain_contexts) {
            Py_INCREF(context); /* its id names the table from now on */
        }
    }
done:
    Py_XDECREF(home);
    Py_XDECREF(key);
    return (Table *)found;
}

/* Forget all compiled code and skip marks; contexts and slots stay. */
void reset_all_tables(void)
{
    /* Freeing entries may run Python code that makes or frees tables, so they are first collected. */
    PyObject *doomed = PyList_New(0);
    if (doomed == NULL) {
        PyErr_Clear();
    }
    for (Table *table = all_tables; table != NULL; table = table->next) {
        for (Slot *slot = table->slots; slot != NULL; slot = slot->next_of_table) {
            slot->skip = SKIP_NOT;
            PyObject *entries = slot->entries;
            slot->entries = NULL;
            if (entries != NULL && (doomed == NULL || PyList_Append(doomed, entries) < 0)) {
                PyErr_Clear();
                continue; /* out of memory: leaked rather than freed while the lists are walked */
            }
            Py_XDECREF(entries);
        }
    }
    Py_XDECREF(doomed);
}

int cache_init(void)
{
    table_attribute = PyUnicode_InternFromString(TABLE_ATTRIBUTE);
    dict_attribute = PyUnicode_InternFromString("__dict__");
    plain_contexts = PyDict_New();
    extra_index = CODE_EXTRA_INDEX(code_freed);
    if (table_attribute == NULL || dict_attribute == NULL || plain_contexts == NULL) {
        return -1;
    }
    if (extra_index < 0) {
        PyErr_SetString(PyExc_ImportError, "no code-extra index is left for the frame hook");
        return -1;
    }
    return 0;
}
