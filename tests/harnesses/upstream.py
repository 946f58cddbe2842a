"""A scripted OpenAI-compatible upstream that adds numbers. Above `limit` requests at once it answers 429 with `Retry-After: 1`.

usage: upstream.py LIMIT [SECONDS-A-REQUEST]
"""

import asyncio
import json
import re
import sys

LIMIT = int(sys.argv[1])
SECONDS = float(sys.argv[2]) if len(sys.argv) > 2 else 0.02
LIMITED = {"error": {"message": "Rate limit reached", "type": "rate_limit_error", "code": "rate_limit_exceeded"}}


class Adder:
    """Serves connections, and knows how many requests are being answered."""

    running = 0

    async def serve(self, reader, writer):
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                length = int(re.search(r"(?i)content-length: (\d+)", head).group(1))
                body = json.loads(await reader.readexactly(length))
                self.running += 1
                try:
                    await self.answer(writer, body)
                finally:
                    self.running -= 1
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def answer(self, writer, body):
        if self.running > LIMIT:
            return await send(writer, "429 Too Many Requests", LIMITED, "retry-after: 1\r\n")
        await asyncio.sleep(SECONDS)
        content = body["messages"][-1]["content"]
        text = content if isinstance(content, str) else content[0]["text"]
        first, second = re.search(r"(\d+) plus (\d+)", text).groups()
        message = {"role": "assistant", "content": str(int(first) + int(second))}
        answer = {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": body["model"],
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 4, "completion_tokens": 1, "total_tokens": 5},
        }
        await send(writer, "200 OK", answer)


async def send(writer, status, value, fields=""):
    body = json.dumps(value).encode()
    head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\n{fields}content-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    await writer.drain()


async def main():
    server = await asyncio.start_server(Adder().serve, "127.0.0.1", 0, backlog=1024)
    print(f"listening on http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


asyncio.run(main())
