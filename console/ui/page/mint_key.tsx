// Minting a project key: the form, what a limit on cost means for models without a price, and the dialog that shows the key.
import { useState } from "preact/hooks";
import { call, Fault } from "../api/client";
import { changed, useResource } from "../api/resource";
import { suggestEndpoints } from "../api/suggest";
import type { Endpoint, KeyWithSecret, Member, Model, Page, Principal, Project } from "../api/types";
import { href } from "../app/router";
import { Allowed } from "../part/choice";
import { Dialog } from "../part/dialog";
import { Check, concerns, Field, Form, FormButtons, FormFooterError, Select, Text, useSubmission } from "../part/form";
import { dateEnd } from "../part/moment";
import { SecretDialog } from "./secret";

type Props = { onClose: () => void; project?: string };

export function MintKey({ onClose, project: given = "" }: Props) {
  const [made, setMade] = useState<KeyWithSecret | null>(null);
  if (made?.key) return <SecretDialog title={`Key ${made.name}`} secret={made.key} recoverable={made.recoverable} onClose={onClose} />;
  if (made) return <Lost onClose={onClose} />;
  return <MintForm given={given} onMade={setMade} onClose={onClose} />;
}

/** The answer to the first attempt was lost, and the key has no copy. */
function Lost({ onClose }: { onClose: () => void }) {
  return (
    <Dialog title="The key was minted, but its answer was lost" onClose={onClose}>
      <p>No copy of it is kept, so it cannot be shown. Rotate it, or revoke it and mint another.</p>
    </Dialog>
  );
}

function MintForm({ given, onMade, onClose }: { given: string; onMade: (key: KeyWithSecret) => void; onClose: () => void }) {
  const projects = useResource<Page<Project>>("projects?limit=500").data.value?.data ?? [];
  const usable = projects.filter(({ disabled }) => !disabled);
  const [name, setName] = useState("");
  const [chosen, setProject] = useState(given);
  const [actsAs, setActsAs] = useState("");
  const [endpoints, setEndpoints] = useState<string[] | null>(null);
  const [expires, setExpires] = useState("");
  const [limit, setLimit] = useState("");
  const [recoverable, setRecoverable] = useState(true);
  const submission = useSubmission();
  const project = chosen || (usable.length === 1 ? (usable[0]?.id ?? "") : "");
  const submit = (): void => {
    const body = {
      name,
      project,
      ...(actsAs ? { acts_as: actsAs } : {}),
      ...(expires ? { expires_at: dateEnd(expires) } : {}),
      ...(endpoints ? { endpoints } : {}),
      recoverable,
      ...(limit.trim() ? { limits: [{ metric: "cost_micro_usd", window: "month", limit: Math.round(Number(limit) * 1e6) }] } : {}),
    };
    void submission.run(body, async (repeatKey) => {
      const { data } = await call<KeyWithSecret>("POST", "keys", { body, repeatKey });
      changed("keys", "quotas");
      onMade(data);
    });
  };
  const fault = submission.error;
  return (
    <Dialog title="Mint a project key" onClose={onClose}>
      <Form submission={submission} onSubmit={submit}>
        <Field label="Name" name="name" help="For example the client or the person that uses it.">
          <Text value={name} onValue={setName} autoFocus />
        </Field>
        <Field label="Project" name="project">
          <Select
            value={project}
            onValue={setProject}
            options={[["", "Choose a project"], ...usable.map(({ id, name }): [string, string] => [id, name])]}
          />
        </Field>
        <ActsAs project={project} value={actsAs} onValue={setActsAs} />
        <Allowed
          label="Endpoints"
          all="All endpoints"
          value={endpoints}
          onValue={setEndpoints}
          suggest={suggestEndpoints}
          placeholder="Add an endpoint"
          error={fault instanceof Fault && concerns(fault.param, "endpoints") ? fault.message : null}
        />
        <div class="form-row">
          <Field label="Expires" name="expires_at" optional help="At the end of that day.">
            <Text type="date" value={expires} onValue={setExpires} />
          </Field>
          <Field label="Limit a month ($)" name="limits" optional>
            <Text inputMode="decimal" value={limit} onValue={setLimit} placeholder="none" />
          </Field>
        </div>
        {limit.trim() && <Unpriced endpoints={endpoints} onNoLimit={() => setLimit("")} />}
        <Check
          label="Keep an encrypted copy"
          help="So that its owner or an administrator can reveal it later."
          checked={recoverable}
          onChange={setRecoverable}
        />
        <FormFooterError />
        <FormButtons busy={submission.busy} submit="Mint key" submitting="Minting…" onCancel={onClose} />
      </Form>
    </Dialog>
  );
}

type ActsAsProps = { project: string; value: string; onValue: (id: string) => void };

/** The humans for whom a key of the project may act: its members. */
export function ActsAs({ project, value, onValue }: ActsAsProps) {
  const members = useResource<Page<Member>>(project ? `projects/${encodeURIComponent(project)}/members?limit=500` : null).data.value;
  const humans = useResource<Page<Principal>>("principals?limit=500").data.value?.data ?? [];
  const ids = members?.data.map(({ principal }) => principal) ?? [];
  const options = humans.filter(({ id, disabled }) => ids.includes(id) && !disabled).map(({ id, name }): [string, string] => [id, name]);
  return (
    <Field label="Acts as" name="acts_as" help="Choose a human where a target is that human's private OAuth connection.">
      <Select value={value} onValue={onValue} options={[["", "Nobody"], ...options]} />
    </Field>
  );
}

/** Says which targets a key with a limit on cost cannot use, because their price is unknown. */
function Unpriced({ endpoints, onNoLimit }: { endpoints: string[] | null; onNoLimit: () => void }) {
  const all = useResource<Page<Endpoint>>("endpoints?limit=500").data.value?.data ?? [];
  const unpriced = new Set(useResource<Page<Model>>("catalog?priced=false&limit=500").data.value?.data.map(({ id }) => id));
  const targets = all.filter(({ name }) => endpoints === null || endpoints.includes(name)).flatMap(({ failover }) => failover);
  const without = [...new Set(targets.map(({ provider, model }) => `${provider}/${model}`).filter((id) => unpriced.has(id)))];
  if (without.length === 0) return null;
  const shown = without.slice(0, 3).join(", ");
  const more = without.length > 3 ? ` and of ${without.length - 3} more` : "";
  return (
    <div class="alert warn" role="status">
      <p class="wrap">
        The price of {shown}
        {more} is not known. A key with a cost limit cannot use {without.length === 1 ? "it" : "them"}.
      </p>
      <p>
        <a class="btn small" href={href("/models", { priced: "false" })}>
          Set a price
        </a>{" "}
        <button type="button" class="btn small" onClick={onNoLimit}>
          No limit
        </button>
      </p>
    </div>
  );
}
