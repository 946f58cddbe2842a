// The form of a rule, new or changed: its threshold in the unit of its kind, and the objects that it concerns.
import { useState } from "preact/hooks";
import { at, call, Fault } from "../../api/client";
import { useOutlook } from "../../api/dry_run";
import { changed } from "../../api/resource";
import type { AlertKind, AlertRule } from "../../api/types";
import { Allowed } from "../../part/choice";
import { Dialog } from "../../part/dialog";
import { AddressedDialog, EditDialog } from "../../part/edit";
import { EffectsList } from "../../part/effects";
import { Check, concerns, Field, Form, FormButtons, FormFooterError, Select, Text, useSubmission } from "../../part/form";
import { NumberField, type Typed } from "../../part/number";
import { KIND_NAMES, KINDS } from "./kinds";
import { isScoped, suggestAbout } from "./suggest";

type Fields = {
  name: string;
  objects: string[] | null;
  threshold: Typed | null;
  floor_micro_usd: Typed | null;
  severity: AlertRule["severity"];
  hold_seconds: Typed;
  clear_seconds: Typed;
};

const LABELS: Record<keyof Fields, string> = {
  name: "Name",
  objects: "Applies to",
  threshold: "Threshold",
  floor_micro_usd: "Minimum spending ($)",
  severity: "Urgency",
  hold_seconds: "Opens after (s)",
  clear_seconds: "Clears after (s)",
};

/** The fields of a new rule of a kind. */
function fieldsFor(kind: AlertKind, name: string): Fields {
  const { threshold, floor_micro_usd, severity, hold_seconds, clear_seconds } = KINDS[kind];
  return { name, objects: null, threshold, floor_micro_usd, severity, hold_seconds, clear_seconds };
}

export function NewRule({ onClose }: { onClose: () => void }) {
  const [kind, setKind] = useState<AlertKind>("provider_down");
  const [fields, setFields] = useState(() => fieldsFor(kind, ""));
  const submission = useSubmission();
  const body = { kind, ...fields };
  const { effects } = useOutlook(fields.name ? { method: "POST", path: "alert-rules", body } : null);
  const create = (): void =>
    void submission.run(body, async (repeatKey) => {
      await call("POST", "alert-rules", { body, repeatKey });
      changed("alert-rules");
      onClose();
    });
  return (
    <Dialog title="New rule" onClose={onClose}>
      <Form submission={submission} onSubmit={create}>
        <Field label="Kind" name="kind">
          <Select
            value={kind}
            onValue={(chosen) => {
              setKind(chosen as AlertKind);
              setFields(fieldsFor(chosen as AlertKind, fields.name));
            }}
            options={KIND_NAMES.map((name) => [name, `${KINDS[name].title} (${name})`])}
          />
        </Field>
        <RuleFields key={kind} kind={kind} fields={fields} set={(change) => setFields({ ...fields, ...change })} error={submission.error} />
        <EffectsList effects={effects} />
        <FormFooterError />
        <FormButtons busy={submission.busy} submit="Create" submitting="Creating…" onCancel={onClose} />
      </Form>
    </Dialog>
  );
}

/** The form of the rule that the address names. */
export function EditRule({ id, onClose }: { id: string; onClose: () => void }) {
  const path = at("alert-rules", id);
  return (
    <AddressedDialog<AlertRule> path={path} title="Rule" onClose={onClose}>
      {(rule) => (
        <EditDialog<AlertRule, Fields & { enabled: boolean }>
          title={`Change ${rule.name}`}
          path={path}
          of={rule}
          etag={`"${rule.version}"`}
          fieldsOf={({ name, objects, threshold, floor_micro_usd, severity, hold_seconds, clear_seconds, enabled }) => ({
            name,
            objects,
            threshold,
            floor_micro_usd,
            severity,
            hold_seconds,
            clear_seconds,
            enabled,
          })}
          labels={{ ...LABELS, enabled: "Enabled" }}
          onSaved={() => changed("alert-rules", "alerts", "state")}
          onClose={onClose}
        >
          {(mine, set, error) => (
            <>
              <RuleFields kind={rule.kind} fields={mine} set={set} error={error} names={namesOf(rule)} />
              <Check
                label="Enabled"
                help="Without it, the rule raises no alerts; its open ones are resolved."
                checked={mine.enabled}
                onChange={(enabled) => set({ enabled })}
              />
            </>
          )}
        </EditDialog>
      )}
    </AddressedDialog>
  );
}

/** The names of a rule's objects by ID. */
const namesOf = ({ objects, object_names }: AlertRule): Map<string, string> =>
  new Map(objects?.map((id, i): [string, string] => [id, object_names?.[i] ?? id]));

type FieldsProps = {
  kind: AlertKind;
  fields: Fields;
  set: (change: Partial<Fields>) => void;
  error: Error | null;
  names?: Map<string, string>;
};

function RuleFields({ kind, fields, set, error, names = new Map() }: FieldsProps) {
  const { about, unit } = KINDS[kind];
  return (
    <>
      <Field label={LABELS.name} name="name">
        <Text value={fields.name} onValue={(name) => set({ name })} autoFocus />
      </Field>
      {unit && fields.threshold !== null && (
        <NumberField label={unit} name="threshold" value={fields.threshold} onValue={(threshold) => set({ threshold })} />
      )}
      {fields.floor_micro_usd !== null && (
        <NumberField
          label={LABELS.floor_micro_usd}
          name="floor_micro_usd"
          help="Spending of up to this amount an hour never raises an alert."
          unit={1e6}
          value={fields.floor_micro_usd}
          onValue={(floor_micro_usd) => set({ floor_micro_usd })}
        />
      )}
      {isScoped(about) && (
        <Allowed
          label={LABELS.objects}
          all="All"
          value={fields.objects}
          onValue={(objects) => set({ objects })}
          suggest={(text) => suggestAbout(about, text)}
          placeholder="Add one"
          names={names}
          error={error instanceof Fault && concerns(error.param, "objects") ? error.message : null}
        />
      )}
      <Field label={LABELS.severity} name="severity">
        <Select
          value={fields.severity}
          onValue={(severity) => set({ severity: severity as Fields["severity"] })}
          options={[
            ["bad", "urgent: a person must act"],
            ["warn", "normal: a person should look"],
          ]}
        />
      </Field>
      <div class="form-row">
        <NumberField
          label={LABELS.hold_seconds}
          name="hold_seconds"
          help="The condition must hold this long before an alert opens."
          value={fields.hold_seconds}
          onValue={(hold_seconds) => set({ hold_seconds })}
        />
        <NumberField
          label={LABELS.clear_seconds}
          name="clear_seconds"
          help="The condition must be over this long before the alert is resolved."
          value={fields.clear_seconds}
          onValue={(clear_seconds) => set({ clear_seconds })}
        />
      </div>
    </>
  );
}
