"""``python -m tests.kernels``: compile every kernel once, before many processes need them at once.

Otherwise each process of pytest, and each server and worker it starts, compiles for itself what none has cached yet.
"""

from pairmark.models.warmup import compile_all

if __name__ == "__main__":
    compile_all()
