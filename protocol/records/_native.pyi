from protocol.records.walk_twin import Walk as Walk
from protocol.schema import Buffer

def unsnap(
    block: Buffer, position: int, output: bytearray, output_position: int, until: int, /
) -> tuple[int, int]: ...
def unfilled_bytearray(size: int, /) -> bytearray: ...
