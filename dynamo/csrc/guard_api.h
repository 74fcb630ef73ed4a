/* The guard tree as the frame hook sees it: a plain C table behind the capsule `dynamo._guards._C_API`.
 *
 *     const GuardApi *api = PyCapsule_Import(GUARD_API_CAPSULE, 0);
 *     if (api == NULL || api->version != GUARD_API_VERSION) ...
 *
 * All functions need the GIL. They may run arbitrary Python code (attribute and predicate guards), so the
 * caller keeps every object that it passes alive during the call, and its own entry as well.
 */
#ifndef FRAMEGRAPH_GUARD_API_H
#define FRAMEGRAPH_GUARD_API_H

#include <Python.h>

#define GUARD_API_CAPSULE "dynamo._guards._C_API"
#define GUARD_API_VERSION 1

typedef struct {
    int version;

    /* Does the frame meet the guards?  1: yes, 0: no, -1: an exception is set that must propagate
     * (KeyboardInterrupt and the like; an ordinary exception inside a guard means "no").
     *
     * fast_locals: n values of the frame's fast locals at function entry, indexed as co_varnames; a NULL
     *   entry is an unbound local (every guard on it fails).
     * globals, builtins: the frame's dicts. closure: the function's tuple of cells, or NULL.
     * Called with no exception set. A tree that is no longer valid answers 0. */
    int (*check)(PyObject *tree, PyObject *const *fast_locals, Py_ssize_t n, PyObject *globals,
                 PyObject *builtins, PyObject *closure);

    /* 0 once an object that the tree holds weakly has died: it can never pass again, drop the entry. */
    int (*is_valid)(PyObject *tree);

    /* 1 if obj is a guard tree. The functions above do not check. */
    int (*is_tree)(PyObject *obj);
} GuardApi;

#endif
