"""OpenCV's `imread`, as `docs/how-to/adapters.md` calls it: the path stands for the picture."""


def imread(path: str) -> str:
    return path
