// The reference extension whose provider needs the account of a human, as a process.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { connect } from "node:net";
import { setTimeout as pause } from "node:timers/promises";
import { fileURLToPath } from "node:url";

const EXAMPLE = fileURLToPath(new URL("../../docs/examples/extension_with_accounts.py", import.meta.url));

export class ReferenceExtension {
  secret = `whsec_${Buffer.from("planted-secret-of-the-extension").toString("base64")}`;

  constructor(port) {
    Object.assign(this, { port, origin: `http://127.0.0.1:${port}` });
  }

  /** Starts it, and waits until it takes connections. */
  async start() {
    const env = { PATH: process.env.PATH, LLMGW_SECRET: this.secret };
    this.child = spawn("python3", [EXAMPLE, `127.0.0.1:${this.port}`], { env, stdio: "ignore" });
    process.once("exit", () => this.child.kill());
    for (;;) {
      if (this.child.exitCode !== null) throw new Error(`the extension ended with ${this.child.exitCode}`);
      const socket = connect(this.port, "127.0.0.1");
      const listens = await once(socket, "connect").then(() => true, () => false);
      socket.destroy();
      if (listens) return;
      await pause(20);
    }
  }

  stop() {
    this.child.kill();
  }
}
