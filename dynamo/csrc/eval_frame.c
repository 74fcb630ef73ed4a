/* The evaluation function: what happens to each frame while the hook is installed.
 *
 * A thread is in one of three states. Off: frames run as they are. Run: entries whose guards hold are used. Trace: and
 * where none does, `convert` is asked for one.
 */
#include "hook.h"

#include <stddef.h>

PyObject *null_sentinel, *skip_recursively;

static PyCodeObject *return_code;

/* --- the frame as convert sees it --------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    PyObject *code, *locals, *globals, *builtins, *closure, *function, *failed;
    PyObject *context;
} FrameView;

static int view_traverse(FrameView *self, visitproc visit, void *arg)
{
    Py_VISIT(self->code);
    Py_VISIT(self->locals);
    Py_VISIT(self->globals);
    Py_VISIT(self->builtins);
    Py_VISIT(self->closure);
    Py_VISIT(self->function);
    Py_VISIT(self->failed);
    Py_VISIT(self->context);
    return 0;
}

/* Also what ends the view's life: it must not keep the caller's arguments alive. */
static int view_clear(FrameView *self)
{
    Py_CLEAR(self->code);
    Py_CLEAR(self->locals);
    Py_CLEAR(self->globals);
    Py_CLEAR(self->builtins);
    Py_CLEAR(self->closure);
    Py_CLEAR(self->function);
    Py_CLEAR(self->failed);
    Py_CLEAR(self->context);
    return 0;
}

static void view_dealloc(FrameView *self)
{
    PyObject_GC_UnTrack(self);
    view_clear(self);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *view_get(FrameView *self, void *offset)
{
    PyObject *value = *(PyObject **)((char *)self + (size_t)offset);
    if (value == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "this frame has been converted; its view is no longer valid");
    }
    return Py_XNewRef(value);
}

#define VIEW(name, field, doc) {name, (getter)view_get, NULL, PyDoc_STR(doc), (void *)offsetof(FrameView, field)}

static PyGetSetDef view_getset[] = {
    VIEW("f_code", code, "The code object."),
    VIEW("f_locals_array", locals, "Values of co_varnames at function entry; NULL where unbound."),
    VIEW("f_globals", globals, "The dict of globals."),
    VIEW("f_builtins", builtins, "The dict of builtins."),
    VIEW("closure", closure, "The function's cells, in the order of co_freevars; () if it has none."),
    VIEW("function", function, "The function that is called."),
    VIEW("failed_entries", failed, "All entries of this code, most recently used first; the guards of each failed."),
    VIEW("context", context, "The compile context."),
    {NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject FrameView_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "dynamo._hook.Frame",
    .tp_doc = PyDoc_STR("A call that has not started, as convert sees it. Valid until convert returns."),
    .tp_basicsize = sizeof(FrameView),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_dealloc = (destructor)view_dealloc,
    .tp_traverse = (traverseproc)view_traverse,
    .tp_clear = (inquiry)view_clear,
    .tp_getset = view_getset,
};

/* Steals nothing. `failed` is a tuple of entries, or NULL. */
static FrameView *view_new(Frame *frame, PyObject *failed, PyObject *context)
{
    FrameView *view = (FrameView *)FrameView_Type.tp_alloc(&FrameView_Type, 0);
    if (view == NULL) {
        return NULL;
    }
    PyCodeObject *code = frame_code(frame);
    PyFunctionObject *function = frame_function(frame);
    view->code = Py_NewRef(code);
    view->globals = Py_NewRef(frame->f_globals);
    view->builtins = Py_NewRef(frame->f_builtins);
    view->function = Py_NewRef(function);
    view->closure = function->func_closure ? Py_NewRef(function->func_closure) : PyTuple_New(0);
    view->failed = failed ? PySequence_List(failed) : PyList_New(0);
    view->context = Py_NewRef(context);
    view->locals = PyTuple_New(code->co_nlocals);
    if (view->closure == NULL || view->failed == NULL || view->locals == NULL) {
        Py_DECREF(view);
        return NULL;
    }
    PyObject **locals = frame_locals(frame);
    for (int i = 0; i < code->co_nlocals; i++) {
        PyTuple_SET_ITEM(view->locals, i, Py_NewRef(locals[i] ? locals[i] : null_sentinel));
    }
    return view;
}

/* --- running an entry --------------------------------------------------------------------------------------------- */

/* The frame has no room for the new code: call the new function with the frame's arguments instead. */
static PyObject *call_instead(Thread *thread, Frame *frame, PyFunctionObject *function)
{
    PyCodeObject *code = frame_code(frame);
    PyObject **locals = frame_locals(frame);
    int named = code->co_argcount + code->co_kwonlyargcount;
    PyObject *varargs = code->co_flags & CO_VARARGS ? locals[named] : NULL;
    PyObject *varkw = code->co_flags & CO_VARKEYWORDS ? locals[named + !!varargs] : NULL;
    Py_ssize_t n_var = varargs ? PyTuple_GET_SIZE(varargs) : 0, n_kw = varkw ? PyDict_GET_SIZE(varkw) : 0;
    Py_ssize_t n_pos = code->co_argcount + n_var, n_names = code->co_kwonlyargcount + n_kw;
    PyObject *result = NULL;
    PyObject *names = PyTuple_New(n_names);
    PyObject **args = PyMem_New(PyObject *, n_pos + n_names + 1);
    if (names == NULL || args == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    Py_ssize_t k = 0, at = 0;
    for (int i = 0; i < code->co_argcount; i++) {
        args[k++] = locals[i];
    }
    for (Py_ssize_t i = 0; i < n_var; i++) {
        args[k++] = PyTuple_GET_ITEM(varargs, i);
    }
    for (int i = code->co_argcount; i < named; i++) {
        PyTuple_SET_ITEM(names, at++, Py_NewRef(PyTuple_GET_ITEM(code->co_localsplusnames, i)));
        args[k++] = locals[i];
    }
    PyObject *key, *value;
    for (Py_ssize_t pos = 0; at < n_names && PyDict_Next(varkw, &pos, &key, &value);) {
        PyTuple_SET_ITEM(names, at++, Py_NewRef(key));
        args[k++] = value;
    }
    thread->pass = (PyCodeObject *)function->func_code;
    thread->passing = frame;
    result = PyObject_Vectorcall((PyObject *)function, args, n_pos, n_names ? names : NULL);
    thread->pass = NULL;
    thread->passing = NULL;
done:
    Py_XDECREF(names);
    PyMem_Free(args);
    return result;
}

static PyObject *run_new_code(Thread *thread, PyThreadState *tstate, Frame *frame, PyFunctionObject *function)
{
    if (function->func_code == (PyObject *)frame_code(frame) || frame_retarget(tstate, frame, function)) {
        return _PyEval_EvalFrameDefault(tstate, frame, 0);
    }
    PyObject *result = call_instead(thread, frame, function);
    frame_discard(tstate, frame, return_code);
    return result;
}

/* Run the frame with the entry's code. Steals the entry. */
static PyObject *run_entry(Thread *thread, PyThreadState *tstate, Frame *frame, GuardedCode *entry)
{
    PyFunctionObject *function = entry_function(entry, frame_function(frame), NULL);
    int needs_hook = entry->needs_hook;
    Py_DECREF(entry);
    if (function == NULL) {
        frame_discard(tstate, frame, return_code);
        return NULL;
    }
    PyObject *result;
    if (needs_hook) {
        result = run_new_code(thread, tstate, frame, function);
    } else {
        State state = thread->mode.state;
        thread->mode.state = STATE_OFF;
        thread->sealed++;
        int suspended = hook_suspend();
        result = run_new_code(thread, tstate, frame, function);
        hook_resume(suspended);
        thread->sealed--;
        thread->mode.state = state;
    }
    Py_DECREF(function);
    return result;
}

/* --- the decision ------------------------------------------------------------------------------------------------- */

static PyObject *give_up(PyThreadState *tstate, Frame *frame)
{
    frame_discard(tstate, frame, return_code);
    return NULL;
}

/* Look the frame up in `slot`, with the hook off for guards that run Python code. */
static GuardedCode *frame_lookup(Thread *thread, Frame *frame, Slot *slot, int *error)
{
    PyFunctionObject *function = frame_function(frame);
    GuardInput input = {frame_locals(frame), code_parameters(frame_code(frame)), frame->f_globals, frame->f_builtins,
                        function->func_closure};
    State state = thread->mode.state;
    thread->mode.state = STATE_OFF;
    GuardedCode *entry = slot_lookup(slot, &input, error);
    thread->mode.state = state;
    return entry;
}

/* Call a function of the compiler's, in which nothing is captured. */
static PyObject *call_compiler(Thread *thread, PyObject *function, PyObject *first, PyObject *context)
{
    State state = thread->mode.state;
    thread->mode.state = STATE_OFF;
    thread->sealed++;
    thread->converting++;
    int suspended = hook_suspend();
    /* A debugger that steps into the user's function must not find itself in the compiler. Where nothing traces
     * yet, a breakpoint in the compiler or in a backend works. */
    int hushed = PyThreadState_Get()->c_tracefunc != NULL;
    if (hushed) {
        PyThreadState_EnterTracing(PyThreadState_Get());
    }
    thread->hushed += hushed;
    PyObject *args[] = {first, context};
    PyObject *result = PyObject_Vectorcall(function, args, 2, NULL);
    thread->hushed -= hushed;
    if (hushed) {
        PyThreadState_LeaveTracing(PyThreadState_Get());
    }
    hook_resume(suspended);
    thread->converting--;
    thread->sealed--;
    thread->mode.state = state;
    return result;
}

#define CALLS_AT_LIMIT 100

/* Capture came to the recursion limit: convert.at_limit(code, context), if there is such a function, says what becomes
 * of the frame. It gets a few calls more than the program. */
static PyObject *call_at_limit(Thread *thread, PyObject *convert, PyCodeObject *code, PyObject *context)
{
    PyErr_Clear();
    PyObject *at_limit = PyObject_GetAttrString(convert, "at_limit");
    if (at_limit == NULL) {
        PyErr_Clear();
        return Py_NewRef(Py_None);
    }
    int limit = Py_GetRecursionLimit();
    Py_SetRecursionLimit(limit + CALLS_AT_LIMIT);
    PyObject *result = call_compiler(thread, at_limit, (PyObject *)code, context);
    Py_SetRecursionLimit(limit);
    Py_DECREF(at_limit);
    return result;
}

static PyObject *call_convert(Thread *thread, Frame *frame, PyObject *failed)
{
    /* set_state may change the thread's mode meanwhile. */
    PyObject *convert = Py_NewRef(thread->mode.convert), *context = Py_NewRef(thread->mode.context);
    FrameView *view = view_new(frame, failed, context);
    PyObject *result = NULL;
    if (view != NULL) {
        result = call_compiler(thread, convert, (PyObject *)view, context);
        view_clear(view);
        Py_DECREF(view);
        if (result == NULL && PyErr_ExceptionMatches(PyExc_RecursionError)) {
            result = call_at_limit(thread, convert, frame_code(frame), context);
        }
    }
    Py_DECREF(convert);
    Py_DECREF(context);
    return result;
}

/* Mark the slot or add the entry, as convert's answer says; an entry without guards is for this call alone. Returns the entry to run, NULL for none; -1 in *error if an
 * exception is set. Steals `answer`, which may be NULL. */
static GuardedCode *take_answer(PyCodeObject *code, Slot *slot, PyObject *answer, int *error)
{
    *error = 0;
    if (answer == Py_None || answer == skip_recursively) {
        slot->skip = answer == Py_None ? SKIP_FRAME : SKIP_RECURSIVELY;
        Py_DECREF(answer);
        return NULL;
    }
    if (answer != NULL && Py_IS_TYPE(answer, &GuardedCode_Type)) {
        GuardedCode *entry = (GuardedCode *)answer;
        if (entry_matches(entry, code) && (entry->guard_tree == Py_None || slot_add(slot, entry) == 0)) {
            entry->hits++;
            return entry;
        }
    } else if (answer != NULL) {
        PyErr_Format(PyExc_TypeError, "convert must return a GuardedCode, SKIP_RECURSIVELY or None, not %.100s",
                     Py_TYPE(answer)->tp_name);
    }
    Py_XDECREF(answer);
    *error = -1;
    return NULL;
}

/* Ask convert, unless another thread did while this one waited. `seen`: the entries that failed (tuple or NULL).
 * Returns as take_answer does. */
static GuardedCode *compile_frame(Thread *thread, Frame *frame, Slot *slot, PyObject *seen, int *error)
{
    if (convert_lock_acquire() < 0) {
        *error = -1;
        return NULL;
    }
    *error = 0;
    GuardedCode *entry = NULL;
    if (slot->entries != seen && slot_has_entries(slot)) {
        entry = frame_lookup(thread, frame, slot, error);
    }
    if (entry == NULL && !*error && slot->skip == SKIP_NOT) {
        PyObject *failed = Py_XNewRef(slot->entries);
        PyObject *answer = call_convert(thread, frame, failed);
        Py_XDECREF(failed);
        entry = take_answer(frame_code(frame), slot, answer, error);
    }
    convert_lock_release();
    return entry;
}

/* "error" stance: nothing is compiled any more. Returns NULL. */
PyObject *raise_miss(PyCodeObject *code, int had_entries)
{
    PyObject *errors = PyImport_ImportModule("dynamo.errors");
    PyObject *type = errors ? PyObject_GetAttrString(errors, "RecompileLimitExceeded") : NULL;
    if (type == NULL) {
        PyErr_Clear();
    }
    PyErr_Format(type ? type : PyExc_RuntimeError, "%U (%U:%d) %s, and compiling is forbidden here", code->co_qualname,
                 code->co_filename, code->co_firstlineno,
                 had_entries ? "was called with arguments that no compiled version of it accepts"
                             : "has not been compiled");
    Py_XDECREF(errors);
    Py_XDECREF(type);
    return NULL;
}

static PyObject *run_skipped(Thread *thread, PyThreadState *tstate, Frame *frame, Skip skip)
{
    if (skip != SKIP_RECURSIVELY) {
        return eval_next(thread, tstate, frame, 0);
    }
    State state = thread->mode.state;
    thread->mode.state = STATE_OFF;
    PyObject *result = eval_next(thread, tstate, frame, 0);
    thread->mode.state = state;
    return result;
}

/* No entry serves the frame. The caller holds `slot`, which is NULL in run-only state, and `seen`, the slot's entries
 * that were tried. */
static PyObject *handle_miss(Thread *thread, PyThreadState *tstate, Frame *frame, Slot *slot, int had_entries,
                             PyObject *seen)
{
    PyCodeObject *code = frame_code(frame);
    Skip skip = slot ? slot->skip : SKIP_NOT;
    if (skip == SKIP_NOT && (had_entries || thread->mode.root == code) &&
        (thread->mode.error_on_miss || (thread->mode.state == STATE_TRACE && miss_policy == MISS_ERROR))) {
        State state = thread->mode.state;
        thread->mode.state = STATE_OFF;
        raise_miss(code, had_entries);
        thread->mode.state = state;
        return give_up(tstate, frame);
    }
    if (skip != SKIP_NOT || thread->mode.state != STATE_TRACE || miss_policy != MISS_COMPILE || IS_FINALIZING()) {
        return run_skipped(thread, tstate, frame, skip);
    }
    int error;
    GuardedCode *entry = compile_frame(thread, frame, slot, seen, &error);
    if (error) {
        return give_up(tstate, frame);
    }
    return entry ? run_entry(thread, tstate, frame, entry) : run_skipped(thread, tstate, frame, slot->skip);
}

/* Run-only without a context: the entries of every context serve. New reference as slot_lookup. */
static GuardedCode *lookup_anywhere(Thread *thread, Frame *frame, int *had_entries, int *error)
{
    GuardedCode *entry = NULL;
    Slot *slot = code_slots(frame_code(frame));
    Py_XINCREF(slot);
    *error = *had_entries = 0;
    while (slot != NULL && entry == NULL && !*error) {
        *had_entries |= slot_has_entries(slot);
        entry = frame_lookup(thread, frame, slot, error);
        Slot *next = slot->next_of_code; /* read now: guards may have changed the list */
        Py_XINCREF(next);
        Py_DECREF(slot);
        slot = next;
    }
    Py_XDECREF(slot);
    return entry;
}

/* A call of a Python function, in state run or trace. Kept out of hook_eval so that frames that are not ours cost no C
 * stack. */
static Py_NO_INLINE PyObject *eval_call(Thread *thread, PyThreadState *tstate, Frame *frame)
{
    Table *table = thread->mode.table;
    GuardedCode *entry;
    int error, had_entries;
    if (table == NULL) {
        entry = lookup_anywhere(thread, frame, &had_entries, &error);
        if (error) {
            return give_up(tstate, frame);
        }
        return entry ? run_entry(thread, tstate, frame, entry)
                     : handle_miss(thread, tstate, frame, NULL, had_entries, NULL);
    }
    PyCodeObject *code = frame_code(frame);
    Slot *slot = thread->mode.state == STATE_TRACE ? slot_get(code, table) : slot_find(code, table);
    if (slot == NULL) {
        return PyErr_Occurred() ? give_up(tstate, frame) : handle_miss(thread, tstate, frame, NULL, 0, NULL);
    }
    if (slot->skip != SKIP_NOT && !slot_has_entries(slot)) {
        return run_skipped(thread, tstate, frame, slot->skip);
    }
    Py_INCREF(slot);
    had_entries = slot_has_entries(slot);
    PyObject *seen = Py_XNewRef(slot->entries);
    entry = frame_lookup(thread, frame, slot, &error);
    PyObject *result;
    if (error) {
        result = give_up(tstate, frame);
    } else if (entry != NULL) {
        Py_CLEAR(seen);
        result = run_entry(thread, tstate, frame, entry);
    } else {
        result = handle_miss(thread, tstate, frame, slot, had_entries, seen);
    }
    Py_XDECREF(seen);
    Py_DECREF(slot);
    return result;
}

/* `frame` runs in the place of another one, which has handed its arguments over. */
static void leave_arguments(Thread *thread)
{
    Frame *frame = thread->passing;
    thread->passing = NULL;
    for (int i = 0; frame != NULL && i < frame_code(frame)->co_nlocalsplus; i++) {
        Py_CLEAR(frame->localsplus[i]);
    }
}

/* answered(function, value, callee, args, kwargs): callee(*args, **kwargs), in which the call of `function` returns
 * `value` without running. For C callables that keep what a function of the program returns. */
PyObject *answered(PyObject *module, PyObject *arguments)
{
    (void)module;
    PyObject *function, *value, *callee, *args, *kwargs;
    if (!PyArg_ParseTuple(arguments, "O!OOO!O!:answered", &PyFunction_Type, &function, &value, &callee, &PyTuple_Type,
                          &args, &PyDict_Type, &kwargs)) {
        return NULL;
    }
    Thread *thread = &current_thread;
    Answer outer = thread->answer;
    State state = thread->mode.state;
    Saved saved;
    scope_open(thread, &saved);
    thread->mode.state = STATE_OFF;
    thread->answer = (Answer){(PyCodeObject *)PyFunction_GET_CODE(function), value};
    PyObject *result = PyObject_Call(callee, args, kwargs);
    thread->answer = outer;
    thread->mode.state = state;
    scope_close(thread, &saved);
    return result;
}

/* A call from a hidden frame: the chain of frames leads past that one. */
static PyObject *eval_past(PyThreadState *tstate, Frame *frame, int throwflag, Frame *caller)
{
    *current_frame(tstate) = caller->previous;
    PyObject *result = hook_eval(tstate, frame, throwflag);
    *current_frame(tstate) = caller;
    return result;
}

PyObject *hook_eval(PyThreadState *tstate, Frame *frame, int throwflag)
{
    Thread *thread = &current_thread;
    Frame *caller = *current_frame(tstate);
    if (caller != NULL && is_hidden(caller->f_globals)) {
        return eval_past(tstate, frame, throwflag, caller);
    }
    if (thread->answer.code != NULL && thread->answer.code == frame_code(frame) && !throwflag) {
        thread->answer.code = NULL;
        PyObject *value = Py_NewRef(thread->answer.value);
        frame_discard(tstate, frame, return_code);
        return value;
    }
    if (thread->given.code != NULL && thread->given.code == frame_code(frame) && !throwflag) {
        take_given(thread, frame);
    }
    if (thread->pass != NULL && thread->pass == frame_code(frame)) {
        thread->pass = NULL;
        leave_arguments(thread);
        return _PyEval_EvalFrameDefault(tstate, frame, throwflag);
    }
    if (!throwflag && frame_is_fresh_call(frame)) {
        if (stack_exhausted(thread)) {
            PyErr_SetString(PyExc_RecursionError, "the C stack is nearly used up by calls inside a compiled function");
            return give_up(tstate, frame);
        }
        if (thread->mode.state != STATE_OFF) {
            return eval_call(thread, tstate, frame);
        }
    }
    if (thread->depth == 0) {
        hook_heal();
    }
    return eval_next(thread, tstate, frame, throwflag);
}

int eval_frame_init(void)
{
    return_code = make_return_code();
    return return_code == NULL ? -1 : 0;
}
