"""Bloomery beside RedisBloom and go-zero's Lua, in everything that people do with filters: `scripts/bench --rivals`."""
