// A scripted upstream that speaks Chat Completions and Messages. The first part of the path is a provider's name.

import { once } from "node:events";
import { createServer } from "node:http";

const WORDS = "The gateway tried each target in its order until one of them began to answer.".split(" ");
/** What a message asks for that gets an answer of minutes, and how that comes: its rounds and its pace in milliseconds. */
export const LONG = "Answer at length.";
const LONG_ROUNDS = 400;
const LONG_PACE = 60;
const varied = (ms, jitter) => ms * (1 + jitter * (Math.random() * 2 - 1) ** 3);
/** A pause under way does not keep the process alive. */
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms).unref());

export class Upstream {
  /**
   * Per provider: `status` of its answers if not 200, `delay` before the head and `pace` before each event in milliseconds, the `models` it lists and
   * the `tokens` it reports (`input`, `cached`, `output`, and at Messages those `written` to the cache). Both times vary by up to `jitter`, a share of them. The last event of a stream waits for `end`, a promise.
   */
  behaviour = {};

  async start() {
    this.server = createServer((request, response) => void this.answer(request, response).catch(() => response.destroy()));
    this.server.listen(0, "127.0.0.1");
    await once(this.server, "listening");
    this.origin = `http://127.0.0.1:${this.server.address().port}`;
  }

  stop() {
    this.server.closeAllConnections();
    this.server.close();
  }

  async answer(request, response) {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    const [, provider] = request.url.split("/");
    const { status = 200, delay = 0, pace = 0, jitter = 0, tokens = {}, models = [], end } = this.behaviour[provider] ?? {};
    await pause(varied(delay, jitter));
    if (request.method === "GET") return json(response, 200, { object: "list", data: models.map((id) => ({ id, object: "model", type: "model" })) });
    if (status !== 200) return json(response, status, { error: { type: "overloaded_error", message: "The engine is overloaded." } });
    const asked = Buffer.concat(chunks).toString();
    const { model, stream } = JSON.parse(asked);
    const { input = 12, cached = 0, written = 0, output = WORDS.length } = tokens;
    const write = request.url.endsWith("/messages") ? messages : chat;
    const [whole, events] = write({ model, input, cached, written, output });
    if (!stream) return json(response, 200, whole);
    response.writeHead(200, { "content-type": "text/event-stream" });
    // The last two events end the stream: a request for a long answer gets the others again and again, slowly.
    const isLong = asked.includes(LONG);
    const told = isLong ? Array.from({ length: LONG_ROUNDS }, () => events.slice(2, -3)).flat() : [];
    for (const event of [...(isLong ? events.slice(0, 2) : events), ...told, ...(isLong ? events.slice(-3) : [])]) {
      if (event === events.at(-1)) await end;
      if (pace) await pause(isLong ? LONG_PACE : varied(pace, jitter));
      if (response.destroyed) return;
      response.write(event);
    }
    response.end();
  }
}

function json(response, status, body) {
  response.writeHead(status, { "content-type": "application/json" });
  response.end(JSON.stringify(body));
}

function chat({ model, input, cached, output }) {
  const usage = { prompt_tokens: input + cached, completion_tokens: output, total_tokens: input + cached + output, prompt_tokens_details: { cached_tokens: cached } };
  const base = { id: "chatcmpl-1", created: 1, model };
  const piece = (delta, finish_reason = null) => ({ ...base, object: "chat.completion.chunk", choices: [{ index: 0, delta, finish_reason }] });
  const pieces = [piece({ role: "assistant", content: "" }), ...WORDS.map((word) => piece({ content: `${word} ` })), piece({}, "stop")];
  const last = { ...base, object: "chat.completion.chunk", choices: [], usage };
  const events = [...pieces, last].map((value) => `data: ${JSON.stringify(value)}\n\n`);
  const message = { role: "assistant", content: WORDS.join(" ") };
  return [{ ...base, object: "chat.completion", choices: [{ index: 0, message, finish_reason: "stop" }], usage }, [...events, "data: [DONE]\n\n"]];
}

function messages({ model, input, cached, written, output }) {
  const usage = { input_tokens: input, cache_read_input_tokens: cached, cache_creation_input_tokens: written, output_tokens: output };
  const base = { id: "msg_1", type: "message", role: "assistant", model, stop_sequence: null };
  const values = [
    { type: "message_start", message: { ...base, content: [], stop_reason: null, usage: { ...usage, output_tokens: 1 } } },
    { type: "content_block_start", index: 0, content_block: { type: "text", text: "" } },
    ...WORDS.map((word) => ({ type: "content_block_delta", index: 0, delta: { type: "text_delta", text: `${word} ` } })),
    { type: "content_block_stop", index: 0 },
    { type: "message_delta", delta: { stop_reason: "end_turn", stop_sequence: null }, usage: { output_tokens: output } },
    { type: "message_stop" },
  ];
  const whole = { ...base, content: [{ type: "text", text: WORDS.join(" ") }], stop_reason: "end_turn", usage };
  return [whole, values.map((value) => `event: ${value.type}\ndata: ${JSON.stringify(value)}\n\n`)];
}
