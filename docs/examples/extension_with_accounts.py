#!/usr/bin/env python3
"""An extension for llmgw whose provider needs the account of a human: docs/extensions.md describes the protocol.

usage: LLMGW_SECRET=whsec_... extension_with_accounts.py 127.0.0.1:9000

It extends extension.py, beside it, and plays the vendor too: its page /consent signs every visitor in as `guest`. Replace
`Vendor` by calls of your vendor. The gateway keeps the credentials; this process needs none.
"""

import base64
import hashlib
import json
import os
import secrets
import sys
import time
import urllib.parse
from http.server import ThreadingHTTPServer

import extension

LIFE = int(os.environ.get("CREDENTIAL_LIFE", "3600"))  # seconds
extension.INFO["providers"][0]["credential"] = "sign_in"


class Vendor:
    """The accounts of a vendor. Codes and refresh tokens are used once."""

    codes = {}  # code: PKCE challenge
    refreshes = set()
    credentials = {}  # credential: time of its end

    @classmethod
    def code(cls, challenge):
        code = secrets.token_urlsafe()
        cls.codes[code] = challenge
        return code

    @classmethod
    def exchange(cls, code, verifier):
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")
        return cls.issue() if cls.codes.pop(code, None) == challenge else None

    @classmethod
    def refresh(cls, refresh):
        if refresh not in cls.refreshes:
            return None
        cls.refreshes.remove(refresh)
        return cls.issue()

    @classmethod
    def revoke(cls, token):
        cls.refreshes.discard(token)
        cls.credentials.pop(token, None)

    @classmethod
    def issue(cls):
        credential, refresh = secrets.token_urlsafe(), secrets.token_urlsafe()
        cls.credentials[credential] = time.time() + LIFE
        cls.refreshes.add(refresh)
        return {"access_token": credential, "refresh_token": refresh, "expires_in": LIFE, "account": "guest"}

    @classmethod
    def knows(cls, credential):
        return cls.credentials.get(credential, 0) > time.time()


class ExtensionWithAccounts(extension.Extension):
    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        return self.consent(dict(urllib.parse.parse_qsl(url.query))) if url.path == "/consent" else super().do_GET()

    def consent(self, query):
        """The vendor's page. A real one asks the human, and knows the addresses that it may send browsers back to."""
        answer = {"code": Vendor.code(query["challenge"]), "state": query["state"]}
        self.send_response(303)
        self.send_header("location", f"{query['redirect_uri']}?{urllib.parse.urlencode(answer)}")
        self.send_header("content-length", "0")
        self.end_headers()

    def answer(self, url, body):
        steps = {"oauth/start": self.start, "oauth/exchange": self.exchange, "oauth/revoke": self.revoke}
        steps["refresh"] = self.refresh
        if step := steps.get(url.path.removeprefix("/v1/words/")):
            return step(json.loads(body))
        if not Vendor.knows(self.headers.get("x-llmgw-credential")):
            return self.error(401, "The credential is unknown.")
        return super().answer(url, body)

    def start(self, request):
        if request["method"] != "browser":
            return self.refuse("unsupported_method", "Sign in in a browser.")
        query = {name: request[name] for name in ("redirect_uri", "state")} | {"challenge": request["code_challenge"]}
        address = f"http://{self.headers['host']}/consent?{urllib.parse.urlencode(query)}"
        return self.json(200, {"authorize_url": address})

    def exchange(self, request):
        self.grant(Vendor.exchange(request["code"], request["code_verifier"]))

    def refresh(self, request):
        self.grant(Vendor.refresh(request["refresh_token"]))

    def revoke(self, request):
        Vendor.revoke(request["token"])
        self.json(200, {})

    def grant(self, credential):
        self.json(200, credential) if credential else self.refuse("invalid_grant", "Sign in again.")

    def refuse(self, error, description):
        self.json(400, {"error": error, "error_description": description})


if __name__ == "__main__":
    host, _, port = sys.argv[1].rpartition(":")
    ThreadingHTTPServer((host, int(port)), ExtensionWithAccounts).serve_forever()
