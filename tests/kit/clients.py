"""What clients see of an error."""

import pytest
import redis


def refusal(client, *command) -> str:
    with pytest.raises(redis.ResponseError) as caught:
        client.execute_command(*command)
    return str(caught.value)
