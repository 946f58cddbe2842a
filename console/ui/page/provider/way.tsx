// The way of connections to one provider: the proxy, another address, and TLS.
import type { Provider, ProviderTls } from "../../api/types";
import { EditDialog } from "../../part/edit";
import { Field, Text } from "../../part/form";

type Proxy = { proxy: string };
type Way = Proxy & { connect_to: string };
type Tls = Required<ProviderTls>;

const LABELS: Record<keyof Way, string> = { proxy: "Proxy", connect_to: "Connect to" };
const TLS_LABELS: Record<keyof Tls, string> = { ca: "Authorities", certificate: "Client certificate", key: "Private key" };

/** The field of the proxy; one that is left empty stands for the variables of the gateway. */
export function ProxyField({ value, onValue }: { value: string; onValue: (change: Proxy) => void }) {
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

export function EditWay({ of, path, etag, onSaved, onClose }: Props) {
  return (
    <EditDialog<Provider, Way>
      title={`Way to ${of.id}`}
      path={path}
      of={of}
      etag={etag}
      fieldsOf={({ proxy, connect_to }) => ({ proxy: proxy ?? "", connect_to: connect_to ?? "" })}
      labels={LABELS}
      bodyOf={(changes) => Object.fromEntries(Object.entries(changes).map(([name, text]) => [name, text.trim() || null]))}
      onSaved={onSaved}
      onClose={onClose}
    >
      {(mine, set) => (
        <>
          <ProxyField value={mine.proxy} onValue={set} />
          <Field
            label={LABELS.connect_to}
            name="connect_to"
            optional
            help="Another host and port for the connections. The name of the base URL stays in the Host header, and is the one that TLS verifies."
          >
            <Text inputMode="url" value={mine.connect_to} onValue={(connect_to) => set({ connect_to })} placeholder="10.0.0.7:8443" />
          </Field>
        </>
      )}
    </EditDialog>
  );
}

const tlsOf = ({ tls }: Provider): Tls => ({ ca: tls?.ca ?? "", certificate: tls?.certificate ?? "", key: tls?.key ?? "" });

/** The change of `tls` that makes these changes; without any text nothing of it is left. */
export function tlsPatch(before: Tls, changes: Partial<Tls>): Record<string, string | null> | null {
  const after = { ...before, ...changes };
  if (!Object.values(after).some((text) => text.trim())) return null;
  return Object.fromEntries(Object.entries(changes).map(([name, text]) => [name, text.trim() || null]));
}

export function EditTls({ of, path, etag, onSaved, onClose }: Props) {
  return (
    <EditDialog<Provider, Tls>
      title={`TLS to ${of.id}`}
      path={path}
      of={of}
      etag={etag}
      fieldsOf={tlsOf}
      labels={TLS_LABELS}
      bodyOf={(changes) => ({ tls: tlsPatch(tlsOf(of), changes) })}
      onSaved={onSaved}
      onClose={onClose}
    >
      {(mine, set) => (
        <>
          <Field
            label={TLS_LABELS.ca}
            name="tls.ca"
            optional
            help="Certificates in PEM. Only these authorities are trusted then; by default those of the gateway."
          >
            <textarea class="input mono" rows={4} value={mine.ca} onInput={(e) => set({ ca: e.currentTarget.value })} />
          </Field>
          <Field
            label={TLS_LABELS.certificate}
            name="tls.certificate"
            optional
            help="The certificate that the gateway shows, in PEM, followed by its intermediates."
          >
            <textarea class="input mono" rows={4} value={mine.certificate} onInput={(e) => set({ certificate: e.currentTarget.value })} />
          </Field>
          <Field
            label={TLS_LABELS.key}
            name="tls.key"
            optional
            help={
              <>
                The variable of the gateway that contains the key of the certificate: <code>{`\${ENV:NAME}`}</code>. A key itself is not
                stored.
              </>
            }
          >
            <Text class="mono" value={mine.key} onValue={(key) => set({ key })} placeholder={`\${ENV:NAME}`} />
          </Field>
        </>
      )}
    </EditDialog>
  );
}

/** TLS in a few words; null for that of the gateway. */
export function tlsWords({ tls }: Provider): string | null {
  const words = [tls?.certificate && "client certificate", tls?.ca && "authorities of its own"];
  return words.filter(Boolean).join(", ") || null;
}
