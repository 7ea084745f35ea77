"""The module's sections of INFO, as numbers."""

# Metrics that are gauges. The other numbers count events.
GAUGES = {
    *(f"{kind}_filters" for kind in ["fixed", "scaling", "counting", "window", "cuckoo", "foreign"]),
    *("count_min_sketches", "top_ks", "t_digests"),
    *("bloom_total_memory_bytes", "bloom_num_objects", "bloom_num_filters_across_objects"),
    *("bloom_num_items_across_objects", "bloom_capacity_across_objects"),
    *("cell_bytes", "freeing_bytes", "loads", "load_bytes", "load_held_bytes"),
    *("pool_jobs_running", "pool_jobs_queued", "pool_jobs_paused"),
    *("clients_waiting", "waiting_bytes", "clients_in_pieces", "promised_bytes"),
}

# Texts that describe the module. Everything else is a number.
TEXTS = {"bf_version", "bf_implementation"}


def figures(client, section="bf") -> dict[str, int]:
    """The numbers in a section, by name without the prefix `bf_`."""
    info = client.execute_command("INFO", section)
    if isinstance(info, bytes):
        info = dict(line.split(":", 1) for line in info.decode().split("\r\n") if ":" in line)
    numbers = {name: value for name, value in info.items() if name not in TEXTS}
    return {name.removeprefix("bf_"): int(value) for name, value in numbers.items()}


def tenants(client) -> dict[str, dict[str, int]]:
    """The numbers of each tenant, by prefix."""
    info = client.execute_command("INFO", "bf_tenants")
    rows = [value for name, value in info.items() if name.startswith("bf_tenant_")]
    return {row.pop("prefix"): row for row in map(dict, rows)}


def gauges(client) -> dict[str, int]:
    return {name: value for name, value in figures(client).items() if name in GAUGES}
