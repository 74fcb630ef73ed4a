/* What the C files of the frame hook share. Read in this order: thread.c, cache.c, eval_frame.c,
 * stealing_call.c, compiled.c, module.c.
 *
 * All of it runs under the GIL. The rule that keeps it sound: any call that may run Python code (a guard, convert, even
 * a DECREF) may also change or drop cache entries, so whatever is used afterwards is held by a reference of its own.
 */
#ifndef FRAMEGRAPH_HOOK_H
#define FRAMEGRAPH_HOOK_H

#include "compat.h"
#include "guard_api.h"

/* --- thread.c: the state of each thread, and the installed evaluation function ------------------------------------ */

typedef enum { STATE_OFF, STATE_RUN, STATE_TRACE } State;

/* What a miss (no entry whose guards hold) leads to; set by set_stance. */
typedef enum { MISS_COMPILE, MISS_EAGER, MISS_ERROR, MISS_FORCE_EAGER } MissPolicy;

typedef struct Table Table;

/* What frames are evaluated under. `table`, `context` and `convert` are strong references; with STATE_RUN they may be
 * NULL: then the entries of every context serve. */
typedef struct {
    State state;
    int error_on_miss;
    Table *table;
    PyObject *context;
    PyObject *convert;
    PyCodeObject *root; /* borrowed, compared only: the code of the function that the user compiled */
} Mode;

/* What mode_leave puts back. */
typedef struct {
    Mode mode;
    _PyFrameEvalFunction over;   /* the evaluation function that ours was put over, or NULL if ours was on top */
    _PyFrameEvalFunction before; /* and the one that ours chained to before */
} Saved;

/* Arguments that the frame of `code` which begins next takes from its caller; see stealing_call.c. */
typedef struct {
    PyCodeObject *code; /* borrowed, compared only; NULL: none */
    PyObject **args;
    Py_ssize_t n;
} Given;

/* What the frame of `code` which begins next returns instead of running; see answered in eval_frame.c. */
typedef struct {
    PyCodeObject *code; /* borrowed, compared only; NULL: none */
    PyObject *value;    /* borrowed */
} Answer;

typedef struct {
    Mode mode;
    Saved manual_scope; /* of set_state */
    int depth;      /* scopes that this thread is inside of; the hook stays installed while there is one */
    int manual;     /* one of them was opened by set_state */
    int sealed;     /* > 0: frames are run by the interpreter itself, not by another evaluation function */
    int hushed;     /* > 0: inside convert, with the user's trace function silenced */
    int converting; /* > 0: inside convert; compiled functions then run as their originals */
    PyCodeObject *pass; /* borrowed, compared only: a call of this code is compiled code that was just dispatched to */
    Frame *passing;     /* the frame whose arguments such a call has; NULL: they are a caller's */
    Given given;
    Answer answer;
    char *stack_low, *stack_limit; /* see stack_exhausted; NULL until known */
    Frame *chained;     /* the frame that was handed to the previous evaluation function */
} Thread;

extern _Thread_local Thread current_thread;
extern MissPolicy miss_policy;

void mode_enter(Thread *thread, const Mode *mode, Saved *saved);
void mode_leave(Thread *thread, Saved *saved);
void scope_open(Thread *thread, Saved *saved);
void scope_close(Thread *thread, const Saved *saved);
int hook_foreign(void);
int hook_installed(void);
int hook_suspend(void);
void hook_resume(int suspended);
void hook_heal(void);
PyObject *eval_next(Thread *thread, PyThreadState *tstate, Frame *frame, int throwflag);
int stack_exhausted(Thread *thread);
int convert_lock_acquire(void);
void convert_lock_release(void);

/* --- cache.c: entries by (code, context) -------------------------------------------------------------------------- */

typedef enum { SKIP_NOT, SKIP_FRAME, SKIP_RECURSIVELY } Skip;

/* The function that a callable made last, of an entry's code with cells and defaults of its own. */
typedef struct Made {
    PyFunctionObject *function; /* NULL: none */
    struct Made *next, **link;  /* of those of the entry, which forgets them at its end */
} Made;

typedef struct {
    PyObject_HEAD
    PyCodeObject *code;
    PyObject *guard_tree;
    PyObject *compile_id;
    PyFunctionObject *function; /* of the last call, see entry_function; may be NULL */
    Made *made;                 /* functions of callables; borrowed */
    char needs_hook;
    char tree_kind; /* 1: a guard tree, checked through the capsule; 0: a Python callable */
    char complained;
    unsigned long long hits;
    PyObject *weakrefs;
} GuardedCode;

/* The entries of one code object under one context. A table owns its slots; code objects list theirs without owning
 * them, so that compiled code goes with its context and is seen by the garbage collector. */
typedef struct Slot {
    PyObject_HEAD
    PyCodeObject *code; /* borrowed; NULL once the code object is gone */
    Table *table;       /* borrowed; NULL once the table is gone */
    PyObject *entries;  /* tuple of GuardedCode, most recently used first; replaced, never changed; may be NULL */
    Skip skip;
    struct Slot *next_of_code;
    struct Slot *next_of_table, *prev_of_table;
} Slot;

struct Table {
    PyObject_HEAD
    PyObject *context; /* borrowed, compared only: the context keeps its table in its __dict__ */
    PyObject *convert;
    Slot *slots;
    Table *next, *prev; /* all tables, for reset_all */
};

/* What guards look at. */
typedef struct {
    PyObject *const *locals;
    Py_ssize_t n;
    PyObject *globals, *builtins;
    PyObject *closure; /* may be NULL */
} GuardInput;

extern PyTypeObject GuardedCode_Type, Slot_Type, Table_Type;

int cache_init(void);
Table *table_of(PyObject *context, int create);
Slot *slot_find(PyCodeObject *code, Table *table);
Slot *slot_get(PyCodeObject *code, Table *table);
static inline int slot_has_entries(const Slot *slot)
{
    return slot != NULL && slot->entries != NULL && PyTuple_GET_SIZE(slot->entries) > 0;
}
GuardedCode *slot_lookup(Slot *slot, const GuardInput *input, int *error);
int slot_add(Slot *slot, GuardedCode *entry);
void slot_reset(Slot *slot);
Slot *code_slots(PyCodeObject *code);
void reset_all_tables(void);
int entry_matches(const GuardedCode *entry, PyCodeObject *code);
PyFunctionObject *entry_function(GuardedCode *entry, PyFunctionObject *original, Made *made);
void made_forget(Made *made);

/* The number of parameters, *args and **kwargs among them: the first so many fast locals. */
static inline int code_parameters(const PyCodeObject *code)
{
    return code->co_argcount + code->co_kwonlyargcount + !!(code->co_flags & CO_VARARGS) +
           !!(code->co_flags & CO_VARKEYWORDS);
}

/* --- eval_frame.c ------------------------------------------------------------------------------------------------- */

extern PyTypeObject FrameView_Type;
extern PyObject *null_sentinel, *skip_recursively;

int eval_frame_init(void);
PyObject *hook_eval(PyThreadState *tstate, Frame *frame, int throwflag);
PyObject *raise_miss(PyCodeObject *code, int had_entries);
PyObject *answered(PyObject *module, PyObject *arguments);

/* --- stealing_call.c ---------------------------------------------------------------------------------------------- */

extern PyTypeObject TailCall_Type, StealingCall_Type;

void take_given(Thread *thread, Frame *frame);
PyObject *make_stealing_call(int hides);
int hide_functions(PyObject *namespace);
int is_hidden(PyObject *namespace);
PyObject *next_item(PyObject *module, PyObject *iterator);

/* --- compiled.c: the callables ------------------------------------------------------------------------------------ */

extern PyTypeObject Compiled_Type, Scoped_Type;

int compiled_init(void);
PyObject *make_compiled(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
PyObject *make_scoped(PyObject *fn, State state, int error_on_miss);

#endif
