{{/* The name of every object: the release's, with the chart's if that is not part of it. */}}
{{- define "llmgw.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "llmgw.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "llmgw.labels" -}}
{{ include "llmgw.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{- define "llmgw.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "llmgw.secret" -}}
{{- .Values.secret.existing | default (include "llmgw.fullname" .) -}}
{{- end -}}

{{/* True, or empty, if the state is in a database: then each pod is one of several nodes. */}}
{{- define "llmgw.nodes" -}}
{{- if or .Values.database.existingSecret .Values.database.url -}}true{{- end -}}
{{- end -}}

{{- define "llmgw.databaseSecret" -}}
{{- .Values.database.existingSecret | default (printf "%s-database" (include "llmgw.fullname" .)) -}}
{{- end -}}

{{- define "llmgw.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "llmgw.fullname" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end -}}

{{/* The text of the configuration file; empty without one. */}}
{{- define "llmgw.config" -}}
{{- if kindIs "string" .Values.config -}}
{{- .Values.config -}}
{{- else if .Values.config -}}
{{- toYaml .Values.config -}}
{{- end -}}
{{- end -}}

{{/* The sections of the file that take effect at a start only, as JSON. */}}
{{- define "llmgw.configOfStart" -}}
{{- $config := include "llmgw.config" . | fromYaml -}}
{{- with $config.Error -}}
{{- fail (printf "config: not valid YAML: %s" .) -}}
{{- end -}}
{{- pick $config "server" "cors" "policies" | toJson -}}
{{- end -}}

{{- define "llmgw.scheme" -}}
{{- if .Values.tls.existingSecret -}}HTTPS{{- else -}}HTTP{{- end -}}
{{- end -}}

{{/* Fails with what is to do if values do not fit together; single values are checked by values.schema.json. */}}
{{- define "llmgw.check" -}}
{{- if not .Values.image.repository -}}
{{- fail "image.repository: set the registry and name of the image, such as registry.example.com/llmgw; none is published yet" -}}
{{- end -}}
{{- if and .Values.secret.existing .Values.secret.values -}}
{{- fail "secret: set `existing` or `values`, not both" -}}
{{- end -}}
{{- if not (or .Values.secret.existing .Values.secret.values) -}}
{{- fail "secret: set `existing` to the name of a Secret with LLMGW_API_KEY and LLMGW_CREDENTIAL_ENCRYPTION_KEY, or both in `values`" -}}
{{- end -}}
{{- if and .Values.config .Values.existingConfigMap -}}
{{- fail "config: set `config` or `existingConfigMap`, not both" -}}
{{- end -}}
{{- if and .Values.database.existingSecret .Values.database.url -}}
{{- fail "database: set `existingSecret` or `url`, not both" -}}
{{- end -}}
{{- $several := or .Values.autoscaling.enabled (gt (int .Values.replicas) 1) -}}
{{- if and $several (not (include "llmgw.nodes" .)) -}}
{{- fail "replicas: one process owns a state, so there can be 1 replica, or 0. For several nodes set `database.existingSecret` or `database.url` to a PostgreSQL that they share" -}}
{{- end -}}
{{- if and $several .Values.persistence.existingClaim -}}
{{- fail "persistence.existingClaim: each node needs a volume of its own, so leave it out for several nodes" -}}
{{- end -}}
{{- if and .Values.autoscaling.enabled (gt (int .Values.autoscaling.minReplicas) (int .Values.autoscaling.maxReplicas)) -}}
{{- fail "autoscaling.minReplicas: it is more than `maxReplicas`" -}}
{{- end -}}
{{- if and .Values.database.caSecret (not (include "llmgw.nodes" .)) -}}
{{- fail "database.caSecret: set `database.existingSecret` or `database.url` too" -}}
{{- end -}}
{{- if hasKey .Values.secret.values "LLMGW_DATABASE_URL" -}}
{{- fail "secret.values.LLMGW_DATABASE_URL: set `database.url` instead" -}}
{{- end -}}
{{- $own := list "LLMGW_HOST" "LLMGW_PORT" "LLMGW_STATE_DIR" "LLMGW_CONFIG" "LLMGW_DRAIN_DELAY_SECONDS" "LLMGW_DRAIN_SECONDS" "LLMGW_DATABASE_URL" "LLMGW_NODE_NAME" -}}
{{- range $variable, $_ := .Values.env -}}
{{- if has $variable (concat $own (list "LLMGW_API_KEY" "LLMGW_CREDENTIAL_ENCRYPTION_KEY" "LLMGW_TLS_CERT_FILE" "LLMGW_TLS_KEY_FILE")) -}}
{{- fail (printf "env.%s: the chart sets this variable from other values; values.yaml has them" $variable) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.ingress.enabled (not .Values.ingress.hosts) -}}
{{- fail "ingress.hosts: name at least one host" -}}
{{- end -}}
{{- end -}}
