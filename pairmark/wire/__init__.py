"""Answers of the service, declared once: the service makes its models of these fields, and the client its records.

A declaration is a plain class of annotated names, as OpenAPI shows them: `JobFields` are those of `JobOut`. Nothing
here imports pydantic or NumPy, so that the client stays light.
"""
