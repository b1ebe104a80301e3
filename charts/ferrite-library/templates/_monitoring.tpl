{{- define "ferrite.serviceMonitor" -}}
{{- if .Values.serviceMonitor.enabled }}
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata:
  {{- include "ferrite.metadata" . | nindent 2 }}
    {{- with .Values.serviceMonitor.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  selector:
    matchLabels:
      {{- include "ferrite.selectorLabels" . | nindent 6 }}
  endpoints:
    - port: http
      path: /metrics
      scheme: {{ .Values.serviceMonitor.scheme }}
      {{- with .Values.serviceMonitor.tlsConfig }}
      tlsConfig:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      interval: {{ .Values.serviceMonitor.interval }}
      scrapeTimeout: {{ .Values.serviceMonitor.scrapeTimeout }}
      {{- with .Values.serviceMonitor.relabelings }}
      relabelings:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.serviceMonitor.metricRelabelings }}
      metricRelabelings:
        {{- toYaml . | nindent 8 }}
      {{- end }}
{{- end }}
{{- end -}}

{{/* Series of this release only: Prometheus names the job after the Service. */}}
{{- define "ferrite.selector" -}}
namespace={{ include "ferrite.namespace" . | quote }},job={{ include "ferrite.fullname" . | quote }}
{{- end -}}

{{/* Behind a series: only that of the pod that leads. A standby may be well while nothing is done. */}}
{{- define "ferrite.leader" -}}
{{- if .Values.leaderElection.enabled -}}
and on (pod) leader_election_master_status{ {{- include "ferrite.selector" . -}} } == 1
{{- end -}}
{{- end -}}

{{- define "ferrite.prometheusRule" -}}
{{- if .Values.prometheusRule.enabled }}
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  {{- include "ferrite.metadata" . | nindent 2 }}
    {{- with .Values.prometheusRule.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  {{- $release := dict "controller" (include "ferrite.controller" .) "namespace" (include "ferrite.namespace" .) "service" (include "ferrite.fullname" .) }}
  groups:
    - name: ferrite-{{ include "ferrite.controller" . }}
      rules:
        {{- range $alert := include "ferrite.alerts" . | fromYamlArray }}
        {{- $labels := merge (dict) $release (default dict .labels) }}
        {{- $annotations := default dict .annotations }}
        {{- with $.Values.prometheusRule.runbookUrl }}
        {{- $_ := set $annotations "runbook_url" (printf "%s/%s.md" (trimSuffix "/" .) $alert.alert) }}
        {{- end }}
        - {{ merge (dict "labels" $labels "annotations" $annotations) . | toYaml | nindent 10 | trim }}
        {{- end }}
    - name: ferrite-{{ include "ferrite.controller" . }}-promises
      rules:
        {{- range include "ferrite.shares" . | fromYamlArray }}
        - {{ merge (dict "labels" $release) . | toYaml | nindent 10 | trim }}
        {{- end }}
{{- end }}
{{- end -}}

{{/* Reconciles that are promised soon, of this release. Which those are, and how soon, stands with the reasons in the code. */}}
{{- define "ferrite.promises" -}}
ferrite_{{ include "ferrite.controller" . | replace "-" "_" }}_promises_total{ {{- include "ferrite.selector" . -}}
{{- end -}}

{{/* The share of them that began late, over each window that the alerts of the error budget look at. */}}
{{- define "ferrite.shares" -}}
{{- $promises := include "ferrite.promises" . }}
{{- range list "5m" "30m" "1h" "6h" }}
- record: ferrite:promises_late:ratio_rate{{ . }}
  expr: sum(rate({{ $promises }},result="late"}[{{ . }}])) / sum(rate({{ $promises }}}[{{ . }}]))
{{- end }}
{{- end -}}

{{/*
An alert's expression: of the objective of 99 % the error budget, 1 %, is used up so many times too fast over both windows; and the
longer has enough of them for a share to mean something.
*/}}
{{- define "ferrite.burns" -}}
{{- $of := printf "{controller=%q,namespace=%q,service=%q}" (include "ferrite.controller" .root) (include "ferrite.namespace" .root) (include "ferrite.fullname" .root) -}}
ferrite:promises_late:ratio_rate{{ .short }}{{ $of }} > {{ .times }} * 0.01
  and ferrite:promises_late:ratio_rate{{ .long }}{{ $of }} > {{ .times }} * 0.01
  and on () sum(increase({{ include "ferrite.promises" .root }}}[{{ .long }}])) >= 20
{{- end -}}

{{/*
The alerts of every controller, then those of files/alerts.yaml of its chart: a list of Prometheus rules, in which
$(selector) stands for the labels of this release and $(leader), behind a series, picks that of the pod that leads. Added
to all are `runbook_url`, if the values say where the runbooks are, and the labels that tell releases apart, as most
expressions drop them: `controller`, `namespace` and `service`.
*/}}
{{- define "ferrite.alerts" -}}
{{- $selector := include "ferrite.selector" . }}
{{- $leader := include "ferrite.leader" . }}
- alert: FerriteTargetDown
  expr: absent(up{ {{- $selector -}} } == 1)
  for: 10m
  labels:
    severity: critical
  annotations:
    summary: No pod of {{ include "ferrite.controller" . }} answers
    description: Prometheus has reached no pod of this controller for ten minutes. Nothing is reconciled.
- alert: FerriteNotReady
  expr: (max(ferrite_ready{ {{- $selector -}} } {{ $leader }}) or max(ferrite_ready{ {{- $selector -}} })) == 0
  for: 10m
  labels:
    severity: critical
  annotations:
    summary: The pod of {{ include "ferrite.controller" . }} that leads is not ready
    description: The pod that leads, or every pod where none does, has not been ready for ten minutes. Its /readyz says why.
- alert: FerriteReconcileErrors
  expr: |-
    sum by (controller) (rate(controller_runtime_reconcile_errors_total{ {{- $selector -}} }[15m]))
      / sum by (controller) (rate(controller_runtime_reconcile_total{ {{- $selector -}} }[15m])) > 0.1
  for: 15m
  labels:
    severity: warning
  annotations:
    summary: More than a tenth of all reconciles fail
    description: {{ `{{ $value | humanizePercentage }} of the reconciles ended in an error.` | quote }}
- alert: FerriteReconcileSlow
  expr: |-
    histogram_quantile(0.99,
      sum by (controller, le) (rate(controller_runtime_reconcile_time_seconds_bucket{ {{- $selector -}} }[15m]))
    ) > {{ .Values.prometheusRule.slowReconcileSeconds }}
  for: 15m
  labels:
    severity: warning
  annotations:
    summary: Reconciles are slow
    description: {{ `One in a hundred reconciles takes longer than {{ $value | humanizeDuration }}.` | quote }}
- alert: FerriteBudgetBurns
  expr: |-
    {{- include "ferrite.burns" (dict "root" . "short" "5m" "long" "1h" "times" 14.4) | nindent 4 }}
  labels:
    severity: critical
  annotations:
    summary: Objects wait for {{ include "ferrite.controller" . }} itself
    description: {{ `{{ $value | humanizePercentage }} of the reconciles that are promised soon begin late, as many of the last hour did. One in a hundred may.` | quote }}
- alert: FerriteBudgetBurns
  expr: |-
    {{- include "ferrite.burns" (dict "root" . "short" "30m" "long" "6h" "times" 6) | nindent 4 }}
  labels:
    severity: warning
  annotations:
    summary: Some objects wait for {{ include "ferrite.controller" . }} itself
    description: {{ `{{ $value | humanizePercentage }} of the reconciles that are promised soon begin late, as many of the last six hours did. One in a hundred may.` | quote }}
- alert: FerriteUndecodableObjects
  expr: max by (kind) (ferrite_undecodable_objects{ {{- $selector -}} }) > 0
  for: 5m
  labels:
    severity: warning
  annotations:
    summary: Objects are left out because they cannot be read
    description: {{ `{{ $value }} objects of kind {{ $labels.kind }} have a field of another type than expected. The others are served.` | quote }}
{{- if .Values.leaderElection.enabled }}
- alert: FerriteNoLeader
  expr: sum(leader_election_master_status{ {{- $selector -}} }) == 0
  for: 5m
  labels:
    severity: critical
  annotations:
    summary: No replica of {{ include "ferrite.controller" . }} leads
    description: The pods run, but none has held the lease for five minutes. Nothing is reconciled.
- alert: FerriteTwoLeaders
  expr: sum(leader_election_master_status{ {{- $selector -}} }) > 1
  for: 2m
  labels:
    severity: critical
  annotations:
    summary: Two replicas of {{ include "ferrite.controller" . }} lead
    description: {{ `{{ $value }} pods report that they lead. Writes stay safe, but work is done twice.` | quote }}
{{- end }}
{{- with .Files.Get "files/alerts.yaml" }}
{{ . | replace "$(selector)" $selector | replace "$(leader)" $leader }}
{{- end }}
{{- end -}}

{{/* The controller's own dashboard, files/dashboard.json of its chart, and the one that shows all controllers. */}}
{{- define "ferrite.grafanaDashboard" -}}
{{- if .Values.grafanaDashboard.enabled }}
apiVersion: v1
kind: ConfigMap
metadata:
  {{- $metadata := include "ferrite.metadata" . | fromYaml }}
  name: {{ include "ferrite.fullname" . | trunc 53 | trimSuffix "-" }}-dashboard
  namespace: {{ $metadata.namespace }}
  labels:
    {{- toYaml $metadata.labels | nindent 4 }}
    {{- with .Values.grafanaDashboard.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
data:
  {{- if .Values.grafanaDashboard.common }}
  ferrite.json: {{ include "ferrite.dashboard" . | fromJson | toJson | quote }}
  {{- end }}
  {{- with .Files.Get "files/dashboard.json" }}
  {{ include "ferrite.controller" $ }}.json: {{ . | fromJson | toJson | quote }}
  {{- end }}
{{- end }}
{{- end -}}
