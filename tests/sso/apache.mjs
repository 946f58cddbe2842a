// Apache with mod_auth_openidc in front of a gateway, as docs/sso.md configures it.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";

const MODULES = "/usr/lib/apache2/modules";
const LOADED = ["mpm_event", "authn_core", "authz_core", "authz_user", "headers", "proxy", "proxy_http", "auth_openidc"];

/** A port of loopback that is free now. */
export async function freePort() {
  const server = createServer();
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address();
  server.close();
  await once(server, "close");
  return port;
}

export class Apache {
  constructor(home, port) {
    Object.assign(this, { home, port, origin: `http://127.0.0.1:${port}` });
  }

  async start(provider, gateway, secret) {
    mkdirSync(this.home, { recursive: true });
    const out = encodeURIComponent(`${this.origin}/signed-out`);
    const text = `
ServerRoot ${this.home}
PidFile ${join(this.home, "pid")}
ErrorLog ${join(this.home, "error.log")}
Listen 127.0.0.1:${this.port}
ServerName 127.0.0.1
User www-data
Group www-data
${LOADED.map((name) => `LoadModule ${name}_module ${MODULES}/mod_${name}.so`).join("\n")}
OIDCProviderMetadataURL ${provider}/.well-known/openid-configuration
OIDCClientID llmgw
OIDCClientSecret secret-of-the-client
OIDCRedirectURI ${this.origin}/oidc/callback
OIDCCryptoPassphrase a-passphrase-of-the-test
OIDCScope "openid email profile groups"
OIDCPassClaimsAs headers
OIDCCookieSameSite On
OIDCRedirectURLsAllowed ^${this.origin}
<LocationMatch "^/(console|admin/api|oidc)">
    AuthType openid-connect
    Require valid-user
    RequestHeader unset Authorization
    RequestHeader set X-LLMGW-SSO-Secret "${secret}"
</LocationMatch>
ProxyPreserveHost On
ProxyPass /oidc !
ProxyPass / ${gateway}/ flushpackets=on
`;
    const file = join(this.home, "apache.conf");
    writeFileSync(file, text);
    this.signOutPath = `/oidc/callback?logout=${out}`;
    this.child = spawn("/usr/sbin/apache2", ["-f", file, "-D", "FOREGROUND"], { stdio: ["ignore", "inherit", "inherit"] });
    for (let tries = 0; tries < 200; tries += 1) {
      if (this.child.exitCode !== null) throw new Error(`apache ended with ${this.child.exitCode}`);
      const answer = await fetch(`${this.origin}/health`).catch(() => null);
      if (answer) return;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    throw new Error("apache does not answer");
  }

  async stop() {
    const ended = once(this.child, "exit");
    this.child.kill("SIGTERM");
    await ended;
  }
}
