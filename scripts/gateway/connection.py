"""A client's connection: as little as a client can do, so that it is not what is measured."""
import asyncio, time


class Connection:
    """One connection, one request at a time: as little as a client can do, so that it is not what is measured."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    @classmethod
    async def open(cls, url):
        name, port = host(url).split(":")
        return cls(*await asyncio.open_connection(name, int(port), limit=2**20))

    async def call(self, request):
        """Status, the moment of the first byte, and the size of the body."""
        self.writer.write(request)
        start = await self.reader.readexactly(1)
        first = time.perf_counter()
        head = (start + await self.reader.readuntil(b"\r\n\r\n")).lower()
        size = await self.body(head)
        return int(head.split()[1]), first, size

    async def body(self, head):
        if b"chunked" not in head:
            length = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
            await self.reader.readexactly(length)
            return length
        total = 0
        while size := int(await self.reader.readline(), 16):
            await self.reader.readexactly(size + 2)
            total += size
        await self.reader.readline()
        return total

    def close(self):
        self.writer.close()


def host(url):
    return url.removeprefix("http://")


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(len(values) * share))] * 1000
