"""Connection strings for SDKs of Event Hubs."""

from __future__ import annotations


def connection_string(address: str, hub: str, rule: str = "any", key: str = "SAS_KEY_VALUE") -> str:
    """Of an open cluster, as the emulator has it; with a rule's name and key, of one that is closed."""
    return (
        f"Endpoint=sb://{address};SharedAccessKeyName={rule};SharedAccessKey={key};"
        f"UseDevelopmentEmulator=true;EntityPath={hub}"
    )
