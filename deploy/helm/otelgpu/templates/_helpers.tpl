{{- define "otelgpu.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "otelgpu.serviceAccount" -}}
{{- if .Values.serviceAccount.name -}}
{{- .Values.serviceAccount.name -}}
{{- else if .Values.serviceAccount.create -}}
{{- include "otelgpu.fullname" . -}}
{{- else -}}
default
{{- end -}}
{{- end -}}

{{/* Labels that select pods: a list of the context and the component. */}}
{{- define "otelgpu.selector" -}}
app.kubernetes.io/name: {{ (index . 0).Chart.Name }}
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* Labels of an object: a list of the context and the component, which may be empty. */}}
{{- define "otelgpu.labels" -}}
{{- $ctx := index . 0 -}}
helm.sh/chart: {{ printf "%s-%s" $ctx.Chart.Name $ctx.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/name: {{ $ctx.Chart.Name }}
app.kubernetes.io/instance: {{ $ctx.Release.Name }}
app.kubernetes.io/version: {{ $ctx.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $ctx.Release.Service }}
{{- with index . 1 }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- end -}}

{{/* An image: a list of the context and the values of the image. */}}
{{- define "otelgpu.image" -}}
{{- $ctx := index . 0 -}}
{{- $image := index . 1 -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ $image.tag | default $ctx.Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* Headless service of the gateways. */}}
{{- define "otelgpu.gatewayHost" -}}
{{ include "otelgpu.fullname" . }}-gateway.{{ .Release.Namespace }}.svc.{{ .Values.clusterDomain }}
{{- end -}}

{{- define "otelgpu.backends" -}}
- {name: OTELGPU_TRACES_ENDPOINT, value: {{ .Values.backends.traces | quote }}}
- {name: OTELGPU_PROMETHEUS_ENDPOINT, value: {{ .Values.backends.metrics | quote }}}
{{- end -}}

{{- define "otelgpu.podIP" -}}
- name: OTELGPU_POD_IP
  valueFrom: {fieldRef: {fieldPath: status.podIP}}
{{- end -}}

{{- define "otelgpu.probes" -}}
readinessProbe:
  httpGet: {path: /, port: health}
livenessProbe:
  httpGet: {path: /, port: health}
  initialDelaySeconds: 15
  periodSeconds: 20
  failureThreshold: 3
{{- end -}}

{{/* Annotations of pods: a list of the context, the values of the component and the text of its ConfigMap. */}}
{{- define "otelgpu.podAnnotations" -}}
{{- $ctx := index . 0 -}}
checksum/config: {{ index . 2 | sha256sum }}
{{- if $ctx.Values.monitoring.annotations }}
prometheus.io/scrape: "true"
prometheus.io/port: "8888"
{{- end }}
{{- with (index . 1).podAnnotations }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Configuration files of the agent, in the order in which the Collector merges them. */}}
{{- define "otelgpu.agentConfig" -}}
config.yaml: |
{{- if eq .Values.agent.devices "dcgm-exporter" }}
{{- if or .Values.gateway.enabled .Values.capture.enabled }}
{{- fail "agent.devices: dcgm-exporter needs gateway.enabled: false and capture.enabled: false" }}
{{- end }}
{{ .Files.Get "files/config/dcgm-exporter.yaml" | trimSuffix "\n" | indent 2 }}
{{- else }}
{{ .Files.Get "files/config/agent.yaml" | trimSuffix "\n" | indent 2 }}
{{- if not .Values.gateway.enabled }}
direct.yaml: |
{{ .Files.Get "files/config/direct.yaml" | trimSuffix "\n" | indent 2 }}
{{- end }}
{{- end }}
{{- if and .Values.agent.dra (ne .Values.agent.devices "dcgm-exporter") }}
dra.yaml: |
  receivers: {gpu: {kubernetes: {resource_slices: true}}}
{{- end }}
{{- if .Values.capture.enabled }}
capture.yaml: |
{{ .Files.Get "files/config/capture.yaml" | trimSuffix "\n" | indent 2 }}
capture-settings.yaml: |
  receivers:
    gpu_capture:
      every: {{ .Values.capture.every }}
      window: {{ .Values.capture.window }}
{{- if not .Values.gateway.enabled }}
  service:
    pipelines:
      traces/capture:
        exporters: [gpu_metrics, otlp_grpc/traces]
{{- end }}
{{- end }}
{{- with .Values.agent.config }}
values.yaml: |
{{ toYaml . | indent 2 }}
{{- end }}
{{- end -}}

{{- define "otelgpu.gatewayConfig" -}}
config.yaml: |
{{ .Files.Get "files/config/gateway.yaml" | trimSuffix "\n" | indent 2 }}
{{- with .Values.gateway.config }}
values.yaml: |
{{ toYaml . | indent 2 }}
{{- end }}
{{- end -}}
