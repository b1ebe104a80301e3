"""Carries connections: each argument is FROM=TO, where both are a path of a socket or host:port."""

import asyncio
import sys


async def copy(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
    except OSError:
        writer.close()


async def serve(source, target):
    async def carry(reader, writer):
        try:
            if target.startswith("/"):
                other = await asyncio.open_unix_connection(target)
            else:
                other = await asyncio.open_connection(*target.rsplit(":", 1))
        except OSError:
            writer.close()
            return
        await asyncio.gather(copy(reader, other[1]), copy(other[0], writer))
        other[1].close()
        writer.close()

    if source.startswith("/"):
        await asyncio.start_unix_server(carry, source)
    else:
        await asyncio.start_server(carry, *source.rsplit(":", 1))


async def main():
    for pair in sys.argv[1:]:
        await serve(*pair.split("=", 1))
    await asyncio.Event().wait()


asyncio.run(main())
