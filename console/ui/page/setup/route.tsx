// Step 5: one name for clients: the new provider's model in an endpoint that exists, or an endpoint of its own.
import { useState } from "preact/hooks";
import { at, call } from "../../api/client";
import { endpoints, useAll, useFirst } from "../../api/objects";
import { changed, useResource } from "../../api/resource";
import type { Endpoint, Provider } from "../../api/types";
import { param } from "../../app/router";
import { Chooser } from "../../part/chooser";
import { Field, Form, FormButtons, FormFooterError, useSubmission } from "../../part/form";
import { EndpointForm, sameTarget, TargetsField, targetOf } from "../routes";
import { isInside } from "./provider";

type Props = { onDone: (said: string, name: string) => void };

export function RoutesStep({ onDone }: Props) {
  const providers = useAll<Provider>("providers");
  const likeFirst = useAll<Endpoint>("endpoints", { q: FIRST_ENDPOINT });
  const areRead = [providers, likeFirst].every(({ list, isWhole }) => isWhole || list.error.value);
  if (!areRead) return <p aria-busy="true">Reading…</p>;
  return <Ready providers={providers.rows} likeFirst={likeFirst.rows} onDone={onDone} />;
}

/** The target that was proven last, which is the first suggestion: one at an upstream, else one inside the gateway. */
export function provenTarget(providers: Provider[]): string | null {
  let best: { id: string; rank: [boolean, number] } | null = null;
  for (const provider of providers) {
    const { model, proven_at_ms: at } = provider.evidence?.inference ?? {};
    if (!model || !at) continue;
    const rank: [boolean, number] = [!isInside(provider), at];
    if (!best || rank[0] > best.rank[0] || (rank[0] === best.rank[0] && at > best.rank[1])) best = { id: `${provider.id}/${model}`, rank };
  }
  return best?.id ?? null;
}

/** The name of the endpoint that quickstart makes, and that the snippets of the documentation ask for. */
export const FIRST_ENDPOINT = "smart";

/** Returns a name that no endpoint and no provider has. */
export function freeName(taken: string[]): string {
  for (let n = 1; ; n += 1) {
    const name = n === 1 ? FIRST_ENDPOINT : `${FIRST_ENDPOINT}-${n}`;
    if (!taken.includes(name)) return name;
  }
}

const NEW = "";
/** The endpoints of the API, which can be changed. */
const STORED = endpoints({ source: "api" });

type ReadyProps = Props & {
  providers: Provider[];
  /** The endpoints whose names hold that of the first one, which a new name must differ from. */
  likeFirst: Endpoint[];
};

function Ready({ providers, likeFirst, onDone }: ReadyProps) {
  const [proven] = useState(() => provenTarget(providers));
  const first = proven ? [proven] : [];
  const isFirst = ({ name, source, shadowed }: Endpoint): boolean => name === FIRST_ENDPOINT && source === "api" && !shadowed;
  const [chosen, choose] = useState(likeFirst.some(isFirst) && !param("name") ? FIRST_ENDPOINT : NEW);
  const endpoint = useResource<Endpoint>(chosen === NEW ? null : `${at("endpoints", chosen)}?source=api`).data.value;
  const some = useFirst(STORED);
  const create = async (body: { name: string; failover: object[] }, repeatKey: string): Promise<void> => {
    await call("POST", "endpoints", { body, repeatKey });
    changed("endpoints");
    onDone(`Clients can ask for ${body.name}.`, body.name);
  };
  const taken = [...likeFirst.map(({ name }) => name), ...providers.map(({ id }) => id)];
  return (
    <div class="form">
      {some && some.found.length > 0 && (
        <Field label="Endpoint" name="endpoint">
          <Chooser label="Endpoint" value={chosen} onValue={choose} of={STORED} fixed={[[NEW, "A new one"]]} />
        </Field>
      )}
      {endpoint && <AddTarget key={endpoint.name} endpoint={endpoint} targets={first} onDone={onDone} />}
      {chosen === NEW && <EndpointForm name={param("name") || freeName(taken)} targets={first} create={create} />}
    </div>
  );
}

/** Puts targets before those of an endpoint that exists. */
function AddTarget({
  endpoint: { name, failover, preamble, also, order, sticky, cursor_bodies, version },
  targets: given,
  onDone,
}: Props & { endpoint: Endpoint; targets: string[] }) {
  const [targets, setTargets] = useState(given);
  const submission = useSubmission();
  const added = targets.map(targetOf);
  const wanted = [...added, ...failover.filter((old) => !added.some((target) => sameTarget(target, old)))];
  const add = (): void =>
    void submission.run(targets, async () => {
      await call("PUT", `endpoints/${encodeURIComponent(name)}`, {
        body: { failover: wanted, preamble, also, order, sticky, cursor_bodies },
        ifMatch: version,
      });
      changed("endpoints");
      onDone(`Clients can ask for ${name}.`, name);
    });
  return (
    <Form submission={submission} onSubmit={add} label={`Add to ${name}`}>
      <TargetsField value={targets} onValue={setTargets} />
      {added.length > 0 && (
        <p class="help wrap">
          {name} then tries, in this order: {wanted.map(({ provider, model }) => `${provider}/${model}`).join(", ")}.
        </p>
      )}
      <FormFooterError />
      <FormButtons
        busy={submission.busy}
        submit={`Add to ${name}`}
        submitting="Adding…"
        lacks={targets.length === 0 && "Add a target first: a model of the provider that you connected."}
      />
    </Form>
  );
}
