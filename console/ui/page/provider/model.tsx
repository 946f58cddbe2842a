// What one model of a provider changes in its requests: members of JSON bodies, and headers.
import type { DeclaredModel, Provider, WrittenModel } from "../../api/types";
import { EditDialog } from "../../part/edit";
import { Field } from "../../part/form";
import { shownBody, typedJson } from "./body";

type Requests = { body: string; headers: string };

const LABELS: Record<keyof Requests, string> = { body: "Members of requests", headers: "Headers" };

const BODY = '{"defaults": {"seed": 7}, "set": {"safe": true}, "remove": ["logit_bias"]}';
const HEADERS = '{"anthropic-beta": "context-1m-2025-08-07"}';

const idOf = (written: WrittenModel): string => (typeof written === "string" ? written : written.id);

/** The description of a model; one that is not declared has its ID alone. */
function described(models: WrittenModel[], model: string): DeclaredModel {
  const found = models.find((written) => idOf(written) === model);
  return found === undefined || typeof found === "string" ? { id: model } : found;
}

const requestsOf = ({ models }: Provider, model: string): Requests => {
  const { body, headers } = described(models, model);
  return { body: shownBody(body), headers: headers && Object.keys(headers).length ? JSON.stringify(headers, null, 2) : "" };
};

/** The declared models after a change of one, which becomes declared; the gateway replaces lists as a whole. */
export function withRequests(models: WrittenModel[], model: string, changes: Partial<Requests>): unknown[] {
  const changed: Record<string, unknown> = { ...described(models, model) };
  for (const [name, text] of Object.entries(changes)) {
    const typed = typedJson(text);
    if (typed === null) delete changed[name];
    else changed[name] = typed;
  }
  const isDeclared = models.some((written) => idOf(written) === model);
  const all = isDeclared ? models : [...models, model];
  return all.map((written) => (idOf(written) === model ? changed : written));
}

type Props = { of: Provider; model: string; path: string; etag: string | null; onSaved: () => void; onClose: () => void };

export function EditModel({ of, model, path, etag, onSaved, onClose }: Props) {
  return (
    <EditDialog<Provider, Requests>
      title={`Requests to ${model}`}
      path={path}
      of={of}
      etag={etag}
      fieldsOf={(provider) => requestsOf(provider, model)}
      labels={LABELS}
      bodyOf={(changes) => ({ models: withRequests(of.models, model, changes) })}
      onSaved={onSaved}
      onClose={onClose}
    >
      {(mine, set) => (
        <>
          <p class="help">They take precedence over those of the provider.</p>
          <Field
            label={LABELS.body}
            name="models"
            optional
            help={
              <>
                JSON with <code>defaults</code>, <code>set</code> and <code>remove</code>, such as <code>{BODY}</code>.
              </>
            }
          >
            <textarea class="input mono" rows={6} value={mine.body} onInput={(e) => set({ body: e.currentTarget.value })} />
          </Field>
          <Field
            label={LABELS.headers}
            name="headers"
            optional
            help={
              <>
                JSON with a text for each name, such as <code>{HEADERS}</code>. They are stored and shown as they are; a secret is a
                variable: <code>{`"\${ENV:NAME}"`}</code>.
              </>
            }
          >
            <textarea class="input mono" rows={3} value={mine.headers} onInput={(e) => set({ headers: e.currentTarget.value })} />
          </Field>
        </>
      )}
    </EditDialog>
  );
}
