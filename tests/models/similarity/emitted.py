"""``python -m tests.models.similarity.emitted``: vectors of bytes in the search's loops, by instruction set, as JSON.

Numba compiles for the machine it runs on. With ``NUMBA_OPT=0`` it leaves LLVM's passes to us, so that the same code is
optimised and emitted for any target: nothing of that is executed. ``NUMBA_CACHE_DIR`` is to be a folder of its own, for
whatever finds that code later would run it as slow as it is.
"""

from __future__ import annotations

import json
import re
import sys
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from pairmark.models.similarity.kernels import search

X86, ARM = "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"
TARGETS = {
    "AVX-512": (X86, "znver4"),
    "AVX2": (X86, "haswell"),
    "SSE4": (X86, "nehalem"),
    "NEON": (ARM, "neoverse-n1"),
}
STEPS = ("_step", "_step_half", "_step_sure", "_step_last")


def run_every_step() -> None:
    """Compile them for the types that searches call them with."""
    steps = np.zeros((4, search.STEP_FIELDS), dtype=np.int16)
    steps[:, 0] = range(4)
    codes, total = np.zeros((1, 1, search.BLOCK), dtype=np.uint8), np.zeros(search.BLOCK, dtype=np.uint16)
    search.evaluate(steps, np.array([4]), codes, np.zeros(1, dtype=np.int64), total)


def assembly(kernel: Any, triple: str, cpu: str) -> str:
    """What LLVM makes of a kernel that another one calls, by itself."""
    (source,) = kernel.part().inspect_llvm().values()
    machine = llvm.Target.from_triple(triple).create_target_machine(cpu=cpu, opt=3)
    module = llvm.parse_assembly(source)
    module.triple, module.data_layout = triple, str(machine.target_data)
    tuning = llvm.create_pipeline_tuning_options(speed_level=3)
    tuning.loop_vectorization = True
    builder = llvm.create_pass_builder(machine, tuning)
    builder.getModulePassManager().run(module, builder)
    return str(machine.emit_assembly(module))


def byte_registers(text: str) -> list[str]:
    """The registers that bytes are compared in."""
    found = []
    for line in text.splitlines():
        if re.match(r"\s+v?p(cmp\w*ub|minub|cmpeqb)\s", line):
            found += re.findall(r"%([xyz])mm", line)
        elif re.match(r"\s+cm(hi|hs|eq)\s", line):
            found += re.findall(r"\.16(b)", line)
    return sorted(set(found))


def main() -> int:
    """By instruction set and step."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    run_every_step()
    print(
        json.dumps(
            {
                name: {step: byte_registers(assembly(getattr(search, step), *target)) for step in STEPS}
                for name, target in TARGETS.items()
            }
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
