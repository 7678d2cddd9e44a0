"""Webhooks: addresses that are told of what happens, with signed messages, tried again until they are taken."""
