/* Everything that differs between CPython 3.11, 3.12 and 3.13; no other C file looks at PY_VERSION_HEX.
 *
 * The hook never builds a frame of its own. A frame that has not started yet is *retargeted*: its code and function
 * are exchanged, and its arguments stay where they are, since new code has the parameters of the old one. At function
 * entry nothing but the parameters is bound: cells are made and free variables are copied by the code's own first
 * instructions. The interpreter then runs and frees the frame as it would any other.
 */
#ifndef FRAMEGRAPH_COMPAT_H
#define FRAMEGRAPH_COMPAT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <opcode.h>

#ifdef Py_GIL_DISABLED
#error "the frame hook needs the GIL; free-threaded builds are not supported"
#endif
#if PY_VERSION_HEX < 0x030b0000 || PY_VERSION_HEX >= 0x030e0000
#error "the frame hook supports CPython 3.11, 3.12 and 3.13"
#endif

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wextra"
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wsign-compare"
#define Py_BUILD_CORE
#include <internal/pycore_frame.h>
#undef Py_BUILD_CORE
#pragma GCC diagnostic pop

typedef struct _PyInterpreterFrame Frame;

/* Names that differ. */

#if PY_VERSION_HEX >= 0x030c0000
#define CODE_EXTRA_INDEX PyUnstable_Eval_RequestCodeExtraIndex
#define CODE_GET_EXTRA PyUnstable_Code_GetExtra
#define CODE_SET_EXTRA PyUnstable_Code_SetExtra
#else
#define CODE_EXTRA_INDEX _PyEval_RequestCodeExtraIndex
#define CODE_GET_EXTRA _PyCode_GetExtra
#define CODE_SET_EXTRA _PyCode_SetExtra
#endif

#if PY_VERSION_HEX >= 0x030d0000
#define IS_FINALIZING Py_IsFinalizing
#else
#define IS_FINALIZING _Py_IsFinalizing
#endif

/* Reading a frame. */

static inline PyCodeObject *frame_code(Frame *frame)
{
#if PY_VERSION_HEX >= 0x030d0000
    return (PyCodeObject *)frame->f_executable;
#else
    return frame->f_code;
#endif
}

static inline PyFunctionObject *frame_function(Frame *frame)
{
#if PY_VERSION_HEX >= 0x030c0000
    return (PyFunctionObject *)frame->f_funcobj;
#else
    return frame->f_func;
#endif
}

static inline PyObject **frame_locals(Frame *frame)
{
    return frame->localsplus;
}

/* Is this a call of a plain Python function of which no instruction has run yet? Generators that are resumed, class
 * bodies and module code are not. */
static inline int frame_is_fresh_call(Frame *frame)
{
    if (frame->owner != FRAME_OWNED_BY_THREAD || frame->f_locals != NULL) {
        return 0;
    }
    PyCodeObject *code = frame_code(frame);
    if ((code->co_flags & (CO_OPTIMIZED | CO_NEWLOCALS)) != (CO_OPTIMIZED | CO_NEWLOCALS)) {
        return 0;
    }
#if PY_VERSION_HEX >= 0x030d0000
    return frame->instr_ptr == _PyCode_CODE(code);
#else
    return frame->prev_instr == _PyCode_CODE(code) - 1;
#endif
}

/* The frame that is running, from which f_back and sys._getframe start. */

static inline Frame **current_frame(PyThreadState *tstate)
{
#if PY_VERSION_HEX >= 0x030d0000
    return &tstate->current_frame;
#else
    return &tstate->cframe->current_frame;
#endif
}

/* Changing a frame that has not started. */

/* Point the frame at the start of `code`, with `stacktop` live values. Steals nothing; the old code's reference goes. */
static inline void frame_set_code(Frame *frame, PyCodeObject *code, int stacktop)
{
    PyCodeObject *old = frame_code(frame);
#if PY_VERSION_HEX >= 0x030d0000
    frame->f_executable = Py_NewRef(code);
    frame->instr_ptr = _PyCode_CODE(code);
#else
    frame->f_code = (PyCodeObject *)Py_NewRef(code);
    frame->prev_instr = _PyCode_CODE(code) - 1;
#endif
    frame->stacktop = stacktop;
    Py_DECREF(old);
}

static inline void frame_set_function(Frame *frame, PyFunctionObject *function)
{
    PyFunctionObject *old = frame_function(frame);
#if PY_VERSION_HEX >= 0x030c0000
    frame->f_funcobj = Py_NewRef(function);
#else
    frame->f_func = (PyFunctionObject *)Py_NewRef(function);
#endif
    frame->f_globals = function->func_globals;
    frame->f_builtins = function->func_builtins;
    Py_DECREF(old);
}

/* Make the frame a call of `function`, which takes the same parameters. 1: done; 0: its stack chunk has no room for
 * the new code's locals and stack (nothing has changed then). */
static inline int frame_retarget(PyThreadState *tstate, Frame *frame, PyFunctionObject *function)
{
    PyCodeObject *old = frame_code(frame);
    PyCodeObject *code = (PyCodeObject *)function->func_code;
    int old_slots = old->co_nlocalsplus + old->co_stacksize;
    int slots = code->co_nlocalsplus + code->co_stacksize;
    if (slots > old_slots) {
        if (frame->localsplus + old_slots != tstate->datastack_top ||
            frame->localsplus + slots >= tstate->datastack_limit) {
            return 0;
        }
        tstate->datastack_top = frame->localsplus + slots;
    }
    for (int i = old->co_nlocalsplus; i < code->co_nlocalsplus; i++) {
        frame->localsplus[i] = NULL;
    }
    frame_set_code(frame, code, code->co_nlocalsplus);
    frame_set_function(frame, function);
    return 1;
}

/* Giving a frame up.
 *
 * Until 3.11 whoever made the frame frees it, so an evaluation function may just return. Since 3.12 evaluating a frame
 * frees it, and the functions that do so are private to the interpreter: the frame is emptied and made to run
 * `return_code`, one RETURN_VALUE that pops the None put on its stack. */

static inline PyCodeObject *make_return_code(void)
{
    PyCodeObject *empty = PyCode_NewEmpty(__FILE__, "discarded frame", 1);
    if (empty == NULL) {
        return NULL;
    }
    char instructions[2] = {(char)RETURN_VALUE, 0};
    PyObject *replace = PyObject_GetAttrString((PyObject *)empty, "replace");
    PyObject *args = PyTuple_New(0);
    PyObject *kwargs = Py_BuildValue("{s:y#,s:i}", "co_code", instructions, (Py_ssize_t)2, "co_stacksize", 1);
    PyObject *code = replace && args && kwargs ? PyObject_Call(replace, args, kwargs) : NULL;
    Py_DECREF(empty);
    Py_XDECREF(replace);
    Py_XDECREF(args);
    Py_XDECREF(kwargs);
    return (PyCodeObject *)code;
}

/* Free a frame that shall not run. The exception that is set, if any, stays set. */
static inline void frame_discard(PyThreadState *tstate, Frame *frame, PyCodeObject *return_code)
{
#if PY_VERSION_HEX >= 0x030c0000
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    int n = frame_code(frame)->co_nlocalsplus;
    for (int i = 0; i < n; i++) {
        Py_CLEAR(frame->localsplus[i]);
    }
    frame_set_code(frame, return_code, 1);
    frame->localsplus[0] = Py_NewRef(Py_None);
    PyObject *none = _PyEval_EvalFrameDefault(tstate, frame, 0);
    if (none == NULL) {
        PyErr_Clear(); /* too deep a recursion: the frame is freed all the same */
    }
    Py_XDECREF(none);
    PyErr_Restore(type, value, traceback);
#else
    (void)tstate, (void)frame, (void)return_code;
#endif
}

#endif
