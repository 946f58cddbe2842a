// The proxy between the gateway and one provider.
import type { Provider } from "../../api/types";
import { EditDialog } from "../../part/edit";
import { Field, Text } from "../../part/form";

type Way = { proxy: string };

const LABELS: Record<keyof Way, string> = { proxy: "Proxy" };

/** The field of the proxy; one that is left empty stands for the variables of the gateway. */
export function ProxyField({ value, onValue }: { value: string; onValue: (change: Way) => void }) {
  return (
    <Field
      label={LABELS.proxy}
      name="proxy"
      optional
      help={
        <>
          An HTTP proxy, or <code>direct</code> for none. By default that of HTTPS_PROXY or HTTP_PROXY. A password is a variable:{" "}
          <code>{`http://user:\${ENV:NAME}@proxy.example:3128`}</code>.
        </>
      }
    >
      <Text inputMode="url" value={value} onValue={(proxy) => onValue({ proxy })} placeholder="http://proxy.example:3128" />
    </Field>
  );
}

type Props = { of: Provider; path: string; etag: string | null; onSaved: () => void; onClose: () => void };

export function EditProxy({ of, path, etag, onSaved, onClose }: Props) {
  return (
    <EditDialog<Provider, Way>
      title={`Proxy of ${of.id}`}
      path={path}
      of={of}
      etag={etag}
      fieldsOf={({ proxy }) => ({ proxy: proxy ?? "" })}
      labels={LABELS}
      bodyOf={({ proxy = "" }) => ({ proxy: proxy.trim() || null })}
      onSaved={onSaved}
      onClose={onClose}
    >
      {(mine, set) => <ProxyField value={mine.proxy} onValue={set} />}
    </EditDialog>
  );
}
