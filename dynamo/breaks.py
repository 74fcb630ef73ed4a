"""Every reason for a graph break, as a class with a stable code, a text and a hint.

The text is a str.format template over the constructor's positional arguments.
"""

from __future__ import annotations

from typing import ClassVar


class Break:
    """The reason for a graph break. `str()` is the text; `code` is stable across releases; `hint`
    says how to remove the break.
    """

    code: ClassVar[str]
    text: ClassVar[str]
    hint: ClassVar[str]

    def __init__(self, *details: object) -> None:
        self.details = tuple(str(d) for d in details)

    def __str__(self) -> str:
        return self.text.format(*self.details)


def _reason(name: str, code: str, text: str, hint: str) -> type[Break]:
    return type(name, (Break,), {"code": code, "text": text, "hint": hint, "__doc__": text})


UnknownType = _reason(
    "UnknownType",
    "UNKNOWN_TYPE",
    "the type of {0} is not known while capturing",
    "move the expression out of the compiled function",
)
NotConstant = _reason(
    "NotConstant",
    "NOT_CONSTANT",
    "{0} is needed as a Python constant, and it is not one",
    "compute the value outside the compiled function and pass it in",
)
NotGraphArgument = _reason(
    "NotGraphArgument",
    "NOT_GRAPH_ARGUMENT",
    "{0} cannot be an argument of a tensor operation",
    "pass tensors, numbers, or containers of them",
)
AttributeAccess = _reason(
    "AttributeAccess",
    "ATTRIBUTE_ACCESS",
    "attribute {1!r} of {0} cannot be read while capturing",
    "read the attribute outside the compiled function",
)
AttributeMutation = _reason(
    "AttributeMutation",
    "ATTRIBUTE_MUTATION",
    "attribute {1!r} of {0} cannot be changed while capturing",
    "change the attribute outside the compiled function",
)
NotCallable = _reason(
    "NotCallable",
    "NOT_CALLABLE",
    "a call of {0}, which capture cannot make",
    "make the object outside the compiled function and pass it in",
)
UnknownTruth = _reason(
    "UnknownTruth",
    "UNKNOWN_TRUTH",
    "the truth value of {0} is not known while capturing",
    "use torch.where or torch.cond, or move the branch out of the compiled function",
)
NotSized = _reason(
    "NotSized",
    "NOT_SIZED",
    "the length of {0} is not known while capturing",
    "pass a list, tuple or dict",
)
ItemAccess = _reason(
    "ItemAccess",
    "ITEM_ACCESS",
    "items of {0} cannot be read while capturing",
    "read the item outside the compiled function",
)
ItemMutation = _reason(
    "ItemMutation",
    "ITEM_MUTATION",
    "items of {0} cannot be changed while capturing",
    "change the item outside the compiled function",
)
NotIterable = _reason(
    "NotIterable",
    "NOT_ITERABLE",
    "{0} cannot be iterated while capturing",
    "turn it into a list outside the compiled function",
)
CannotReconstruct = _reason(
    "CannotReconstruct",
    "CANNOT_RECONSTRUCT",
    "{0} lives across a graph break and cannot be made again",
    "make it after the break, or pass it in as an argument",
)
UnsupportedOpcode = _reason(
    "UnsupportedOpcode",
    "UNSUPPORTED_OPCODE",
    "the instruction {0} is not captured",
    "move the statement out of the compiled function",
)
UnknownObject = _reason(
    "UnknownObject",
    "UNKNOWN_OBJECT",
    "an object of type {0} cannot be used while capturing",
    "use it outside the compiled function",
)
LoopLimit = _reason(
    "LoopLimit",
    "LOOP_LIMIT",
    "capture executed more than {0} instructions in one frame",
    "compile the body of the loop, or raise dynamo.config.loop_limit",
)
ManyItems = _reason(
    "ManyItems",
    "MANY_ITEMS",
    "all {0} items of a container from outside are asked for, each of which would be guarded",
    "ask for a few of them, or keep them in a tensor",
)
InlineDepth = _reason(
    "InlineDepth",
    "INLINE_DEPTH",
    "calls are nested deeper than {0}",
    "make the recursion shallower, or raise dynamo.config.inline_depth_limit",
)
DataDependentJump = _reason(
    "DataDependentJump",
    "DATA_DEPENDENT_JUMP",
    "a branch depends on the value of a tensor ({0})",
    "use torch.where; or have both sides compute nothing but numbers, and tensors of the same "
    "shapes and dtypes, which one graph can hold (dynamo.config.capture_branches)",
)
DataDependentValue = _reason(
    "DataDependentValue",
    "DATA_DEPENDENT_VALUE",
    "{0} needs the value of a tensor",
    "keep the value in a tensor, read it outside the compiled function, or let the graph hold it: "
    "fullgraph=True, or dynamo.config.capture_scalar_outputs",
)
DynamicShapeOp = _reason(
    "DynamicShapeOp",
    "DYNAMIC_SHAPE_OP",
    "the shape of the result of {0} depends on the values of a tensor",
    "use an operation with a fixed result shape (torch.where with three arguments, a mask), or "
    "compute on the result as a whole, which the graph can hold: no comprehension over its rows",
)
OpError = _reason(
    "OpError",
    "OP_ERROR",
    "{0} fails on these arguments: {1}",
    "the operation runs eagerly and raises its own error",
)
UncapturedCall = _reason(
    "UncapturedCall",
    "UNCAPTURED_CALL",
    "a call of {0}, which capture does not look into",
    "remove the call or move it out of the compiled function; if it only computes tensors from "
    "tensors, register it with dynamo.allow_in_graph",
)
DisabledCall = _reason(
    "DisabledCall",
    "DISABLED_CALL",
    "a call of {0}, for which compilation is disabled",
    "remove the disable, or call it outside the compiled function",
)
LeftToPython = _reason(
    "LeftToPython",
    "LEFT_TO_PYTHON",
    "a call of {0}, which runs as it is: {1}",
    "call it outside the compiled function, or use another one; functions that are passed to the "
    "call are compiled anyway",
)
RequestedBreak = _reason(
    "RequestedBreak",
    "REQUESTED_BREAK",
    "graph_break() was called: {0}",
    "remove the call",
)
TensorMetadata = _reason(
    "TensorMetadata",
    "TENSOR_METADATA",
    "{0} changes the sizes, the storage or the autograd state of a tensor in place",
    "make a new tensor instead (t.t(), t.detach()), or do it outside the compiled function",
)
InferenceMode = _reason(
    "InferenceMode",
    "INFERENCE_MODE",
    "a block of torch.inference_mode that the graph does not enter and leave by its own manager",
    "write the block as `with torch.inference_mode():`, without a graph break in it",
)
NumpyConversion = _reason(
    "NumpyConversion",
    "NUMPY_CONVERSION",
    "{0} leaves torch for numpy, which capture does not look into",
    "use torch operations instead of numpy",
)
UncaughtException = _reason(
    "UncaughtException",
    "UNCAUGHT_EXCEPTION",
    "the code raises {0} and does not catch it",
    "this is the program's own exception",
)
ModuleImport = _reason(
    "ModuleImport",
    "MODULE_IMPORT",
    "the module {0} is imported for the first time",
    "import it outside the compiled function",
)
SetOrder = _reason(
    "SetOrder",
    "SET_ORDER",
    "the order of {0} depends on where its members are in memory",
    "use a dict or a list, which keep the order of insertion, or sort the members",
)
OutsideIterator = _reason(
    "OutsideIterator",
    "OUTSIDE_ITERATOR",
    "the loop asks for the next item of {0}, which existed before",
    "pass the container and loop over that",
)
NextTurn = _reason(
    "NextTurn",
    "NEXT_TURN",
    "the next turn of a loop with a graph break inside: {0} is asked for its next item",
    "remove the graph break inside the loop; this one follows from it, and is not reported",
)
ReadsLocals = _reason(
    "ReadsLocals",
    "READS_LOCALS",
    "{0} reads its own local variables by locals(), eval(), exec() or a frame's f_locals",
    "do that in a function of its own, which is not captured",
)
NoGraphs = _reason(
    "NoGraphs",
    "NO_GRAPHS",
    "{0} broke {1} times in a row without a tensor operation in between: its rest runs as it is",
    "compile the functions that compute instead, or raise dynamo.config.no_graph_limit",
)
DataDependentLoop = _reason(
    "DataDependentLoop",
    "DATA_DEPENDENT_LOOP",
    "a loop reads values of tensors in each turn, with few operations ({0}) in between: it runs as "
    "it is",
    "keep the values in tensors, or, to have the turns in graphs, lower "
    "dynamo.config.data_dependent_loop_limit",
)
RaisingCalls = _reason(
    "RaisingCalls",
    "RAISING_CALLS",
    "{0} was captured for {1} calls that all raised: other calls run as they are",
    "check the arguments before the call, or raise dynamo.config.recompile_limit",
)
GeneratorFrame = _reason(
    "GeneratorFrame",
    "GENERATOR_FRAME",
    "{0} gives way in the middle to code that is not captured: its own frame runs as it is",
    "iterate over it (or await it) inside the compiled function; what it calls is captured anyway",
)
StopsEarly = _reason(
    "StopsEarly",
    "STOPS_EARLY",
    "{0} has effects, and a checkpoint around it may end its second run between them",
    "move the effects out of the checkpointed function, or give checkpoint early_stop=False",
)
RecursionLimit = _reason(
    "RecursionLimit",
    "RECURSION_LIMIT",
    "capture of {0} came to Python's recursion limit",
    "call the function from less deep, or raise the limit (sys.setrecursionlimit)",
)
DebuggerEntered = _reason(
    "DebuggerEntered",
    "DEBUGGER",
    "{0} stops the program here; the function runs as it is, line by line",
    "remove the breakpoint",
)
InternalFault = _reason(
    "InternalFault",
    "INTERNAL_FAULT",
    "a fault in capture: {0}",
    "please report it with the warning's text",
)
BodySideEffect = _reason(
    "BodySideEffect",
    "BODY_SIDE_EFFECT",
    "the body of a transform, branch or loop {0}, which exists outside of it",
    "return the new value from the body instead",
)
ChangedState = _reason(
    "ChangedState",
    "CHANGED_STATE",
    "{0} may see what the function has changed or printed before, which happens behind the graph",
    "change or print it after the call, or pass it as an argument",
)
WrittenState = _reason(
    "WrittenState",
    "WRITTEN_STATE",
    "{1} may be what {0} has written, which runs in the graph",
    "read it before the call, or return it from the function as a tensor",
)
OutsideHistory = _reason(
    "OutsideHistory",
    "OUTSIDE_HISTORY",
    "gradients are asked for where {0} has a history or hooks from outside the graph",
    "compute the tensor inside the compiled function, or ask for gradients outside of it",
)
BranchedGradients = _reason(
    "BranchedGradients",
    "BRANCHED_GRADIENTS",
    "a branch or loop on data decides {0}",
    "have both sides use the same tensors that require grad (torch.where chooses between results "
    "of both), or ask for gradients outside the compiled function",
)
ShownBefore = _reason(
    "ShownBefore",
    "SHOWN_BEFORE",
    "{0} can fail on the values of tensors, and what was printed must be seen before",
    "print after the operation, or outside the compiled function",
)
LostEffects = _reason(
    "LostEffects",
    "LOST_EFFECTS",
    "{0} can fail on the values of tensors, and effects before must be there then, but the frame "
    "could not run again: the graph writes to large tensors, or draws numbers",
    "change objects after the operation, or write to the large tensors after",
)
CaughtFailure = _reason(
    "CaughtFailure",
    "CAUGHT_FAILURE",
    "{0} can fail on the values of tensors inside a try block, and the graph writes to large "
    "tensors, or to gradients' history",
    "move the operation, or the writes, out of the try block's function",
)
ClassStatement = _reason(
    "ClassStatement",
    "CLASS_STATEMENT",
    "class {0} is made natively: {1}",
    "define the class outside the compiled function",
)
KeySideEffect = _reason(
    "KeySideEffect",
    "KEY_SIDE_EFFECT",
    "{0}, by which a dict or a set finds its items, {1}",
    "leave the methods of keys without effects",
)
BodyRaises = _reason(
    "BodyRaises",
    "BODY_RAISES",
    "the body of a transform, branch or loop raises {0}, which is caught outside of it",
    "check the arguments before the call, outside of the body",
)
MadeCoroutine = _reason(
    "MadeCoroutine",
    "MADE_COROUTINE",
    "a call of {0} makes a coroutine or an asynchronous generator",
    "compile the functions that the coroutine calls, and leave the awaiting to eager code",
)
HandledOutside = _reason(
    "HandledOutside",
    "HANDLED_OUTSIDE",
    "a caller is handling {0}, which an exception raised or asked for here leads back to",
    "leave the `except` block before the call, or do not raise an exception in it",
)
ObjectDies = _reason(
    "ObjectDies",
    "OBJECT_DIES",
    "{0} may end here, which a finalizer or a weak reference notices",
    "drop the object outside the compiled function",
)
