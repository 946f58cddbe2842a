// The members of JSON requests that one provider sets, adds or leaves out.
import type { BodyMembers, Provider } from "../../api/types";
import { EditDialog } from "../../part/edit";
import { Field } from "../../part/form";

type Body = { body: string };

const LABELS: Record<keyof Body, string> = { body: "Members of requests" };

const EXAMPLE = '{"defaults": {"seed": 7}, "set": {"safe": true}, "remove": ["logit_bias"]}';

/** The change that turns one value into another: the gateway merges objects, and null removes a member. */
export function patchOf(before: unknown, after: unknown): unknown {
  if (!isObject(before) || !isObject(after)) return after;
  const names = new Set([...Object.keys(before), ...Object.keys(after)]);
  return Object.fromEntries([...names].map((name) => [name, name in after ? patchOf(before[name], after[name]) : null]));
}

const isObject = (value: unknown): value is Record<string, unknown> => typeof value === "object" && value !== null && !Array.isArray(value);

/** What was typed: nothing for no changes. A text that is no JSON reaches the gateway as it is, and its answer stands at the field. */
export function typedJson(text: string): unknown {
  if (!text.trim()) return null;
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/** The text of a body in a field. */
export const shownBody = (body: BodyMembers | null | undefined): string => (body ? JSON.stringify(body, null, 2) : "");

type Props = { of: Provider; path: string; etag: string | null; onSaved: () => void; onClose: () => void };

export function EditBody({ of, path, etag, onSaved, onClose }: Props) {
  return (
    <EditDialog<Provider, Body>
      title={`Members of requests to ${of.id}`}
      path={path}
      of={of}
      etag={etag}
      fieldsOf={({ body }) => ({ body: shownBody(body) })}
      labels={LABELS}
      bodyOf={({ body = "" }) => ({ body: patchOf(of.body, typedJson(body)) })}
      onSaved={onSaved}
      onClose={onClose}
    >
      {(mine, set) => (
        <Field
          label={LABELS.body}
          name="body"
          optional
          help={
            <>
              JSON with <code>defaults</code>, <code>set</code> and <code>remove</code>, such as <code>{EXAMPLE}</code>. It is stored and
              shown as it is; a secret is a variable: <code>{`"\${ENV:NAME}"`}</code>.
            </>
          }
        >
          <textarea class="input mono" rows={8} value={mine.body} onInput={(e) => set({ body: e.currentTarget.value })} />
        </Field>
      )}
    </EditDialog>
  );
}
