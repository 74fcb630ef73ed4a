"""A process that compiles Triton kernels: `python triton_worker.py`, started by cubin.py.

Reads a job a line, as JSON, and answers each with a line: the figures of the kernel, whose machine
code is in the job's file, or the error's text.
"""

from __future__ import annotations

import contextlib
import json
import linecache
import re
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


def packages_without_torch() -> None:
    """Register stub packages, so that kernels can import inductor.runtime.triton_math, which needs
    Triton alone, without the real package's import of torch, which takes seconds.
    """
    for name, folder in (("inductor", HERE.parent), ("inductor.runtime", HERE)):
        package = types.ModuleType(name)
        package.__path__ = [str(folder)]
        sys.modules[name] = package


def function(source: str, name: str) -> Any:
    """The @triton.jit function in a kernel's text."""
    file = f"<{name}>"
    # Triton compiles from source lines, which it looks up by file name.
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    namespace: dict[str, Any] = {"__name__": "framegraph_kernels", "__file__": file}
    exec(compile(source, file, "exec"), namespace)
    return namespace[name]


def compiled(job: dict[str, Any]) -> dict[str, Any]:
    """Compile one kernel into job["file"]; its figures."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    kernel = job["kernel"]
    signature = kernel["signature"]
    aligned = [["tt.divisibility", 16]]
    pointers = [k for k, kind in enumerate(signature.values()) if kind.startswith("*")]
    multiples = [k for k, name in enumerate(signature) if name in kernel["divisible"]]
    multiples += pointers if job["aligned"] else []
    constants = kernel["constants"] | ({} if job["aligned"] else kernel["careful"])
    source = ASTSource(
        fn=function(kernel["source"], kernel["name"]),
        signature=signature,
        constexprs=constants,
        attrs={(k,): aligned for k in multiples},
    )
    made = triton.compile(
        source,
        target=GPUTarget("cuda", int(job["target"].removeprefix("sm_")), 32),
        options={
            "num_warps": kernel["warps"],
            "num_stages": kernel["stages"],
            # Eager does not contract a * b + c into one rounding.
            "enable_fp_fusion": kernel["contract"],
            "enable_reflect_ftz": False,  # nor does a subnormal number count as 0
        },
    )
    about = made.metadata
    unknown = {"profile_scratch_size": 0, "launch_cooperative_grid": 0}
    for name, most in {"global_scratch_size": kernel["scratch"], **unknown}.items():
        if (getattr(about, name, 0) or 0) > most:
            raise NotImplementedError(f"a kernel with {name}")
    image = made.asm["cubin"]
    Path(job["file"]).write_bytes(image)
    given = sum(kind != "constexpr" for kind in signature.values())
    return {
        "symbol": about.name,
        "warps": about.num_warps,
        "shared": about.shared,
        # The first one is the scratch memory's address, which a plan passes if there is any.
        "hidden": parameters(made.asm["ptx"], about.name) - given - bool(kernel["scratch"]),
        **resources(Path(triton.__file__).parent, job["file"]),
    }


def parameters(ptx: str, name: str) -> int:
    """How many the function takes: Triton appends some of its own."""
    head = re.search(rf"\.entry {re.escape(name)}\((.*?)\)", ptx, re.DOTALL)
    assert head is not None, "Triton's assembly has no such function"
    return head[1].count(".param")


def resources(triton: Path, file: str) -> dict[str, int]:
    """Registers of a thread, and bytes spilled to memory."""
    tool = triton / "backends" / "nvidia" / "bin" / "cuobjdump"
    shown = ""
    with contextlib.suppress(OSError, subprocess.SubprocessError):  # figures alone are missing
        command = [str(tool), "-res-usage", file]
        shown = subprocess.run(command, capture_output=True, text=True, timeout=60).stdout
    found = dict(re.findall(r"\b(REG|STACK|LOCAL):(\d+)", shown))
    return {
        "registers": int(found.get("REG", 0)),
        "spills": int(found.get("STACK", 0)) + int(found.get("LOCAL", 0)),
    }


def main() -> None:
    packages_without_torch()
    answers, sys.stdout = sys.stdout, sys.stderr  # Triton prints
    for line in sys.stdin:
        try:
            answer = compiled(json.loads(line))
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
