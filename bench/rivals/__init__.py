"""Compares Bloomery with RedisBloom and go-zero's Lua in everything that people do with filters.

Run it with `scripts/bench --rivals`.
"""
