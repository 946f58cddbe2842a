// Step 7: the text for a client, and the check that waits for its first request.
import { useResource } from "../../api/resource";
import type { Endpoint, Key, Page } from "../../api/types";
import { href, param } from "../../app/router";
import { ClientGuide, KeyField } from "../connect";

type Props = {
  /** The key that was minted on this page, as long as it is in memory. */
  secret: string | null;
  onAnswer: (said: string) => void;
};

export function ClientStep({ secret, onAnswer }: Props) {
  const keys = useResource<Page<Key>>("keys?state=active&limit=500").data.value?.data ?? [];
  const all = useResource<Page<Endpoint>>("endpoints?limit=500").data.value?.data ?? [];
  const key = keys.find(({ id }) => id === param("key")) ?? keys[0];
  const names = all.filter(({ name, shadowed }) => !shadowed && (!key?.endpoints || key.endpoints.includes(name))).map(({ name }) => name);
  const model = names.find((name) => name === (param("model") || param("endpoint"))) ?? names[0] ?? "MODEL";
  return (
    <div class="form">
      <KeyField of={keys} value={key?.id ?? ""} />
      <ClientGuide
        endpoints={all}
        names={names}
        model={model}
        keyOf={key ?? null}
        secret={key?.id === param("key") ? secret : null}
        hrefOf={(client) => href("/setup", { step: "client", client, key: key?.id, model })}
        onAnswer={onAnswer}
      />
    </div>
  );
}
