// The times for which the gateway waits for a provider, and how they go together with the failover budget.
import type { Provider } from "../../api/types";
import { EditDialog } from "../../part/edit";
import { NumberField, type Typed } from "../../part/number";

export type Times = { timeout: Typed; stream_idle_timeout: Typed; first_content_timeout: Typed };

const LABELS: Record<keyof Times, string> = {
  timeout: "Until an answer begins (s)",
  stream_idle_timeout: "Pause in a stream (s)",
  first_content_timeout: "First content of a stream (s)",
};

const HELP: Record<keyof Times, string> = {
  timeout: "An attempt that has no answer by then has failed. By default 300, and 30 for a local server.",
  stream_idle_timeout: "A stream that is silent for longer is broken off. By default 300.",
  first_content_timeout: "A stream without content by then is given up, and the next target is tried. By default without limit.",
};

/** The times that are given, as members of the body that creates a provider. */
export const givenTimes = ({ timeout, stream_idle_timeout, first_content_timeout }: Times): Partial<Times> =>
  Object.fromEntries(Object.entries({ timeout, stream_idle_timeout, first_content_timeout }).filter(([, value]) => value !== ""));

/** What the times of one provider do not bound. */
export const BUDGET =
  "The failover budget bounds a whole request until its output starts: 120 s, unless the client sets another. While another target could serve, a target that hangs gets at most half of what is left.";

/** The fields of the times; one that is left empty stands for the default. */
export function TimeoutFields({ value, onValue }: { value: Times; onValue: (change: Partial<Times>) => void }) {
  return (
    <>
      <div class="form-row">
        {(["timeout", "stream_idle_timeout", "first_content_timeout"] as const).map((name) => (
          <NumberField
            key={name}
            label={LABELS[name]}
            name={name}
            help={HELP[name]}
            value={value[name]}
            onValue={(typed) => onValue({ [name]: typed })}
          />
        ))}
      </div>
      <p class="help">{BUDGET}</p>
    </>
  );
}

type Props = { of: Provider; path: string; etag: string | null; onSaved: () => void; onClose: () => void };

export function EditTimeouts({ of, path, etag, onSaved, onClose }: Props) {
  return (
    <EditDialog<Provider, Times>
      title={`Timeouts of ${of.id}`}
      path={path}
      of={of}
      etag={etag}
      fieldsOf={({ timeout, stream_idle_timeout, first_content_timeout }) => ({
        timeout,
        stream_idle_timeout,
        first_content_timeout: first_content_timeout ?? "",
      })}
      labels={LABELS}
      bodyOf={(changes) => Object.fromEntries(Object.entries(changes).map(([name, value]) => [name, value === "" ? null : value]))}
      onSaved={onSaved}
      onClose={onClose}
    >
      {(mine, set) => <TimeoutFields value={mine} onValue={set} />}
    </EditDialog>
  );
}
