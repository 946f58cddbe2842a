// Step 7: the text for a client, and the check that waits for its first request.
import { href, param } from "../../app/router";
import { ClientGuide, KeyField, NO_MODEL, useKey } from "../connect";

type Props = {
  /** The key that was minted on this page, as long as it is in memory. */
  secret: string | null;
  onAnswer: (said: string) => void;
};

export function ClientStep({ secret, onAnswer }: Props) {
  const { id, key, selectors } = useKey();
  const names = selectors?.found.map(({ value }) => value) ?? [];
  const wanted = param("model") || param("endpoint");
  // The endpoint that was made on this page may not be one that the key may use.
  const isUsable = names.includes(wanted) || (selectors?.more ?? true);
  const model = (isUsable && wanted) || (names[0] ?? NO_MODEL);
  return (
    <div class="form">
      <KeyField of={key} value={id} />
      <ClientGuide
        selectors={selectors}
        model={model}
        keyOf={key}
        secret={id === param("key") ? secret : null}
        hrefOf={(client) => href("/setup", { step: "client", client, key: id, model })}
        onAnswer={onAnswer}
      />
    </div>
  );
}
