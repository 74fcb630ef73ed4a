/* The state of each thread, the evaluation function of the interpreter, and the lock around compilation. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* pthread_getattr_np */
#endif
#include "hook.h"

#include <pthread.h>
#include <unistd.h>

_Thread_local Thread current_thread;
MissPolicy miss_policy = MISS_COMPILE;

/* The evaluation function that was there before ours. */
static _PyFrameEvalFunction previous_eval = NULL;
/* Threads inside a scope. */
static int users = 0;

static inline _PyFrameEvalFunction installed_eval(void)
{
    return _PyInterpreterState_GetEvalFrameFunc(PyThreadState_Get()->interp);
}

static void install(_PyFrameEvalFunction eval)
{
    _PyInterpreterState_SetEvalFrameFunc(PyThreadState_Get()->interp, eval);
}

static void uninstall_if_on_top(void)
{
    /* With another hook above ours there is nothing to undo: it puts ours back when it leaves, and hook_heal then
     * removes it. */
    if (installed_eval() == hook_eval) {
        install(previous_eval);
    }
}

/* Put our function on top for the code that follows; `saved` remembers what it covers. */
void scope_open(Thread *thread, Saved *saved)
{
    if (thread->depth++ == 0) {
        users++;
    }
    _PyFrameEvalFunction installed = installed_eval();
    saved->over = installed == hook_eval ? NULL : installed;
    saved->before = previous_eval;
    if (saved->over != NULL) {
        previous_eval = installed;
        install(hook_eval);
    }
}

void scope_close(Thread *thread, const Saved *saved)
{
    if (--thread->depth == 0) {
        if (--users == 0) {
            uninstall_if_on_top();
        }
    } else if (saved->over != NULL && installed_eval() == hook_eval) {
        install(saved->over);
        previous_eval = saved->before;
    }
}

/* Open a scope under `mode`; `saved` gets what to give to mode_leave. */
void mode_enter(Thread *thread, const Mode *mode, Saved *saved)
{
    saved->mode = thread->mode;
    Py_XINCREF(mode->table);
    Py_XINCREF(mode->context);
    Py_XINCREF(mode->convert);
    thread->mode = *mode;
    scope_open(thread, saved);
}

void mode_leave(Thread *thread, Saved *saved)
{
    Mode left = thread->mode;
    thread->mode = saved->mode;
    scope_close(thread, saved);
    Py_XDECREF(left.table);
    Py_XDECREF(left.context);
    Py_XDECREF(left.convert);
}

/* Is an evaluation function installed that is neither the interpreter's nor ours? */
int hook_foreign(void)
{
    _PyFrameEvalFunction installed = installed_eval();
    return installed != _PyEval_EvalFrameDefault && installed != hook_eval;
}

int hook_installed(void)
{
    return installed_eval() == hook_eval;
}

/* While this thread runs code that needs no hook, take the hook out: the interpreter inlines Python calls only without
 * one. Not if another thread or another evaluation function depends on it. */
int hook_suspend(void)
{
    if (users == 1 && previous_eval == _PyEval_EvalFrameDefault && installed_eval() == hook_eval) {
        install(_PyEval_EvalFrameDefault);
        return 1;
    }
    return 0;
}

void hook_resume(int suspended)
{
    if (suspended && users > 0 && installed_eval() == _PyEval_EvalFrameDefault) {
        install(hook_eval);
    }
}

/* Another evaluation function may put ours back after we have left. */
void hook_heal(void)
{
    if (users == 0) {
        uninstall_if_on_top();
    }
}

/* Run a frame that is not ours to change, by whatever evaluation function comes after ours. */
PyObject *eval_next(Thread *thread, PyThreadState *tstate, Frame *frame, int throwflag)
{
    /* The frame comes back to us when the other function chains to ours as well (each was installed over the other). */
    if (thread->sealed || previous_eval == _PyEval_EvalFrameDefault || previous_eval == NULL ||
        previous_eval == hook_eval || thread->chained == frame) {
        return _PyEval_EvalFrameDefault(tstate, frame, throwflag);
    }
    Frame *outer = thread->chained;
    thread->chained = frame;
    PyObject *result = previous_eval(tstate, frame, throwflag);
    thread->chained = outer;
    return result;
}

#define STACK_MARGIN (256 * 1024)

static void find_stack(Thread *thread)
{
    char *low = NULL;
    size_t size = 0;
#if defined(__linux__)
    pthread_attr_t attributes;
    void *address = NULL;
    if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
        if (pthread_attr_getstack(&attributes, &address, &size) == 0) {
            low = address;
        }
        pthread_attr_destroy(&attributes);
    }
#elif defined(__APPLE__)
    size = pthread_get_stacksize_np(pthread_self());
    low = (char *)pthread_get_stackaddr_np(pthread_self()) - size;
#endif
    thread->stack_low = low;
    thread->stack_limit = low == NULL ? (char *)1 : low + (size / 4 < STACK_MARGIN ? size / 4 : STACK_MARGIN);
}

/* With an evaluation function installed every Python call uses C stack, and a raised recursion limit no longer guards
 * against its end. 1 if little is left; a stack that is not the thread's own is not judged. */
int stack_exhausted(Thread *thread)
{
    if (thread->stack_limit == NULL) {
        find_stack(thread);
    }
    char *here = __builtin_frame_address(0);
    return here < thread->stack_limit && here >= thread->stack_low;
}

/* One thread compiles at a time; it may enter again. Waiting lets other threads run, and can be interrupted. */
static struct {
    PyThread_type_lock lock;
    unsigned long owner;
    int depth;
    pid_t pid;
} convert_lock;

int convert_lock_acquire(void)
{
    unsigned long me = PyThread_get_thread_ident();
    if (convert_lock.depth > 0 && convert_lock.owner == me && convert_lock.pid == getpid()) {
        convert_lock.depth++;
        return 0;
    }
    if (convert_lock.lock == NULL || convert_lock.pid != getpid()) {
        /* The first time, or in a forked child, where the thread that held the lock does not exist. */
        convert_lock.lock = PyThread_allocate_lock();
        if (convert_lock.lock == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        convert_lock.depth = 0;
        convert_lock.pid = getpid();
    }
    PyLockStatus status = PyThread_acquire_lock_timed(convert_lock.lock, 0, 0);
    while (status != PY_LOCK_ACQUIRED) {
        Py_BEGIN_ALLOW_THREADS
        status = PyThread_acquire_lock_timed(convert_lock.lock, -1, 1);
        Py_END_ALLOW_THREADS
        if (status == PY_LOCK_INTR && PyErr_CheckSignals() < 0) {
            return -1;
        }
    }
    convert_lock.owner = me;
    convert_lock.depth = 1;
    return 0;
}

void convert_lock_release(void)
{
    if (convert_lock.depth > 0 && --convert_lock.depth == 0) {
        PyThread_release_lock(convert_lock.lock);
    }
}
