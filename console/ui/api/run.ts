// A request of the data plane that the playground sends as a key or a human.
import { gatewayPath } from "./base";
import { call, session } from "./client";

export type Run = {
  /** A path such as `v1/chat/completions`. */
  path: string;
  /** The id of a key or a human. */
  as: string;
  /** A target that alone may serve it; empty for any. */
  only: string;
  body: Record<string, unknown> | FormData;
  signal: AbortSignal;
};

/** Sends a run. An ended session opens the sign-in, and the run is sent again afterwards. */
export async function sendRun({ path, as, only, body, signal }: Run): Promise<Response> {
  const isForm = body instanceof FormData;
  for (let tries = 0; ; tries += 1) {
    const response = await fetch(gatewayPath(`/admin/api/run/${path}`), {
      method: "POST",
      credentials: "same-origin",
      cache: "no-store",
      redirect: "error",
      headers: {
        "x-llmgw-run-as": as,
        ...(only ? { "x-llmgw-run-only": only } : {}),
        ...(session.value?.csrf_token ? { "x-csrf-token": session.value.csrf_token } : {}),
        ...(isForm ? {} : { "content-type": "application/json" }),
      },
      body: isForm ? body : JSON.stringify(body),
      signal,
    });
    if (response.status !== 401 || tries > 0) return response;
    await response.body?.cancel();
    await call("GET", "state");
  }
}
