// A gateway of the built binary on an empty home, and calls of its admin API and data plane.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { join } from "node:path";

export class Gateway {
  constructor(binary, home, variables = {}) {
    Object.assign(this, { binary, home, variables, port: "0" });
  }

  async start() {
    const env = { HOME: this.home, PATH: process.env.PATH, LLMGW_PORT: this.port, ...this.variables };
    this.child = spawn(this.binary, ["quickstart"], { env, stdio: ["ignore", "pipe", "pipe"] });
    this.log = "";
    this.origin = await new Promise((resolve, reject) => {
      const read = (piece) => {
        this.log += piece;
        const found = /console\s+(http:\/\/127\.0\.0\.1:(\d+))\S*\/console/.exec(this.log);
        if (found) resolve(found[1]);
      };
      this.child.stdout.on("data", read);
      this.child.stderr.on("data", read);
      this.child.on("exit", (code) => reject(new Error(`the gateway ended with ${code}: ${this.log}`)));
    });
    this.port = new URL(this.origin).port;
    this.key = /^LLMGW_API_KEY=(.*)$/m.exec(readFileSync(join(this.home, ".llmgw.secrets"), "utf8"))[1];
  }

  async stop() {
    const ended = once(this.child, "exit");
    // Without the delay of SIGTERM.
    this.child.kill("SIGINT");
    await ended;
  }

  async api(method, path, body) {
    const response = await fetch(`${this.origin}/admin/api/${path}`, {
      method,
      headers: { "x-api-key": this.key, "content-type": "application/json" },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
    return text ? JSON.parse(text) : null;
  }

  /** Sends a chat request with a key; returns its status. */
  async chat(key, model, content, stream = false, headers = {}) {
    const response = await fetch(`${this.origin}/v1/chat/completions`, {
      method: "POST",
      headers: { authorization: `Bearer ${key}`, "content-type": "application/json", ...headers },
      body: JSON.stringify({ model, stream, messages: [{ role: "user", content }] }),
    });
    await response.text();
    return response.status;
  }
}
