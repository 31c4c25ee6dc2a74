{{- define "weir.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 53 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 53 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "weir.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "weir.labels" -}}
{{ include "weir.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- /* 1.5 × (limits.memory + 128 MiB) */ -}}
{{- define "weir.memory" -}}
{{- $text := (.Values.config.limits | default dict).memory | default "256MiB" }}
{{- if not (regexMatch "^[0-9]+(MiB|GiB)$" $text) }}{{ fail "config.limits.memory: write it in MiB or GiB, like 256MiB" }}{{ end }}
{{- $mib := regexFind "^[0-9]+" $text | int }}
{{- if hasSuffix "GiB" $text }}{{ $mib = mul $mib 1024 }}{{ end }}
{{- div (mul 3 (add $mib 128)) 2 }}Mi
{{- end }}
