// Minting a project key: the form, what a limit on cost means for models without a price, and the dialog that shows the key.
import { useState } from "preact/hooks";
import { call, Fault, may, mayIn, self } from "../api/client";
import { useOutlook } from "../api/dry_run";
import { membersOf, projectsWhich, useFirst } from "../api/objects";
import { changed } from "../api/resource";
import { suggestEndpoints } from "../api/suggest";
import type { EffectWarning, KeyWithSecret } from "../api/types";
import { Allowed } from "../part/choice";
import { Chooser } from "../part/chooser";
import { Dialog } from "../part/dialog";
import { Check, concerns, Field, Form, FormButtons, FormFooterError, Text, useSubmission } from "../part/form";
import { dateEnd } from "../part/moment";
import { tagsOf } from "../part/tags";
import { TagsField } from "./key";
import { PriceForm } from "./models/price_form";
import { targetOf } from "./routes";
import { SecretDialog } from "./secret";

type Props = { onClose: () => void; project?: string };

export function MintKey({ onClose, project: given = "" }: Props) {
  const [made, setMade] = useState<KeyWithSecret | null>(null);
  if (made?.key) return <SecretDialog title={`Key ${made.name}`} secret={made.key} recoverable={made.recoverable} onClose={onClose} />;
  if (made) return <Lost onClose={onClose} />;
  return (
    <Dialog title="Mint a project key" onClose={onClose}>
      <MintForm project={given} onMade={setMade} onClose={onClose} />
    </Dialog>
  );
}

/** The answer to the first attempt was lost, and the key has no copy. */
export function Lost({ onClose }: { onClose: () => void }) {
  return (
    <Dialog title="The key was minted, but its answer was lost" onClose={onClose}>
      <p>No copy of it is kept, so it cannot be shown. Rotate it, or revoke it and mint another.</p>
    </Dialog>
  );
}

/** The projects in which the caller may mint keys. */
const usable = projectsWhich(({ id }) => mayIn(id, "mint_keys", self()) || mayIn(id, "mint_keys", null));

type FormProps = {
  /** The project that is chosen at first. */
  project: string;
  /** The endpoints that are chosen at first; null for all. */
  endpoints?: string[] | null;
  onMade: (key: KeyWithSecret) => void;
  onClose?: () => void;
};

/** The form of a new key. Without `onClose` it has one button. */
export function MintForm({ project: given, endpoints: first = null, onMade, onClose }: FormProps) {
  const known = useFirst(usable);
  const [name, setName] = useState("");
  const [chosen, setProject] = useState(given);
  const [actsAs, setActsAs] = useState(may("administer") ? "" : (self() ?? ""));
  const [endpoints, setEndpoints] = useState<string[] | null>(first);
  const [expires, setExpires] = useState("");
  const [limit, setLimit] = useState("");
  const [tags, setTags] = useState("");
  const [recoverable, setRecoverable] = useState(true);
  const [pricing, setPricing] = useState<string | null>(null);
  const submission = useSubmission();
  const [only, ...others] = known?.found ?? [];
  const project = chosen || (only && others.length === 0 && !known?.more ? only.value : "");
  const body = {
    name,
    project,
    ...(actsAs ? { acts_as: actsAs } : {}),
    ...(expires ? { expires_at: dateEnd(expires) } : {}),
    ...(endpoints ? { endpoints } : {}),
    ...(tags.trim() ? { tags: tagsOf(tags) } : {}),
    recoverable,
    ...(limit.trim() ? { limits: [{ metric: "cost_micro_usd", window: "month", limit: Math.round(Number(limit) * 1e6) }] } : {}),
  };
  const isLimited = limit.trim() !== "" && name !== "" && project !== "";
  const { effects } = useOutlook(isLimited && pricing === null ? { method: "POST", path: "keys", body } : null);
  const unpriced = effects?.warnings.find(({ code }) => code === "no_price");
  const submit = (): void => {
    void submission.run(body, async (repeatKey) => {
      const { data } = await call<KeyWithSecret>("POST", "keys", { body, repeatKey });
      changed("keys", "quotas");
      onMade(data);
    });
  };
  const fault = submission.error;
  return (
    <>
      <Form submission={submission} onSubmit={submit}>
        <Field label="Name" name="name" help="For example the client or the person that uses it.">
          <Text value={name} onValue={setName} autoFocus={onClose !== undefined} />
        </Field>
        <Field label="Project" name="project">
          <Chooser label="Project" value={project} onValue={setProject} of={usable} placeholder="Choose a project" />
        </Field>
        <ActsAs project={project} value={actsAs} onValue={setActsAs} />
        <Allowed
          label="Endpoints"
          all="All endpoints"
          value={endpoints}
          onValue={setEndpoints}
          suggest={(text) => suggestEndpoints(text, project)}
          placeholder="Add an endpoint"
          error={fault instanceof Fault && concerns(fault.param, "endpoints") ? fault.message : null}
        />
        <div class="form-row">
          <Field label="Expires" name="expires_at" optional help="At the end of that day.">
            <Text type="date" value={expires} onValue={setExpires} />
          </Field>
          {may("administer") && (
            <Field label="Limit a month ($)" name="limits" optional>
              <Text inputMode="decimal" value={limit} onValue={setLimit} placeholder="none" />
            </Field>
          )}
        </div>
        <TagsField value={tags} onValue={setTags} />
        {unpriced && <Unpriced of={unpriced} onPrice={setPricing} onNoLimit={() => setLimit("")} />}
        <Check
          label="Keep an encrypted copy"
          help="So that its owner or an administrator can reveal it later."
          checked={recoverable}
          onChange={setRecoverable}
        />
        <FormFooterError />
        <FormButtons busy={submission.busy} submit="Mint key" submitting="Minting…" onCancel={onClose} />
      </Form>
      {pricing && <PriceDialog id={pricing} onClose={() => setPricing(null)} />}
    </>
  );
}

type ActsAsProps = { project: string; value: string; onValue: (id: string) => void };

/** The humans for whom a key of the project may act: its members. */
export function ActsAs({ project, value, onValue }: ActsAsProps) {
  const nobody: [string, string][] = mayIn(project, "mint_keys", null) ? [["", "Nobody"]] : [];
  return (
    <Field label="Acts as" name="acts_as" help="Choose a human where a target is that human's private OAuth connection.">
      <Chooser label="Acts as" value={value} onValue={onValue} of={membersOf(project)} fixed={nobody} placeholder="Choose a human" />
    </Field>
  );
}

type UnpricedProps = { of: EffectWarning; onPrice: (id: string) => void; onNoLimit: () => void };

/** The models that a key with a limit on cost cannot use, because their price is not known. */
function Unpriced({ of: { message, objects }, onPrice, onNoLimit }: UnpricedProps) {
  const [first] = objects;
  return (
    <div class="alert warn" role="status">
      <p class="wrap">{message}</p>
      <p>
        {first && (
          <button type="button" class="btn small" onClick={() => onPrice(first)}>
            Set a price
          </button>
        )}{" "}
        <button type="button" class="btn small" onClick={onNoLimit}>
          No limit
        </button>
      </p>
    </div>
  );
}

/** Sets the price of a model without leaving the form below. */
function PriceDialog({ id, onClose }: { id: string; onClose: () => void }) {
  return (
    <Dialog title={`The price of ${id}`} onClose={onClose}>
      <PriceForm of={{ id, ...targetOf(id) }} onSaved={onClose} />
    </Dialog>
  );
}
