// Step 5: one name for clients.
import { useState } from "preact/hooks";
import { call } from "../../api/client";
import { changed, useResource } from "../../api/resource";
import type { Page, Provider } from "../../api/types";
import { param } from "../../app/router";
import { EndpointForm } from "../routes";

type Props = { onDone: (said: string, name: string) => void };

export function RoutesStep({ onDone }: Props) {
  const providers = useResource<Page<Provider>>("providers?limit=500");
  if (!providers.data.value && !providers.error.value) return <p aria-busy="true">Reading…</p>;
  return <Ready providers={providers.data.value?.data ?? []} onDone={onDone} />;
}

/** The target that was proven last: it is the first suggestion. */
export function provenTarget(providers: Provider[]): string | null {
  let best: { id: string; at: number } | null = null;
  for (const { id, evidence } of providers) {
    const { model, proven_at_ms: at } = evidence?.inference ?? {};
    if (model && at && (!best || at > best.at)) best = { id: `${id}/${model}`, at };
  }
  return best?.id ?? null;
}

function Ready({ providers, onDone }: Props & { providers: Provider[] }) {
  const [first] = useState(() => provenTarget(providers));
  const create = async (body: { name: string; failover: object[] }, repeatKey: string): Promise<void> => {
    await call("POST", "endpoints", { body, repeatKey });
    changed("endpoints");
    onDone(`Clients can ask for ${body.name}.`, body.name);
  };
  return <EndpointForm name={param("name") || "default"} targets={first ? [first] : []} create={create} />;
}
