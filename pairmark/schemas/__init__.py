"""Requests and answers of the service, each one pydantic model: for routers, OpenAPI, clients and commands."""
